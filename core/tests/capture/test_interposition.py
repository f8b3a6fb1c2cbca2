"""Allocators while graphs are captured: what becomes part of the graph, what is refused, and which frees wait."""

# ruff: noqa: PT031, SIM117 - what happens inside of blocks is what is tried here

from __future__ import annotations

import gc
import threading
import weakref

import pytest

import allotment as al

STRICT = [al.CaptureMode.GLOBAL, al.CaptureMode.THREAD_LOCAL]


@pytest.fixture(autouse=True)
def _nothing_left(nothing_left):
    """Hold for every test here."""


@pytest.fixture
def stop():
    """An event that is set when the test ends, however it ends."""
    event = threading.Event()
    yield event
    event.set()


def made_before(*names):
    """Return allocators of the first device by name, made now."""
    return [al.get_allocator(name, device="cuda:0") for name in names]


class Custom:
    """An allocator as a user would write one."""

    def __init__(self, sim):
        self.sim, self.calls = sim, []

    def allocate(self, size_in_bytes):
        self.calls.append("allocate")
        return self.sim.malloc(size_in_bytes)

    def deallocate(self, ptr, size_in_bytes):
        self.calls.append("deallocate")
        self.sim.free(ptr)


# Allocation inside


@pytest.mark.parametrize("mode", al.CaptureMode)
def test_the_address_of_an_array_made_inside_is_the_same_in_every_launch(sim, mode):
    with al.ScopedCapture(capture_mode=mode) as capture:
        array = al.full(8, 1.0)
    ptr = array.ptr
    for _ in range(5):
        capture.graph.launch()
        assert array.numpy().tolist() == [1.0] * 8
        array.fill_(9)
    assert array.ptr == ptr


def test_an_array_made_inside_can_be_read_after_the_first_launch_and_not_before(sim):
    with al.ScopedCapture() as capture:
        array = al.full((2, 4), 1.0)
    for early in (array, array[1:], array.T, array.reshape(8)):
        for use in (early.numpy, lambda a=early: al.copy(a, al.zeros(a.shape)), early.copy):
            with pytest.raises(al.CaptureError, match=r"no memory yet.*Launch the graph first"):
                use()
        with pytest.raises(al.CaptureError, match="no memory yet"):
            early.fill_(1)
        with pytest.raises(al.CaptureError, match="no memory yet"):
            _ = early.__cuda_array_interface__
        with pytest.raises(al.CaptureError, match="no memory yet"):
            early.__dlpack__(stream=1)

    capture.graph.launch()

    assert array.T[2:].numpy().tolist() == [[1.0, 1.0]] * 2


def test_the_kind_and_the_allocator_of_an_array_made_inside_are_those_of_the_pool(sim):
    pool = al.get_allocator("mempool", device="cuda:0")
    with al.ScopedCapture():
        array = al.empty(4)
        assert (array.memory_kind, array.allocator) == (al.MemoryKind.CUDA_MEMPOOL, pool)
        repr(array)
    repr(array)


def test_an_array_of_no_elements_is_no_part_of_a_graph(sim):
    al.zeros(1)
    with al.ScopedCapture() as capture:
        array = al.zeros((0, 3))
    assert (array.ptr, array.numpy().shape, capture.graph.owned_bytes) == (0, (0, 3), 0)


def test_nothing_is_asked_of_the_pool_to_allocate_inside(sim):
    al.zeros(1)
    sim.calls.clear()
    with al.ScopedCapture():
        al.zeros(1000)
    names = {call.name for call in sim.calls}

    assert names.isdisjoint({"pool_attribute", "set_pool_attribute", "pool_access", "trim_pool", "malloc"})


def test_a_free_inside_becomes_part_of_the_graph(sim):
    pool = al.get_allocator("mempool", device="cuda:0")
    with al.ScopedCapture() as capture:
        first = al.full(2**20, 1.0)
        ptr = first.ptr
        del first
        second = al.full(2**20, 2.0)
    assert second.ptr == ptr
    assert capture.graph.owned_bytes == second.nbytes
    assert pool.statistics().current == second.nbytes
    for _ in range(3):
        capture.graph.launch()
        assert second.numpy()[0] == 2.0


