"""Locks, and what a forked child can do although another thread of its parent held one."""

from __future__ import annotations

import gc
import os
import weakref
from functools import cached_property
from textwrap import dedent, indent
from threading import Event, Thread
from typing import NamedTuple

import pytest

from allotment._locks import RenewedLock, without_property_locks

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")

FORKED = """
import os, signal, sys, threading
from contextlib import nullcontext
import allotment as al
{setup}
is_held, is_over = threading.Event(), threading.Event()

def hold():
    with {lock}:
        is_held.set()
        is_over.wait()

thread = threading.Thread(target=hold)
thread.start()
is_held.wait()
child = os.fork()
if not child:
    signal.alarm(20)
{work}
    sys.stdout.flush()
    os._exit(0)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
is_over.set()
thread.join()
if status:
    print("stuck" if status == -signal.SIGALRM else status)
"""
IGNORED = "-Wignore::DeprecationWarning"
"""Since 3.12, Python warns of a fork of a process with threads."""


class Case(NamedTuple):
    """What a child does although a thread of its parent holds a lock."""

    setup: str
    lock: str
    work: str
    answer: str


CASES = {
    "reads the configuration": Case(
        "from allotment import configuration",
        "configuration.current()._lock()",
        "print(configuration.current().quiet)",
        "False",
    ),
    "finds the values of a configuration": Case(
        "from allotment import configuration\nfrom allotment.configuration._snapshot import Snapshot",
        "getattr(vars(Snapshot)['values'], 'lock', nullcontext())",
        "print(configuration.current().quiet)",
        "False",
    ),
    "configures": Case(
        "from allotment import configuration\nassert not configuration.current().quiet",
        "configuration.current()._lock()",
        "al.configure(quiet=True); print(configuration.current().quiet)",
        "True",
    ),
    "puts a configuration in force": Case(
        "from allotment import configuration\nfrom allotment.configuration._current import _in_force",
        "_in_force.lock()",
        "configuration.reset(); print(configuration.current().quiet)",
        "False",
    ),
    "lists allocators": Case(
        "from allotment.registry import _current",
        "_current._lock()",
        "print('host' in [record.name for record in al.list_allocators()])",
        "True",
    ),
    "lists what is installed": Case(
        "from allotment import registry",
        "registry.current()._lock()",
        "print('host' in [record.name for record in al.list_allocators()])",
        "True",
    ),
    "registers an allocator": Case(
        "from allotment import registry\nfrom allotment.host_allocator import HostAllocator\nal.list_allocators()",
        "registry.current()._lock()",
        "print(al.register_allocator('mine', HostAllocator).name)",
        "mine",
    ),
    "loads a plugin": Case(
        "from allotment import registry\nregistry.current().get('host')\n[lock] = registry.current()._loading.values()",
        "lock()",
        "print(registry.current().get('host').name)",
        "host",
    ),
    "looks for observers": Case(
        "from allotment import registry",
        "registry.current().hooks._lock()",
        "print(al.empty(8, 'uint8', 'cpu').nbytes)",
        "8",
    ),
    "looks for layers": Case(
        "from allotment import registry",
        "registry.current().layers._lock()",
        "print(len(al.list_plugins()))",
        "4",
    ),
    "says which libraries draw from Allotment": Case(
        "from allotment.bridges._installation import installations",
        "installations._lock()",
        "al.status(); print('told')",
        "told",
    ),
    "chooses a platform": Case(
        "from allotment.platform._choice import _choice",
        "_choice._lock()",
        "al.init('host', quiet=True); print(al.get_device())",
        "cpu",
    ),
    "finds a device": Case(
        "from allotment import device",
        "device._lock()",
        "print(al.get_device('cpu'))",
        "cpu",
    ),
    "chooses an allocator": Case(
        "from allotment import selection",
        "selection._lock()",
        "print(al.empty(8, 'uint8', 'cpu').nbytes)",
        "8",
    ),
    "measures": Case(
        "from allotment.layers.measure import meter",
        "meter.lock()",
        """
        with al.measure() as step:
            al.empty(8, 'uint8', 'cpu')
        print(step.peak)
        """,
        "8",
    ),
    "measures as the first": Case(
        "from allotment.layers.measure import meter",
        "meter._opening()",
        """
        with al.measure() as step:
            al.empty(8, 'uint8', 'cpu')
        print(step.peak)
        """,
        "8",
    ),
    "measures beside others that look on": Case(
        "from allotment.layers.onlookers import onlookers\nal.empty(8, 'uint8', 'cpu')",
        "onlookers.lock()",
        """
        with al.measure() as step:
            al.empty(8, 'uint8', 'cpu')
        print(step.peak)
        """,
        "8",
    ),
    "allocates while its parent records": Case(
        "from allotment.layers.recorder import _of_this_process\nscope = al.record('trace')\nscope.__enter__()\n"
        "[recorder] = _of_this_process",
        "recorder._lock()",
        "print(al.empty(8, 'uint8', 'cpu').nbytes)",
        "8",
    ),
    "begins to serve": Case(
        "from allotment.serving import _service",
        "_service.guard()",
        """
        with _service.guard():
            print('guarded')
        """,
        "guarded",
    ),
    "allocates without an interpreter lock": Case(
        "from allotment.host_allocator import HostAllocator\nfrom allotment.layers.account import LockedAccount\n"
        "account = LockedAccount(HostAllocator(), al.get_device('cpu'), 'locked')",
        "account._lock()",
        "account.deallocate(account.allocate(8), 8); print(account.statistics().frees)",
        "1",
    ),
    "keeps a limit without an interpreter lock": Case(
        "from allotment.layers.limit import LockedBudget\nbudget = LockedBudget()",
        "budget._lock()",
        "print(budget.take(8, 10))",
        "True",
    ),
    "allocates behind guards": Case(
        "account = al.get_allocator('host', 'cpu', layers=['guard'])",
        "account.layers[0]._lock()",
        "account.deallocate(account.allocate(8), 8); print(account.statistics().frees)",
        "1",
    ),
    "begins a trace": Case(
        "from allotment.layers.trace import shared_recorders",
        "shared_recorders._lock()",
        "print(al.get_allocator('host', 'cpu', layers=[{'trace': {'path': 'child'}}]).name)",
        "host",
    ),
    "launches": Case(
        "from allotment.launching._launch import _mode\narray = al.zeros(2, device='cpu')\n"
        "def fill(array): array[:] = 1",
        "_mode._lock()",
        "al.launch(fill, 2, outputs=[array], device='cpu'); print(array.numpy().tolist())",
        "[1.0, 1.0]",
    ),
    "forgets warnings": Case(
        "from allotment.access._launch_check import warned_patterns",
        "warned_patterns._lock()",
        "al.reset_access_warnings(); print(len(warned_patterns))",
        "0",
    ),
    "enters a scope of grants": Case(
        "from allotment import grants\nal.get_device('cpu')",
        "grants._entered_lock()",
        """
        with al.ScopedPeerAccess('cpu', 'cpu', False):
            print('entered')
        """,
        "entered",
    ),
    "launches a graph of the host": Case(
        "with al.ScopedCapture('cpu') as capture: array = al.zeros(2, device='cpu')\ngraph = capture.graph",
        "graph._lock()",
        "al.capture_launch(graph); print(graph.launches)",
        "1",
    ),
    "captures work of the host": Case(
        "al.get_device('cpu')",
        "al.get_device('cpu').captures.lock()",
        "with al.ScopedCapture('cpu') as capture: array = al.zeros(2, device='cpu')\nprint(capture.graph.launches)",
        "0",
    ),
    "allocates in a capture of the host": Case(
        "scope = al.ScopedCapture('cpu')\nscope.__enter__()\n[capture] = al.get_device('cpu').captures.on_host",
        "capture._lock()",
        "print(al.empty(8, 'uint8', 'cpu').nbytes)",
        "8",
    ),
    "drops an array of a graph of the host": Case(
        "with al.ScopedCapture('cpu') as capture: array = al.empty(2, device='cpu')\naccount = array.account",
        "account.graph_blocks._lock()",
        "del array; print('dropped')",
        "dropped",
    ),
    "is refused memory of another process": Case(
        "from allotment import ipc\nal.init('sim:h200', quiet=True)\ndevice = al.get_device()\ndevice.is_ipc_supported",
        "ipc._exchange_of(device)._lock()",
        """
        try:
            al.from_ipc_handle(bytes(64))
        except al.ForkedProcessError:
            print('refused')
        """,
        "refused",
    ),
    "leaves a simulation": Case(
        "simulation = al.simulate('h200')\nsim = simulation.__enter__()\nal.zeros(2)",
        "sim._journal.lock()",
        "sim.close(); print('left')",
        "left",
    ),
}


