"""The socket at which a process can be asked, and asking it."""

from __future__ import annotations

import os
import signal
import socket
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

import allotment as al
from allotment.serving import _place, ask

pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="Python has no Unix sockets here")
PATIENCE = 60
FORKING = ("-W", "ignore::DeprecationWarning")
"""Since 3.12, Python warns of a fork of a process with threads, which a process that serves is."""
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")

SERVING = """
import allotment as al
al.init("sim:2xh200", quiet=True)
array = al.empty(100, device="cuda:0")
server = al.serve_status()
print("ready", flush=True)
input()
"""


def permissions(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_this_process_can_be_asked_by_itself(sim):
    array = al.empty(100)
    with al.serve_status() as server:
        status = ask(server.pid)

    assert [(each.device, each.allocator, each.current) for each in status.allocators] == [("cuda:0", "mempool", 800)]
    del array


def test_another_process_can_be_asked(child):
    process = child(SERVING)
    status = ask(process.pid)

    assert (status.pid, status.platform, status.allocators[0].current) == (process.pid, "sim:2xh200", 800)


def test_the_socket_and_its_folder_are_the_users_alone(runtime_folder):
    with al.serve_status() as server:
        assert server.path.parent == runtime_folder
        assert (permissions(server.path), permissions(runtime_folder)) == (0o600, 0o700)


def test_closing_removes_the_socket_and_can_be_repeated(runtime_folder):
    server = al.serve_status()
    server.close()
    server.close()

    assert list(runtime_folder.iterdir()) == []
    assert repr(server).endswith("closed>")


def test_a_second_call_gives_what_serves_already():
    with al.serve_status() as server:
        assert al.serve_status() is server
    with al.serve_status() as later:
        assert later is not server


def test_at_its_end_a_process_removes_the_socket(child, runtime_folder, end):
    process = child(SERVING)
    assert len(list(runtime_folder.iterdir())) == 1

    assert end(process) == ("", "")
    assert list(runtime_folder.iterdir()) == []


def test_what_a_killed_process_left_is_removed_by_the_next_that_serves(child, runtime_folder):
    process = child(SERVING)
    process.kill()
    process.wait(PATIENCE)
    assert len(list(runtime_folder.iterdir())) == 1

    with al.serve_status() as server:
        assert list(runtime_folder.iterdir()) == [server.path]


def test_what_a_killed_process_left_is_removed_by_who_asks_for_it(child, runtime_folder):
    process = child(SERVING)
    process.kill()
    process.wait(PATIENCE)

    with pytest.raises(al.ServingError, match=f"process {process.pid} cannot be watched: there is no such process"):
        ask(process.pid)
    assert list(runtime_folder.iterdir()) == []


def test_the_socket_of_a_process_that_lives_or_is_elsewhere_is_left(child, runtime_folder, monkeypatch):
    process = child(SERVING)
    _place.remove_stale_sockets(runtime_folder)
    monkeypatch.setattr(_place, "is_alive", lambda pid: False)  # as in a container with numbers of its own
    _place.remove_stale_sockets(runtime_folder)

    assert ask(process.pid).pid == process.pid


def test_a_socket_left_by_a_dead_process_of_the_same_number_is_replaced(runtime_folder):
    runtime_folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(runtime_folder / f"{os.getpid()}.sock"))

    with al.serve_status() as server:
        assert ask(server.pid).pid == os.getpid()


def test_a_process_that_does_not_serve_says_how_to_switch_it_on():
    with pytest.raises(al.ServingError) as caught:
        ask(os.getpid())

    assert f"process {os.getpid()} cannot be watched: it does not serve its status" in str(caught.value)
    assert "ALLOTMENT_WATCH=1" in str(caught.value)
    assert "allotment.serve_status()" in str(caught.value)


def test_a_process_of_another_user_is_permission_denied(monkeypatch):
    def refuse(pid, signal_number):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "kill", refuse)
    with pytest.raises(al.ServingError, match=r"permission denied, it is another user's\. Watch it as the user who"):
        ask(1)


def test_a_stopped_process_does_not_answer(child):
    process = child(SERVING)
    os.kill(process.pid, signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)
    try:
        with pytest.raises(TimeoutError):
            ask(process.pid, patience=0.2)
    finally:
        os.kill(process.pid, signal.SIGCONT)

    assert ask(process.pid).pid == process.pid