def test_arrays_that_follow_each_other_inside_cost_the_memory_of_one(sim):
    with al.ScopedCapture() as capture:
        for _ in range(3):
            al.empty(2**25)[0] = 1.0  # 256 MiB
    capture.graph.launch()
    assert sim.graph_memory(0).used_high == 2**28
    assert al.memory_stats("cuda:0")["cuda:0"]["mempool"].current == 0
    sim.trim_graph_memory(0)
    capture.graph.close()
    sim.trim_graph_memory(0)

    assert sim.graph_memory(0).reserved == 0


def test_an_array_is_freed_with_its_graph_where_another_thread_lets_go_of_it(sim):
    with al.ScopedCapture() as capture:
        box = [al.zeros(1000)]
        thread = threading.Thread(target=box.clear)
        thread.start()
        thread.join()
    assert capture.graph.owned_bytes == 8000
    capture.graph.launch()


def test_garbage_inside_is_freed_in_the_graph(sim):
    al.zeros(1)
    with al.ScopedCapture() as capture:
        cycle = [al.zeros(1000)]
        cycle.append(cycle)
        del cycle
        gc.collect()
        assert capture._capture is not None
    assert capture.graph.owned_bytes == 0
    capture.graph.launch()


# Frees of what was there before


@pytest.mark.parametrize("name", ["mempool", "default", "managed"])
@pytest.mark.parametrize("mode", STRICT)
def test_the_free_of_an_array_from_outside_waits_for_the_end(sim, name, mode):
    with al.ScopedAllocator("cuda:0", name):
        outside = al.zeros(1000)
    statistics = outside.account.statistics
    al.zeros(1)
    sim.calls.clear()
    with al.ScopedCapture(capture_mode=mode):
        del outside
        assert statistics().current == 0
        assert sim.calls.named("free", "free_async") == []
    freed = sim.calls.named("free", "free_async")

    assert [call.error for call in freed if call.name == ("free_async" if name == "mempool" else "free")] == [None]


def test_the_free_of_a_page_locked_array_waits_for_the_end(sim):
    outside = al.zeros(2**21, device="cpu", pinned=True)
    al.zeros(1)
    array = al.empty(2**21)
    with al.ScopedCapture() as capture:
        al.copy(array, outside)
        del outside
    capture.graph.launch()

    assert array.numpy()[0] == 0


def test_a_view_that_is_dropped_inside_frees_when_the_last_is_gone(sim):
    outside = al.zeros(1000)
    view = outside[10:]
    with al.ScopedCapture():
        del outside
        del view
        assert sim.calls.named("free_async") == []
    assert len(sim.calls.named("free_async")) == 1


@pytest.mark.parametrize("name", ["mempool", "default", "managed"])
def test_garbage_of_before_that_is_collected_inside_does_not_end_the_capture(sim, name):
    with al.ScopedAllocator("cuda:0", name):
        cycle = [al.zeros(1000), al.zeros(10)]
    cycle.append(cycle)
    gone = weakref.ref(cycle[0])
    array = al.zeros(4)
    with al.ScopedCapture() as capture:
        del cycle
        gc.collect()
        assert gone() is None
        array.fill_(1)
    capture.graph.launch()

    assert array.numpy().tolist() == [1.0] * 4


@pytest.mark.parametrize("mode", [al.CaptureMode.THREAD_LOCAL, al.CaptureMode.RELAXED])
@pytest.mark.parametrize("name", ["mempool", "default", "managed"])
def test_another_thread_allocates_and_frees_while_graphs_are_captured(sim, stop, name, mode):
    """Neither thread fails, and nothing of the other thread's is in a graph."""
    made_before("mempool", name)
    failures, rounds = [], threading.Semaphore(0)

    def work():
        stream = al.Stream("cuda:0", non_blocking=True)
        try:
            with al.ScopedStream(stream), al.ScopedAllocator("cuda:0", name):
                while not stop.is_set():
                    al.zeros(512)
                    rounds.release()
        except Exception as error:
            failures.append(error)
            rounds.release(100)

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(3):
        with al.ScopedCapture(capture_mode=mode) as capture:
            for _ in range(5):
                rounds.acquire(timeout=30)
            array = al.full(4, 5.0)
            for _ in range(5):
                rounds.acquire(timeout=30)
        capture.graph.launch()
        assert array.numpy().tolist() == [5.0] * 4
        assert capture.graph.owned_bytes == array.nbytes
    stop.set()
    thread.join()

    assert failures == []