@needs_fork
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_child_goes_on_although_a_thread_of_its_parent_held_a_lock(output_of, case):
    work = indent(dedent(case.work).strip(), "    ")
    script = FORKED.format(setup=case.setup, lock=case.lock, work=work)

    assert output_of(script, IGNORED) == [case.answer]


SHORT = """
import os, threading
from allotment._locks import RenewedLock
lock = RenewedLock()

def can_take():
    taken = []
    thread = threading.Thread(target=lambda: taken.append(lock().acquire(timeout=5)), daemon=True)
    thread.start()
    thread.join()
    return taken[0]
"""


@needs_fork
def test_the_thread_that_forks_under_a_lock_holds_it_in_the_child_until_it_lets_go(output_of):
    script = SHORT.replace("timeout=5", "timeout=0.01") + dedent("""
        with lock():
            child = os.fork()
            if not child:
                print(can_take())
        if not child:
            print(can_take(), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
    """)

    assert output_of(script, IGNORED) == ["False", "True"]


@needs_fork
def test_the_child_of_a_child_can_take_a_lock_too(output_of):
    work = """
    lock().acquire()
    child = os.fork()
    if not child:
        lock().release()
        print("free")
    else:
        os.waitpid(child, 0)
    """
    setup = "from allotment._locks import RenewedLock\nlock = RenewedLock()"
    script = FORKED.format(setup=setup, lock="lock()", work=work)

    assert output_of(script, IGNORED) == ["free"]


