"""``allotment watch``: other processes, and a program of our own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile

import pytest

PATIENCE = 60

SERVING = """
import sys
import allotment as al
al.init("sim:2xh200", quiet=True)
arrays = [al.empty(2**17, device="cuda:0")]
al.serve_status()
print("ready", flush=True)
for line in sys.stdin:
    arrays.append(al.empty(2**17, device="cuda:0"))
    print("allocated", flush=True)
"""
PROGRAM = """
import sys
import allotment as al
arrays = [al.empty(2**17, device="cpu") for _ in range(3)]
del arrays[0]
print("arguments:", *sys.argv[1:])
if "fail" in sys.argv: raise ValueError("it went wrong")
if "exit" in sys.argv: sys.exit(7)
"""


@pytest.fixture(autouse=True)
def runtime_folder(monkeypatch):
    """A runtime folder of the test's own."""
    with tempfile.TemporaryDirectory(prefix="al-") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield


@pytest.fixture
def start(environment):
    """Return a function that starts Python with arguments, and ends it at last."""
    started = []

    def popen(*arguments, **options):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen([sys.executable, *arguments], text=True, env=environment(), **pipes, **options)
        started.append(process)
        return process

    yield popen
    for process in started:
        process.kill()
        process.wait(PATIENCE)
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()