def test_another_thread_allocates_and_frees_inside_a_global_capture(sim):
    """A call that is under way when such a capture begins may end it; those that come later do not."""
    made_before("mempool")
    failures = []

    def work():
        stream = al.Stream("cuda:0", non_blocking=True)
        try:
            with al.ScopedStream(stream):
                for _ in range(20):
                    al.zeros(512)
        except Exception as error:
            failures.append(error)

    with al.ScopedCapture(capture_mode=al.CaptureMode.GLOBAL) as capture:
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        array = al.full(4, 5.0)
        for thread in threads:
            thread.join()
    capture.graph.launch()

    assert failures == []
    assert array.numpy().tolist() == [5.0] * 4
    assert capture.graph.owned_bytes == array.nbytes


def test_a_thread_on_the_null_stream_is_told_what_would_end_the_capture_of_a_blocking_stream(sim):
    made_before("mempool")
    array = al.zeros(4)
    stream = al.Stream("cuda:0")
    errors = []

    def other():
        for work in (lambda: al.empty(4, device="cuda:0"), lambda: array.fill_(1)):
            try:
                work()
            except al.CaptureError as error:
                errors.append(str(error))

    with al.ScopedCapture(stream=stream) as capture:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    capture.graph.launch()

    assert len(errors) == 2
    assert all("work on the null stream would end the graph capture" in error for error in errors)
    sim.calls.clear()  # to find out, the platform was asked about the null stream


def test_an_array_of_another_graph_that_is_dropped_inside_is_freed_afterwards(sim):
    with al.ScopedCapture() as first:
        array = al.full(100, 1.0)
    first.graph.launch()
    del first
    gc.collect()
    other = al.zeros(4)
    sim.calls.clear()
    with al.ScopedCapture() as second:
        del array
        other.fill_(1)
        assert sim.calls.named("free_async") == []
    assert len(sim.calls.named("free_async")) == 1
    second.graph.launch()


def test_a_free_that_fails_afterwards_is_told_and_the_others_are_done(sim):
    outside = [al.zeros(1000), al.zeros(1000)]
    ptrs = [array.ptr for array in outside]
    with pytest.warns(al.FreeFailedWarning, match="waited for the end of a capture failed"):
        with al.ScopedCapture() as capture:
            outside.clear()
            sim.fail("free_async", code="cudaErrorUnknown")
    assert capture.graph is not None
    errors = [call.error for call in sim.calls.named("free_async")]
    assert sorted(map(str, errors)) == ["None", "cudaErrorUnknown"]
    lost = next(call for call in sim.calls.named("free_async") if call.error).arguments["ptr"]
    assert lost in ptrs
    sim.free_async(lost, 0)
    sim.calls.clear()


# Allocators that cannot be captured


@pytest.mark.parametrize("mode", STRICT)
@pytest.mark.parametrize("is_made_before", [True, False])
@pytest.mark.parametrize("name", ["default", "managed"])
def test_an_allocator_that_cannot_be_captured_refuses_before_the_driver_is_asked(sim, name, mode, is_made_before):
    prepared = al.full(4, 1.0)
    if is_made_before:
        made_before(name)
    with al.ScopedCapture(capture_mode=mode) as capture:
        sim.calls.clear()
        with pytest.raises(al.CaptureError) as raised, al.ScopedAllocator("cuda:0", name):
            al.empty(4)
        assert [call.name for call in sim.calls if call.name != "current_device"] == []
        prepared.fill_(2)
    for part in (f"allocator {name!r} cannot allocate on 'cuda:0'", "set_mempool_enabled('cuda:0', True)", "before it"):
        assert part in str(raised.value)
    capture.graph.launch()
    assert prepared.numpy().tolist() == [2.0] * 4

    with al.ScopedAllocator("cuda:0", name):
        assert al.full(4, 3.0).numpy().tolist() == [3.0] * 4


def test_with_pools_disabled_the_error_names_the_call_that_helps(sim):
    with al.ScopedMempool("cuda:0", False), al.ScopedCapture():
        with pytest.raises(al.CaptureError, match=r"set_mempool_enabled\('cuda:0', True\) before the capture begins"):
            al.empty(4)


