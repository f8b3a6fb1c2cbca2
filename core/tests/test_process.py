"""The life of the process, each case in a process of its own where the interpreter itself must end or fork."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from typing import Any

import pytest

from allotment._process import Lifecycle, ProcessState

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)


def output_of(script: str) -> list[str]:
    done = run(script)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_a_process_is_running_at_first():
    script = "from allotment import _process as p; print(p.state().name, p.is_running())"
    assert output_of(script) == ["RUNNING", "True"]


def test_at_exit_the_last_callback_runs_first_and_sees_the_shutdown():
    script = """
from allotment import _process as p
p.on_shutdown(lambda: print("first", p.state().name, p.is_running()))
p.on_shutdown(lambda: print("second"))
print("body", p.state().name)
"""
    assert output_of(script) == ["body", "RUNNING", "second", "first", "SHUTTING_DOWN", "False"]


def test_a_callback_that_raises_at_exit_is_reported_and_stops_nothing():
    script = """
from allotment import _process as p
p.on_shutdown(lambda: print("still called"))
p.on_shutdown(lambda: 1 / 0)
"""
    done = run(script)
    assert done.returncode == 0
    assert done.stdout.split() == ["still", "called"]
    assert "ZeroDivisionError" in done.stderr


def test_nothing_is_installed_before_the_first_registration():
    script = """
import atexit, os
calls = []
atexit.register = lambda *a, **k: calls.append("atexit")
os.register_at_fork = lambda *a, **k: calls.append("fork")
from allotment import _process as p
from_the_standard_library = len(calls)
p = p.Lifecycle()
print(len(calls) - from_the_standard_library)
p.on_shutdown(print)
p.on_fork_in_child(print)
print(*calls[from_the_standard_library:])
"""
    assert output_of(script) == ["0", "atexit", "fork"]


@needs_fork
def test_a_child_runs_its_callbacks_in_reverse_order_and_knows_that_it_was_forked():
    script = """
import os, sys
from allotment import _process as p
p.on_fork_in_child(lambda: print("first", p.state().name, flush=True))
p.on_fork_in_child(lambda: print("second", flush=True))
child = os.fork()
if child == 0:
    print("child", p.is_running(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print("parent", p.state().name)
"""
    assert output_of(script) == ["second", "first", "FORKED", "child", "False", "parent", "RUNNING"]


@needs_fork
def test_a_child_of_a_process_that_only_imported_is_not_forked_from_a_user():
    script = """
import os
from allotment import _process as p
child = os.fork()
if child == 0:
    print(p.state().name, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    assert output_of(script) == ["RUNNING"]


@needs_fork
def test_what_a_child_has_anew_comes_first_and_does_not_make_it_a_forked_user():
    script = """
import os
from allotment import _process as p
p.on_renewal_in_child(lambda: print("renewed", p.state().name, flush=True))
def fork():
    child = os.fork()
    if child == 0:
        print(p.is_running(), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
fork()
p.on_fork_in_child(lambda: print("forked", flush=True))
fork()
"""
    assert output_of(script) == ["renewed", "RUNNING", "True", "renewed", "RUNNING", "forked", "False"]


@needs_fork
def test_a_child_can_register_although_a_thread_of_its_parent_was_registering():
    script = """
import os
from allotment import _process as p
p.on_fork_in_child(lambda: None)
with p._lifecycle._lock:
    child = os.fork()
    if child == 0:
        from threading import Thread
        thread = Thread(target=lambda: p.on_shutdown(lambda: None), daemon=True)
        thread.start()
        thread.join(20)
        print("registered" if not thread.is_alive() else "stuck", flush=True)
        os._exit(0)
os.waitpid(child, 0)
"""
    assert output_of(script) == ["registered"]


class Listener:
    def __init__(self, heard: list[str]) -> None:
        self.heard = heard

    def listen(self) -> None:
        self.heard.append("called")


class Renewed:
    def __init__(self, heard: Any) -> None:
        self.heard = heard

    def renew(self) -> None:
        self.heard.append("renewed")


@pytest.fixture
def lifecycle(monkeypatch: pytest.MonkeyPatch) -> Lifecycle:
    """A lifecycle of which this interpreter knows nothing."""
    lifecycle = Lifecycle()
    monkeypatch.setattr(lifecycle, "_is_watching_end", True)
    monkeypatch.setattr(lifecycle, "_is_watching_forks", True)
    return lifecycle


def test_a_bound_method_is_called_while_its_object_lives(lifecycle: Lifecycle):
    heard: list[str] = []
    listener = Listener(heard)
    lifecycle.on_shutdown(listener.listen)
    lifecycle.shut_down()
    assert heard == ["called"]
    assert lifecycle.state is ProcessState.SHUTTING_DOWN


def test_a_bound_method_does_not_keep_its_object(lifecycle: Lifecycle):
    heard: list[str] = []
    listener = Listener(heard)
    lifecycle.on_fork_in_child(listener.listen)
    del listener
    gc.collect()
    lifecycle.enter_child()
    assert heard == []


def test_what_is_renewed_begins_anew_before_any_callback(lifecycle: Lifecycle):
    heard: list[str] = []
    renewed = Renewed(heard)
    lifecycle.on_renewal_in_child(lambda: heard.append("called"))
    lifecycle.renew_in_child(renewed)
    lifecycle.enter_child()
    assert heard == ["renewed", "called"]
    assert lifecycle.state is ProcessState.RUNNING


def test_what_cannot_be_renewed_stops_nothing(lifecycle: Lifecycle, capsys: pytest.CaptureFixture[str]):
    heard: list[str] = []
    broken = Renewed(())
    lifecycle.renew_in_child(broken)
    lifecycle.on_renewal_in_child(lambda: heard.append("called"))
    lifecycle.enter_child()
    assert heard == ["called"]
    assert "AttributeError" in capsys.readouterr().err


def test_what_is_renewed_is_not_kept(lifecycle: Lifecycle):
    heard: list[str] = []
    lifecycle.renew_in_child(Renewed(heard))
    gc.collect()
    lifecycle.enter_child()
    assert heard == []


def test_callbacks_of_dead_objects_do_not_pile_up(lifecycle: Lifecycle):
    for _ in range(100):
        lifecycle.on_shutdown(Listener([]).listen)
    gc.collect()
    lifecycle.on_shutdown(print)
    assert len(lifecycle._at_shutdown) == 1
