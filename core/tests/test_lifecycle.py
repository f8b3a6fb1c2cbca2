"""How a process ends and what its children can do: each case in a Python of its own, on the simulated platform.

Every script marks the platform when the interpreter begins to exit. The mark comes before all that Allotment does then,
and the last thing that runs in the process prints how many calls came after it.
"""

from __future__ import annotations

import os
import sys
from textwrap import dedent

import pytest

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")

WATCHED = """
import atexit, sys
late = []
class Witness:
    # In a module that the interpreter clears after all others, it sees what the finalisers of these have called.
    def __init__(self, sim): self.sim, self.write = sim, sys.__stdout__.write
    def __del__(self):
        self.write("late calls: %d\\n" % sum(entry[-1] for entry in self.sim.calls.entries))
import allotment as al
al.init("sim:2xh200", quiet=True)
from allotment import platform
sim = platform.current()
sys.witness = Witness(sim)
"""
MARKED = """
atexit.register(sim.mark_shutdown)
"""


@pytest.fixture
def ends_well(output_of):
    """Return a function that runs a script to its end and checks that no call came after the end had begun."""

    def check(script, **environment):
        lines = output_of(WATCHED + dedent(script) + MARKED, **environment)
        assert lines[-1:] == ["late calls: 0"]
        return lines[:-1]

    return check


@pytest.fixture(params=["default", "mempool", "managed"])
def allocator(request):
    return request.param


def test_the_witness_sees_a_call_that_comes_too_late(output_of):
    lines = output_of(WATCHED + MARKED + "\natexit.register(lambda: None)\nsim.mark_shutdown()\nsim.device_count()\n")

    assert lines == ["late calls: 1"]


def test_an_array_in_a_global(ends_well, allocator):
    ends_well("x = al.zeros(100, device='cuda:1'); y = x[3:]", ALLOTMENT_ALLOCATOR=allocator)


def test_an_array_in_a_cycle(ends_well, allocator):
    ends_well(
        """
        class Node: pass
        node = Node(); node.itself, node.array = node, al.zeros(100)
        del node
        import gc; gc.disable()
        """,
        ALLOTMENT_ALLOCATOR=allocator,
    )


def test_an_array_in_a_cache(ends_well, allocator):
    ends_well(
        """
        import functools
        @functools.cache
        def made(n): return al.zeros(n)
        made(10), made(20)
        sys.modules["json.cached"] = made(30)
        import builtins; builtins.kept = made(40)
        """,
        ALLOTMENT_ALLOCATOR=allocator,
    )


@pytest.mark.parametrize("before", [True, False], ids=["registered before", "registered after"])
def test_arrays_dropped_in_an_exit_callback(output_of, before):
    """What was registered after the first use runs before Allotment ends, and may still free."""
    register = "import atexit; kept = []; atexit.register(kept.clear)\n"
    fill = "kept += [al.zeros(100), al.zeros(100, device='cuda:1')]\n"
    script = register + WATCHED + MARKED + fill if before else WATCHED + MARKED + register + fill

    assert output_of(script) == ["late calls: 0"]


def test_a_callback_that_runs_late_gets_a_typed_error_and_can_read_host_arrays(output_of):
    assert output_of(
        """
        import atexit
        def late():
            print(host.numpy().tolist(), host[1:].numpy().tolist())
            for device in ("cuda:0", "cpu"):
                try:
                    al.zeros(3, device=device)
                except al.ShuttingDownError as error:
                    print("refused:", str(error).partition(":")[0])
            print(al.memory_stats()["cuda:0"]["mempool"].current)
        atexit.register(late)
        import allotment as al
        al.init("sim:h200", quiet=True)
        host, array = al.full(2, 1.0, device="cpu"), al.zeros(4)
        """
    ) == ["[1.0, 1.0] [1.0]", *["refused: the interpreter is shutting down"] * 2, "32"]


def test_streams_left_open(ends_well):
    ends_well("""
        streams = [al.Stream("cuda:0"), al.Stream("cuda:1", non_blocking=True)]
        al.set_stream(streams[0])
        with al.ScopedStream(streams[1]):
            x = al.zeros(100, device="cuda:1")
        scope = al.ScopedStream(streams[0]); scope.__enter__()
        device = al.ScopedDevice("cuda:1"); device.__enter__()
        allocator = al.ScopedAllocator("cuda:1", "managed"); allocator.__enter__()
        y = al.zeros(100)
    """)