@needs_fork
def test_a_child_with_locks_is_no_forked_user_of_a_gpu(output_of):
    script = SHORT + dedent("""
        from allotment import _process
        with lock(): pass
        child = os.fork()
        if not child:
            print(_process.is_running(), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
    """)

    assert output_of(script, IGNORED) == ["True"]


def test_nothing_is_installed_for_a_lock_before_its_first_use(output_of):
    script = """
    import os
    from allotment import _process, selection
    print(_process._lifecycle._is_watching_forks)
    with selection._lock(): pass
    print(_process._lifecycle._is_watching_forks, _process._lifecycle._is_watching_end)
    """

    assert output_of(script) == ["False", "True False"]


def test_a_thread_may_hold_a_lock_twice():
    lock = RenewedLock()
    with lock(), lock():
        assert lock().acquire(blocking=False)
        lock().release()


def test_a_lock_keeps_other_threads_out():
    lock, entered = RenewedLock(), Event()

    def enter() -> None:
        with lock():
            entered.set()

    thread = Thread(target=enter)
    with lock():
        thread.start()
        assert not entered.wait(0.01)
    thread.join()
    assert entered.is_set()


def test_a_lock_that_was_used_is_not_kept_alive():
    lock = RenewedLock()
    with lock():
        pass
    reference = weakref.ref(lock)
    del lock
    gc.collect()

    assert reference() is None


def test_a_property_without_a_lock_is_still_found_once():
    found: list[int] = []

    @without_property_locks
    class Place:
        @cached_property
        def size(self) -> int:
            found.append(1)
            return 5

    place = Place()
    assert (place.size, place.size, found) == (5, 5, [1])