def test_without_pools_the_error_says_that_only_arrays_of_before_can_be_used():
    with al.simulate("no-pools") as sim:
        array = al.zeros(4)
        with al.ScopedCapture() as capture:
            array.fill_(1)
            with pytest.raises(al.CaptureError, match="Allocate before the capture: 'cuda:0' does not support"):
                al.empty(4)
        capture.graph.launch()
        assert array.numpy().tolist() == [1.0] * 4
        assert [call for call in sim.calls if call.error] == []


def test_an_allocator_of_the_users_is_refused_unless_it_says_that_it_can_be_captured(sim):
    custom = Custom(sim)
    with al.ScopedAllocator("cuda:0", custom):
        before = al.full(4, 1.0)
        with al.ScopedCapture() as capture:
            with pytest.raises(al.CaptureError, match="allocator 'Custom' cannot allocate"):
                al.empty(4)
            before.fill_(2)
        capture.graph.launch()
        assert before.numpy().tolist() == [2.0] * 4
        del before
        al.empty(4)
    assert custom.calls == ["allocate", "deallocate"] * 2


def test_an_allocator_that_appears_inside_is_refused_too(sim):
    al.zeros(1)
    with al.ScopedCapture():
        custom = Custom(sim)
        with al.ScopedAllocator("cuda:0", custom), pytest.raises(al.CaptureError, match="'Custom'"):
            al.empty(4)
    assert custom.calls == []


def test_an_allocator_with_streams_that_says_it_can_be_captured_is_captured(sim):
    class Pool:
        traits = al.AllocatorTraits(memory_kind=al.MemoryKind.CUDA_MEMPOOL, stream_ordered=True, capturable=True)
        pool = sim.create_pool(0)

        def allocate(self, size_in_bytes):
            raise AssertionError

        def deallocate(self, ptr, size_in_bytes):
            raise AssertionError

        def allocate_on(self, size_in_bytes, stream):
            return sim.malloc_from_pool(size_in_bytes, self.pool, stream.handle)

        def deallocate_on(self, ptr, size_in_bytes, stream):
            sim.free_async(ptr, stream.handle)

    with al.ScopedAllocator("cuda:0", Pool()), al.ScopedCapture() as capture:
        array = al.full(4, 1.0)
    capture.graph.launch()
    assert array.numpy().tolist() == [1.0] * 4


@pytest.mark.parametrize("name", ["default", "managed"])
def test_a_relaxed_capture_lets_other_allocators_work_at_once(sim, name):
    made_before(name)
    with al.ScopedCapture(capture_mode=al.CaptureMode.RELAXED) as capture, al.ScopedAllocator("cuda:0", name):
        array = al.full(4, 1.0)
    assert capture.graph.owned_bytes == 0
    capture.graph.launch()
    assert array.numpy().tolist() == [1.0] * 4


@pytest.mark.parametrize("mode", [*al.CaptureMode])
def test_only_a_global_capture_refuses_them_in_other_threads(sim, mode):
    made_before("default")
    outcomes = []

    def allocate():
        with al.ScopedAllocator("cuda:0", "default"):
            try:
                al.empty(4, device="cuda:0")
                outcomes.append("done")
            except al.CaptureError:
                outcomes.append("refused")

    with al.ScopedCapture(capture_mode=mode):
        thread = threading.Thread(target=allocate)
        thread.start()
        thread.join()
    assert outcomes == ["refused" if mode is al.CaptureMode.GLOBAL else "done"]


@pytest.mark.parametrize("mode", al.CaptureMode)
def test_page_locked_arrays_can_be_made_and_dropped_inside(sim, mode):
    al.zeros(1)
    with al.ScopedCapture(capture_mode=mode) as capture:
        pinned = al.full(4, 3.0, device="cpu", pinned=True)
        array = al.empty(4)
        al.copy(array, pinned)
        del pinned
        al.empty(2**20, device="cpu", pinned=True)
    capture.graph.launch()
    assert array.numpy().tolist() == [3.0] * 4


def test_an_array_on_another_device_can_be_made_inside(sim):
    with al.ScopedCapture("cuda:0") as capture:
        other = al.full(4, 1.0, device="cuda:1")
        array = al.full(4, 2.0, device="cuda:0")
    assert other.numpy().tolist() == [1.0] * 4
    assert capture.graph.owned_bytes == array.nbytes
    capture.graph.launch()