def test_pinned_arrays_with_copies_in_flight(ends_well):
    ends_well("""
        x = al.zeros(100, device="cpu", pinned=True)
        sim.hold(0, 0)
        y = al.empty(100, device="cuda:0")
        al.copy(y, x)
    """)


def test_arrays_that_outlive_a_simulation(ends_well):
    ends_well("""
        with al.simulate("2xh200") as inner:
            x = al.zeros(100, device="cuda:1")
        import gc; gc.collect()
        sys.witness.sim = inner
        atexit.register(inner.mark_shutdown)
    """)


def test_arrays_of_a_platform_that_was_replaced(ends_well):
    ends_well("""
        x = al.zeros(100, device="cuda:1")
        al.init("host", quiet=True)
        import gc; gc.collect()
    """)


def test_arrays_of_a_custom_allocator(ends_well):
    ends_well("""
        class Mine:
            def allocate(self, size): return sim.malloc(size)
            def deallocate(self, ptr, size): sim.free(ptr)
        al.set_cuda_allocator(Mine())
        x, y = al.zeros(100), al.zeros(100, device="cuda:1")
    """)


def test_a_generator_suspended_in_scopes(ends_well):
    ends_well("""
        def work():
            stream = al.ScopedStream(al.Stream("cuda:1"))
            with al.ScopedDevice("cuda:1"), al.ScopedAllocator("cuda:1", "managed"), stream:
                x = al.zeros(4)
                yield
        suspended = work(); next(suspended)
    """)


def test_finalisers_in_modules_that_have_lost_their_names(output_of):
    assert output_of("""
        import atexit, sys
        import allotment as al
        al.init("sim:2xh200", quiet=True)
        array, stream, host = al.zeros(100), al.Stream(), al.zeros(4, device="cpu")
        foreign = al.from_pointer(host.ptr, 4, device="cpu", owner=host, deleter=lambda ptr, nbytes: None)
        from allotment import _process
        atexit.unregister(_process._lifecycle.shut_down)
        _process._lifecycle.shut_down()
        for module in [m for name, m in sys.modules.items() if name.startswith("allotment")]:
            for name in [name for name in vars(module) if not name.startswith("__")]:
                vars(module)[name] = None
        del array, stream, foreign, host
        print("done")
    """) == ["done"]


def test_an_exception_that_ends_the_process_is_the_only_thing_said(run_script):
    done = run_script("""
        import allotment as al
        al.init("sim:h200", quiet=True)
        x = al.zeros(100)
        raise SystemExit(7)
    """)

    assert (done.returncode, done.stderr) == (7, "")


@pytest.mark.parametrize("name", ["default", "mempool"])
def test_daemon_threads_that_allocate_while_the_process_ends(run_script, name):
    for _ in range(3):
        done = run_script(
            """
            import sys, threading
            import allotment as al
            al.init("sim:2xh200", quiet=True)
            started = threading.Barrier(5)
            def work(device):
                array = al.zeros(64, device=device)
                started.wait()
                try:
                    while True:
                        array = al.empty(64, device=device)
                except al.ShuttingDownError:
                    pass
            for number in range(4):
                threading.Thread(target=work, args=(number % 2,), daemon=True).start()
            started.wait()
            """,
            timeout=30,
            ALLOTMENT_ALLOCATOR=name,
        )
        assert (done.returncode, done.stderr) == (0, "")


# ---------------------------------------------------------------------------------------------------------------------
# Children


CHILD_OF_A_USER = """
def in_child():
    import gc
    import allotment as al
    before = len(sim.calls)
    print(al.is_cuda_available(), flush=True)
    for use in (
        lambda: al.zeros(4, device="cuda:0"),
        lambda: al.empty(4),
        lambda: al.get_allocator("managed", "cuda:1").allocate(4),
        lambda: al.get_allocator("default", "cuda:1"),
        lambda: al.Stream("cuda:0"),
        lambda: al.get_device("cuda"),
        lambda: array.numpy(),
        lambda: al.get_device("cuda:0").memory_info,
        lambda: al.set_device("cuda:1"),
        lambda: al.get_mempool_used_mem_current("cuda:0"),
        lambda: stream.synchronize(),
        lambda: al.synchronize(),
        lambda: al.startup_report(),
    ):
        try:
            use()
        except al.ForkedProcessError as error:
            assert "spawn" in str(error)
        else:
            print("not refused", flush=True)
    print(al.full(3, 2.0, device="cpu").numpy().tolist(), host.numpy().tolist(), flush=True)
    globals().update(array=None, stream=None)
    gc.collect()
    print("calls:", len(sim.calls) - before, flush=True)
"""
EXPECTED_OF_CHILD = ["False", "[2.0, 2.0, 2.0] [1.0, 1.0]", "calls: 0"]
PARENT = """
print(array.numpy().tolist(), al.memory_stats()["cuda:0"]["mempool"].current, al.is_cuda_available())
"""
USER = """
import os, sys
import allotment as al
al.init("sim:2xh200", quiet=True)
from allotment import platform
sim = platform.current()
al.get_allocator("managed", "cuda:1")
array, stream, host = al.full(4, 3.0), al.Stream(), al.full(2, 1.0, device="cpu")
"""


