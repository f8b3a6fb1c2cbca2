"""The log of calls, failures on demand, and the shutdown mark."""

import gc
import threading
import weakref

import numpy as np
import pytest

from allotment.errors import PlatformError
from allotment.platform._values import PoolAttribute, StridedMemory


def test_a_call_is_logged_with_its_arguments_and_its_result(platform):
    ptr = platform.malloc(100)
    call = platform.calls[-1]
    assert (call.name, call.arguments, call.device, call.result, call.error) == (
        "malloc",
        {"nbytes": 100},
        0,
        ptr,
        None,
    )


def test_calls_are_counted_also_when_the_log_forgets_them(platform):
    before = platform.calls_made
    for _ in range(3):
        platform.free(platform.malloc(100))
    platform.calls.clear()

    assert platform.calls_made - before == 6


def test_calls_about_the_current_device_are_logged_and_not_counted(platform):
    before = platform.calls_made
    platform.set_current_device(platform.current_device())

    assert platform.calls_made == before
    assert [call.name for call in platform.calls][-2:] == ["current_device", "set_current_device"]


def test_a_call_that_fails_is_counted(platform):
    before = platform.calls_made
    with pytest.raises(PlatformError):
        platform.free(12345)

    assert platform.calls_made == before + 1


def test_keyword_arguments_are_logged_by_their_names(platform):
    platform.create_stream(1, non_blocking=True, priority=-1)
    assert platform.calls[-1].arguments == {"ordinal": 1, "non_blocking": True, "priority": -1}


def test_a_call_that_fails_is_logged_with_its_error(platform):
    with pytest.raises(PlatformError):
        platform.free(3)
    assert (platform.calls[-1].result, platform.calls[-1].error) == (None, "cudaErrorInvalidValue")


def test_the_log_tells_which_device_was_current(platform):
    platform.set_current_device(1)
    platform.malloc(1)
    assert [call.device for call in platform.calls.named("set_current_device", "malloc")] == [0, 1]


def test_the_log_can_be_cleared(platform):
    platform.malloc(1)
    platform.calls.clear()
    assert len(platform.calls) == 0


def test_the_log_keeps_no_owner_alive(platform):
    class Owner:
        pass

    owner = Owner()
    ptr = platform.malloc(4)
    memory = StridedMemory(ptr, (1,), (4,), np.dtype(np.float32), 0, owner)
    platform.fill_elements(memory, np.float32(0), 0, 0)
    gone = weakref.ref(owner)
    del owner, memory
    gc.collect()
    assert gone() is None
    assert platform.calls[-1].arguments["dst"].ptr == ptr


def test_the_log_is_bounded(platform):
    for _ in range(70_000):
        platform.device_count()
    assert len(platform.calls) == 65_536


def test_an_error_names_the_call_as_cuda_does(platform):
    with pytest.raises(PlatformError, match=r"^cudaFree failed: cudaErrorInvalidValue") as caught:
        platform.free(3)
    assert platform.error_from(caught.value) is caught.value
    assert platform.error_from(ValueError()) is None


def test_the_last_error_belongs_to_a_thread(platform):
    def fail():
        with pytest.raises(PlatformError):
            platform.free(3)

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    assert platform.peek_last_error() == "cudaSuccess"


def outcomes(platform, count):
    codes = []
    for _ in range(count):
        try:
            platform.malloc(1)
        except PlatformError as error:
            codes.append(error.code)
        else:
            codes.append(None)
    return codes


def test_the_next_call_of_a_kind_fails_on_demand(platform):
    platform.fail("malloc")
    platform.host_alloc(1)
    assert outcomes(platform, 2) == ["cudaErrorMemoryAllocation", None]


def test_the_nth_call_and_some_after_it_fail_on_demand(platform):
    platform.fail("malloc", nth=2, code="cudaErrorUnknown", times=2)
    assert outcomes(platform, 4) == [None, "cudaErrorUnknown", "cudaErrorUnknown", None]


def test_a_failure_on_demand_changes_nothing(platform):
    before = platform.memory_info(0)
    platform.fail("malloc")
    outcomes(platform, 1)
    assert platform.memory_info(0) == before


def test_only_calls_that_exist_can_fail(platform):
    with pytest.raises(ValueError, match="Did you mean 'malloc_managed'"):
        platform.fail("malloc_manged")
    with pytest.raises(ValueError, match="count from 1"):
        platform.fail("malloc", nth=0)


def test_calls_after_shutdown_are_marked(platform):
    platform.malloc(1)
    platform.mark_shutdown()
    platform.malloc(1)
    assert [call.after_shutdown for call in platform.calls.named("malloc")] == [False, True]


class Cycle:
    """A block that only the garbage collector frees."""

    def __init__(self, platform, pool):
        self.myself = self
        self.platform = platform
        self.ptr = platform.malloc_from_pool(3000, pool, 0)

    def __del__(self):
        self.platform.free_async(self.ptr, 0)


def test_frees_by_the_garbage_collector_in_the_middle_of_a_call_are_made_after_it(platform):
    pool = platform.create_pool(0)
    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(200):
            Cycle(platform, pool)
            platform.free(platform.malloc(100))
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    assert platform.pool_attribute(pool, PoolAttribute.USED_CURRENT) == 0
    assert {call.error for call in platform.calls} == {None}


def test_a_postponed_free_happens_under_the_device_that_was_current(platform):
    ptr = platform.malloc_from_pool(64, platform.default_pool(0), 0)
    platform._journal.busy = True  # as in the middle of another call
    platform.set_current_device(1)
    platform.free_async(ptr, 0)
    platform.set_current_device(0)
    assert platform._memory.allocations.at(ptr) is not None
    platform._journal.busy = False
    platform.device_count()
    assert platform.pointer_attributes(ptr).nbytes == 0
    assert [call.device for call in platform.calls.named("free_async")] == [1]


def test_work_on_a_stream_frees_at_once(platform):
    ptr, seen = platform.malloc(64), []

    def work():
        platform.free(ptr)
        seen.append(platform.pointer_attributes(ptr).nbytes)

    platform.launch(work, 0, 0)
    assert seen == [0]


def test_calls_after_the_mark_can_be_told_at_once(platform):
    told = []
    platform.malloc(1)
    platform.mark_shutdown(told.append)

    platform.free(platform.malloc(1))

    assert told == ["malloc", "free"]
    assert [call.name for call in platform.calls if call.after_shutdown] == told


def test_failures_that_did_not_come_yet_can_be_called_off(platform):
    platform.fail("malloc", times=3)
    with pytest.raises(PlatformError):
        platform.malloc(1)

    platform.stop_failing()

    assert platform.malloc(1) > 0