@pytest.mark.parametrize("code", ["cudaErrorMemoryAllocation"])
def test_memory_that_is_not_to_be_had_inside_is_an_error_that_ends_no_capture(sim, code):
    al.zeros(1)
    with al.ScopedCapture() as capture:
        sim.fail("malloc_from_pool", code=code)
        sim.calls.clear()
        with pytest.raises(al.OutOfMemoryError):
            al.empty(2**20)
        assert sim.calls.named("free", "trim_pool", "pool_attribute", "synchronize_device") == []
        array = al.full(4, 1.0)
    capture.graph.launch()
    assert array.numpy().tolist() == [1.0] * 4
    sim.calls.clear()


# Accounts


def test_statistics_inside_ask_no_attribute_of_a_pool(sim):
    al.zeros(1)
    with al.ScopedCapture():
        array = al.zeros(1000)
        sim.calls.clear()
        figures = al.memory_stats()["cuda:0"]["mempool"]
        al.get_allocator("mempool", device="cuda:0").statistics()
        assert sim.calls.named("pool_attribute") == []
    assert (figures.current, figures.reserved) == (array.nbytes, array.nbytes)


@pytest.mark.parametrize("mode", STRICT)
def test_questions_to_the_pool_are_refused_inside_before_the_driver_is_asked(sim, mode):
    pool = al.get_allocator("mempool", device="cuda:0")
    al.get_mempool_used_mem_current("cuda:0")
    questions = [
        lambda: al.get_mempool_used_mem_current("cuda:0"),
        lambda: al.get_mempool_used_mem_high("cuda:0"),
        lambda: al.get_mempool_release_threshold("cuda:0"),
        lambda: al.set_mempool_release_threshold("cuda:0", 0),
        lambda: al.trim_mempool("cuda:0"),
        pool.reset_peak,
        pool.trim,
        pool.close,
        lambda: al.set_mempool_access_enabled("cuda:0", "cuda:1", True),
        lambda: al.set_peer_access_enabled("cuda:0", "cuda:1", True),
    ]
    with al.ScopedCapture(capture_mode=mode):
        sim.calls.clear()
        for question in questions:
            with pytest.raises(al.CaptureError, match="would end the graph capture"):
                question()
        assert {call.name for call in sim.calls} <= {"can_access_peer"}


def test_a_relaxed_capture_bears_questions_to_the_pool(sim):
    al.zeros(1)
    with al.ScopedCapture(capture_mode=al.CaptureMode.RELAXED) as capture:
        al.get_mempool_used_mem_current("cuda:0")
        al.set_mempool_release_threshold("cuda:0", 0.5)
        al.set_mempool_access_enabled("cuda:0", "cuda:1", True)
    capture.graph.launch()


# The hot path


@pytest.mark.parametrize("name", ["mempool", "default", "managed"])
def test_after_a_capture_calls_go_straight_to_the_allocator_again(sim, name, straight_calls):
    (account,) = made_before(name)
    before = straight_calls(account)
    with al.ScopedCapture():
        assert straight_calls(account) != before
    assert straight_calls(account) == before


@pytest.mark.parametrize("last", ["array", "graph"])
def test_while_a_graph_owns_memory_frees_go_by_way_of_it_and_then_straight_again(sim, last, straight_calls):
    (account,) = made_before("mempool")
    before = straight_calls(account)
    with al.ScopedCapture() as capture:
        array = al.zeros(4)
    capture.graph.launch()
    assert straight_calls(account) != before
    if last == "array":
        del capture
        gc.collect()
        del array
    else:
        del array
        capture.graph.close()

    assert straight_calls(account) == before
    assert account.statistics().live == 0


def test_the_ledger_refuses_inside_what_it_refuses_outside(sim):
    (account,) = made_before("mempool")
    with al.ScopedCapture():
        ptr = account.allocate(100)
        with pytest.raises(al.SizeMismatchError):
            account.deallocate(ptr, 99)
        with pytest.raises(al.InvalidPointerError):
            account.deallocate(ptr + 1, 100)
        account.deallocate(ptr, 100)
        with pytest.raises(al.InvalidPointerError):
            account.deallocate(ptr, 100)