@needs_fork
def test_a_forked_child_gets_a_typed_error_keeps_the_host_and_harms_nobody(output_of):
    lines = output_of(
        USER
        + CHILD_OF_A_USER
        + dedent("""
        child = os.fork()
        if child == 0:
            in_child()
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        """)
        + PARENT
    )

    assert lines == [*EXPECTED_OF_CHILD, "[3.0, 3.0, 3.0, 3.0] 32 True"]


@needs_fork
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python warns of any fork beside threads")
def test_a_child_of_multiprocessing_is_treated_alike(output_of):
    lines = output_of(
        USER
        + CHILD_OF_A_USER
        + dedent("""
        import multiprocessing
        child = multiprocessing.get_context("fork").Process(target=in_child)
        child.start(); child.join()
        assert child.exitcode == 0
        """)
        + PARENT
    )

    assert lines == [*EXPECTED_OF_CHILD, "[3.0, 3.0, 3.0, 3.0] 32 True"]


@needs_fork
def test_leaving_a_scope_in_a_forked_child_says_nothing(output_of):
    assert output_of("""
        import os
        import allotment as al
        al.init("sim:2xh200", quiet=True)
        with al.ScopedDevice("cuda:1"), al.ScopedStream(al.Stream("cuda:1")), al.ScopedMempool("cuda:1", False):
            x = al.zeros(3)
            child = os.fork()
        if child:
            assert os.waitpid(child, 0)[1] == 0
        print("left", flush=True)
    """) == ["left", "left"]


@needs_fork
def test_a_child_may_simulate_anew(output_of):
    assert output_of("""
        import os
        import allotment as al
        with al.simulate("2xh200"):
            x = al.zeros(3)
            child = os.fork()
            if child == 0:
                with al.simulate("rtx4090"):
                    print(al.full(2, 5.0).numpy().tolist(), al.is_cuda_available(), flush=True)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    """) == ["[5.0, 5.0] True"]


@needs_fork
def test_after_an_import_alone_a_child_may_do_everything(output_of):
    assert output_of("""
        import os, sys
        import allotment as al
        child = os.fork()
        if child == 0:
            al.init("sim:2xh200", quiet=True)
            print(al.full(2, 1.0, device="cuda:1").numpy().tolist(), al.is_cuda_available(), flush=True)
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
    """) == ["[1.0, 1.0] True"]


@needs_fork
def test_on_the_host_alone_a_child_may_do_everything(output_of):
    assert output_of("""
        import os, sys
        import allotment as al
        al.init("host", quiet=True)
        inherited = al.full(2, 1.0)
        child = os.fork()
        if child == 0:
            freed = []
            made = al.full(2, 4.0)
            foreign = al.from_pointer(made.ptr, 2, device="cpu", deleter=lambda ptr, nbytes: freed.append(nbytes))
            inherited.fill_(2.0)
            print(inherited.numpy().tolist(), made.numpy().tolist(), foreign.numpy().tolist(), flush=True)
            del foreign, inherited
            print(freed, al.memory_stats()["cpu"]["host"].frees, flush=True)
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(inherited.numpy().tolist())
    """) == ["[2.0, 2.0] [4.0, 4.0] [4.0, 4.0]", "[16] 1", "[1.0, 1.0]"]


def test_an_initialisation_that_fails_is_no_fork_and_can_be_tried_again(output_of):
    assert output_of("""
        import allotment as al
        try:
            al.init("sim:missing", quiet=True)
        except al.PlatformUnavailableError as error:
            print("there is no such profile" in str(error))
        al.init("sim:h200", quiet=True)
        print(al.zeros(2).numpy().tolist())
    """) == ["True", "[0.0, 0.0]"]