@pytest.mark.parametrize(
    ("answer", "problem"),
    [(b"", "ceased to serve"), (b"{", "cannot be read"), (b'{"pid": 1}', "cannot be read")],
)
def test_an_answer_that_is_none_is_an_error(runtime_folder, answer, problem):
    runtime_folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(runtime_folder / f"{os.getpid()}.sock"))
        server.listen()
        received = _ask_and_answer(server, answer)

    assert problem in str(received)


def _ask_and_answer(server, answer):
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, os.getpid())
        connection, _ = server.accept()
        connection.sendall(answer)
        connection.close()
        return asked.exception(PATIENCE)


def test_a_folder_that_others_can_enter_is_refused(runtime_folder):
    runtime_folder.mkdir(mode=0o755)

    with pytest.raises(al.ServingError, match=f"other users have access to {runtime_folder}. Run: chmod go-rwx"):
        al.serve_status()
    with pytest.raises(al.ServingError, match="other users have access"):
        ask(os.getpid())


def test_a_folder_that_is_a_link_is_refused(runtime_folder, tmp_path):
    runtime_folder.symlink_to(tmp_path, target_is_directory=True)

    with pytest.raises(al.ServingError, match="is not a folder of this user"):
        al.serve_status()


def test_a_path_too_long_for_a_socket_is_an_error_that_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / ("long" * 30)))

    with pytest.raises(al.ServingError, match=r"the path of the socket is too long .* Set XDG_RUNTIME_DIR"):
        al.serve_status()


def test_without_a_runtime_folder_one_in_the_temporary_folder_is_used_and_nobody_is_warned(output_of):
    lines = output_of(
        "import allotment as al\nwith al.serve_status() as server: print(server.path.parent.name)", XDG_RUNTIME_DIR=""
    )

    assert lines == ["allotment"]


def test_where_python_has_no_unix_sockets_the_error_offers_the_metrics(monkeypatch):
    monkeypatch.delattr(socket, "AF_UNIX")

    with pytest.raises(al.UnsupportedError, match=r"Use allotment.serve_metrics\(\)"):
        al.serve_status()
    with pytest.raises(al.UnsupportedError):
        ask(os.getpid())


def test_a_question_in_the_middle_of_a_capture_leaves_it_alone(sim):
    array = al.empty(100)
    with al.serve_status() as server:
        with al.ScopedCapture(capture_mode=al.CaptureMode.GLOBAL) as capture:
            array.fill_(3)
            status = ask(server.pid)
        al.capture_launch(capture.graph)

    assert array.numpy().tolist() == [3.0] * 100
    assert (status.allocators[0].current, status.allocators[0].reserved) == (800, None)


@needs_fork
def test_a_forked_child_serves_nothing_and_leaves_the_socket_to_its_parent(output_of, runtime_folder):
    lines = output_of(
        """
        import os
        import allotment as al
        from allotment.serving import ask
        with al.serve_status() as server:
            child = os.fork()
            if child == 0:
                print(server.is_open, flush=True)
                server.close()
                with al.serve_status() as own:
                    print(own.pid == os.getpid() == ask(own.pid).pid, flush=True)
                os._exit(0)
            os.waitpid(child, 0)
            print(server.path.exists(), ask(os.getpid()).pid == server.pid)
    """,
        *FORKING,
    )

    assert lines == ["False", "True", "True True"]


def test_nothing_is_served_unless_it_is_asked_for(output_of, runtime_folder):
    lines = output_of("""
        import threading
        import allotment as al
        al.init("sim:2xh200", quiet=True)
        array = al.empty(100, device="cuda:0")
        import sys
        print("allotment.serving" in sys.modules, threading.active_count())
    """)

    assert lines == ["False 1"]
    assert not runtime_folder.exists()


def test_the_number_of_a_process_that_answers_for_another_is_noticed(child, runtime_folder):
    process = child(SERVING)
    (runtime_folder / f"{process.pid}.sock").rename(runtime_folder / f"{os.getpid()}.sock")

    with pytest.raises(al.ServingError, match=f"process {process.pid} answered"):
        ask(os.getpid())