@pytest.fixture
def watched(start):
    """A process that serves its status, and allocates when it is told to."""
    process = start("-c", SERVING)
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.fixture
def program(tmp_path):
    """A script that allocates."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


def test_one_look_at_a_process_is_a_table(process, watched):
    done = process("watch", str(watched.pid), "--once")
    lines = done.stdout.splitlines()

    assert (done.returncode, done.stderr) == (0, "")
    assert lines[0].startswith(f"process {watched.pid}  ")
    assert lines[1].split() == [
        "device",
        "allocator",
        "in",
        "use",
        "peak",
        "reserved",
        "allocs/s",
        "allocations",
        "failed",
    ]
    assert lines[2].split() == ["cuda:0", "mempool", "1", "MiB", "1", "MiB", "32", "MiB", "–", "1", "0"]


def test_one_look_as_json_is_one_line(process, watched):
    done = process("watch", str(watched.pid), "--once", "--json")
    (line,) = done.stdout.splitlines()
    document = json.loads(line)

    assert (document["pid"], document["platform"]) == (watched.pid, "sim:2xh200")
    assert [each["device"] for each in document["devices"]] == ["cuda:0", "cuda:1"]
    (row,) = document["allocators"]
    assert (row["current"], row["allocations"], row["allocations_per_second"]) == (2**20, 1, None)


def test_looks_go_on_until_the_process_ends_and_that_is_no_failure(start, watched):
    watching = start("-m", "allotment", "watch", str(watched.pid), "--json", "--interval", "0.05")
    assert json.loads(watching.stdout.readline())["allocators"][0]["allocations"] == 1
    watched.stdin.write("\n")
    watched.stdin.flush()
    assert watched.stdout.readline() == "allocated\n"
    looks = (json.loads(line)["allocators"][0] for line in watching.stdout)
    later = next(look for look in looks if look["allocations"] == 2)
    watched.stdin.close()
    watched.wait(PATIENCE)
    out, err = watching.stdout.read(), watching.communicate(timeout=PATIENCE)[1]

    assert later["allocations_per_second"] > 0
    assert all(json.loads(line)["pid"] == watched.pid for line in out.splitlines())
    assert err == "It has ended, or serves its status no more. This is the last that it told.\n"
    assert watching.returncode == 0


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="this system has no terminals to make")
def test_in_a_terminal_the_last_table_stays_when_the_process_ends(start, watched, environment):
    terminal, ours = os.openpty()
    watching = subprocess.Popen(
        [sys.executable, "-m", "allotment", "watch", str(watched.pid), "--interval", "0.05"],
        stdin=subprocess.DEVNULL,
        stdout=ours,
        stderr=subprocess.PIPE,
        env=environment(TERM="xterm", COLUMNS="120"),
    )
    os.close(ours)
    shown = b""
    while part := _read(terminal):
        shown += part
        if b"mempool" in shown:
            watched.stdin.close()
    os.close(terminal)
    err = watching.communicate(timeout=PATIENCE)[1]
    last = shown.decode().replace("\r", "").splitlines()[-4:]

    assert (watching.returncode, err) == (0, b"")
    assert "mempool" in "".join(last)
    assert "It has ended, or serves its status no more." in "".join(last)


def _read(terminal):
    try:
        return os.read(terminal, 2**16)
    except OSError:  # the other end is closed
        return b""


def test_ctrl_c_ends_the_watching_as_a_wish_and_not_as_a_failure(start, watched):
    watching = start("-m", "allotment", "watch", str(watched.pid), "--json", "--interval", "0.05")
    assert watching.stdout.readline()
    watching.send_signal(signal.SIGINT)
    err = watching.communicate(timeout=PATIENCE)[1]

    assert (watching.returncode, err) == (0, "")


def test_a_process_that_does_not_exist_is_an_error(run):
    result = run("watch", str(2**22 + 1))

    assert result.exit_code == 1
    assert "there is no such process" in result.output


def test_a_process_that_does_not_serve_is_an_error_that_says_how_to_switch_it_on(run):
    result = run("watch", str(os.getpid()))

    assert result.exit_code == 1
    assert "it does not serve its status" in result.output
    assert "ALLOTMENT_WATCH=1" in result.output


def test_a_process_that_does_not_answer_is_an_error(run, monkeypatch):
    def ask(pid):
        raise TimeoutError

    monkeypatch.setattr("allotment.cli._watch.ask", ask)
    result = run("watch", "1")

    assert result.exit_code == 1
    assert "process 1 cannot be watched: it does not answer" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("0",),
        ("-3",),
        ("mine",),
        ("1.5",),
        ("self",),
        ("self", "--", "nowhere.py"),
        ("self", "--", "-m"),
        ("1", "x.py"),
    ],
)
def test_wrong_usage_has_exit_code_2(run, arguments):
    assert run("watch", *arguments).exit_code == 2


# A program of our own


def test_a_program_runs_with_its_arguments_and_the_table_is_on_standard_error(process, program):
    done = process("watch", "self", "--", program, "--epochs", "3")

    assert (done.returncode, done.stdout) == (0, "arguments: --epochs 3\n")
    assert f"{program} --epochs 3  host" in done.stderr
    assert done.stderr.splitlines()[-1].split()[:6] == ["cpu", "host", "2", "MiB", "3", "MiB"]


def test_a_module_can_be_run(process, environment, tmp_path, monkeypatch):
    (tmp_path / "folder" / "trial_module.py").write_text(PROGRAM)
    done = process("watch", "self", "--once", "--", "-m", "trial_module", "a")

    assert (done.returncode, done.stdout) == (0, "arguments: a\n")


def test_the_exit_code_is_the_programs(process, program):
    assert process("watch", "self", "--", program, "exit").returncode == 7


def test_a_program_that_fails_prints_its_own_traceback_and_the_last_table(process, program):
    done = process("watch", "self", "--once", "--", program, "fail")

    assert done.returncode == 1
    assert "ValueError: it went wrong" in done.stderr
    assert "runpy" not in done.stderr
    assert "allocs/s" in done.stderr


def test_lines_of_json_end_with_what_the_program_left(process, program):
    done = process("watch", "self", "--json", "--", program)
    last = json.loads(done.stderr.splitlines()[-1])

    assert done.stdout == "arguments:\n"
    assert (last["allocators"][0]["allocations"], last["allocators"][0]["peak"]) == (3, 3 * 2**20)


def test_commands_do_not_serve_what_is_configured_but_programs_that_they_run_do(process, tmp_path):
    asking = tmp_path / "asking.py"
    asking.write_text(
        "import os\nimport allotment as al\nfrom allotment.serving import ask\n"
        "al.get_devices()\nprint(ask(os.getpid()).pid == os.getpid())\n"
    )
    done = process("devices", "--json", ALLOTMENT_METRICS__PORT="0", ALLOTMENT_METRICS__ADDRESS="192.0.2.1")

    assert (done.returncode, done.stderr) == (0, "")
    assert process("watch", "self", "--once", "--", str(asking), ALLOTMENT_WATCH="1").stdout == "True\n"
