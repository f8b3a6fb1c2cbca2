"""Stream capture beyond the recorded cases: what `tests/truth` does not ask."""

from threading import Thread

import numpy as np
import pytest

from allotment.errors import PlatformError
from allotment.platform import CaptureMode, CaptureStatus, StridedMemory

KIB = 2**10
STRICT = (CaptureMode.GLOBAL, CaptureMode.THREAD_LOCAL)


@pytest.fixture
def stream(platform):
    return platform.create_stream(0, non_blocking=True, priority=0)


@pytest.fixture
def other(platform):
    return platform.create_stream(0, non_blocking=True, priority=0)


@pytest.fixture
def memory(platform):
    """1 KiB of device 0, all zeros."""
    ptr = platform.malloc(KIB)
    platform.fill(ptr, 0, KIB, 0, 0)
    return ptr


def run(platform, graph, stream):
    executable = platform.instantiate_graph(graph)
    platform.launch_graph(executable, stream, 0)
    platform.synchronize_stream(stream, 0)
    return executable


def test_captured_work_is_done_at_each_launch_and_not_before(platform, read, stream, memory):
    platform.begin_capture(stream, 0, CaptureMode.GLOBAL)
    platform.fill(memory, 5, KIB, stream, 0)
    graph = platform.end_capture(stream, 0)
    assert not read(memory, KIB).any()
    executable = run(platform, graph, stream)
    assert (read(memory, KIB) == 5).all()
    platform.fill(memory, 1, KIB, 0, 0)
    platform.launch_graph(executable, stream, 0)
    assert (read(memory, KIB) == 5).all()


def test_a_captured_copy_reads_what_is_there_at_the_launch(platform, read, stream, memory):
    data = np.full(KIB, 1, np.uint8)
    platform.begin_capture(stream, 0, CaptureMode.GLOBAL)
    platform.copy(memory, data.ctypes.data, KIB, stream, 0)
    graph = platform.end_capture(stream, 0)
    data[:] = 8
    run(platform, graph, stream)
    assert (read(memory, KIB) == 8).all()


def test_captured_kernels_of_elements_are_done_at_the_launch(platform, read, stream, memory):
    every_second = StridedMemory(memory, (16,), (8,), np.dtype(np.int32), 0, None)
    next_to_it = StridedMemory(memory + 4, (16,), (8,), np.dtype(np.int32), 0, None)
    platform.begin_capture(stream, 0, CaptureMode.GLOBAL)
    platform.fill_elements(every_second, np.int32(3), stream, 0)
    platform.copy_elements(next_to_it, every_second, stream, 0)
    run(platform, platform.end_capture(stream, 0), stream)
    assert (read(memory, 128).view(np.int32) == 3).all()


def test_a_launch_waits_for_the_work_before_it(platform, read, stream, memory):
    platform.begin_capture(stream, 0, CaptureMode.GLOBAL)
    platform.fill(memory, 5, KIB, stream, 0)
    executable = platform.instantiate_graph(platform.end_capture(stream, 0))
    platform.hold(stream)
    platform.fill(memory, 2, KIB, stream, 0)
    platform.launch_graph(executable, stream, 0)
    assert not read(memory, KIB).any()
    platform.release(stream)
    assert (read(memory, KIB) == 5).all()


def test_a_graph_faults_at_the_launch_where_memory_is_gone_by_then(platform, stream, memory):
    platform.begin_capture(stream, 0, CaptureMode.GLOBAL)
    platform.fill(memory, 5, KIB, stream, 0)
    graph = platform.end_capture(stream, 0)
    platform.free(memory)
    executable = platform.instantiate_graph(graph)
    platform.launch_graph(executable, stream, 0)
    with pytest.raises(PlatformError, match="cudaErrorIllegalAddress"):
        platform.synchronize_stream(stream, 0)


def test_memory_may_be_freed_behind_a_launch_that_is_not_done(platform, stream):
    pool = platform.default_pool(0)
    ptr = platform.malloc_from_pool(KIB, pool, stream)
    platform.begin_capture(stream, 0, CaptureMode.RELAXED)
    platform.fill(ptr, 5, KIB, stream, 0)
    executable = platform.instantiate_graph(platform.end_capture(stream, 0))
    with platform.delayed(stream):
        platform.launch_graph(executable, stream, 0)
        platform.free_async(ptr, stream)
    platform.synchronize_stream(stream, 0)


def test_streams_fork_and_join_and_their_work_is_done_in_an_order_that_this_allows(platform, stream, other):
    done = []
    platform.begin_capture(stream, 0, CaptureMode.GLOBAL)
    platform.launch(lambda: done.append("first"), stream, 0)
    platform.wait_for_stream(other, stream, 0, 0)
    platform.launch(lambda: done.append("forked"), other, 0)
    platform.wait_for_stream(stream, other, 0, 0)
    platform.launch(lambda: done.append("joined"), stream, 0)
    graph = platform.end_capture(stream, 0)
    assert platform.capture_status(other, 0) is CaptureStatus.NONE
    run(platform, graph, stream)
    assert done == ["first", "forked", "joined"]


def test_a_stream_that_joined_and_got_no_work_need_not_come_back(platform, stream, other):
    platform.begin_capture(stream, 0, CaptureMode.GLOBAL)
    platform.launch(lambda: None, stream, 0)
    platform.wait_for_stream(other, stream, 0, 0)
    platform.end_capture(stream, 0)


def test_a_stream_of_another_device_joins(platform, read, stream):
    far, ptr = platform.create_stream(1, non_blocking=True, priority=0), 0
    platform.set_current_device(1)
    ptr = platform.malloc(KIB)
    platform.begin_capture(stream, 0, CaptureMode.GLOBAL)
    platform.wait_for_stream(far, stream, 1, 0)
    platform.fill(ptr, 6, KIB, far, 1)
    platform.wait_for_stream(stream, far, 0, 1)
    run(platform, platform.end_capture(stream, 0), stream)
    assert (read(ptr, KIB) == 6).all()


def test_two_captures_cannot_be_merged(platform, stream, other):
    platform.begin_capture(stream, 0, CaptureMode.GLOBAL)
    platform.begin_capture(other, 0, CaptureMode.GLOBAL)
    with pytest.raises(PlatformError, match="cudaErrorStreamCaptureMerge"):
        platform.wait_for_stream(stream, other, 0, 0)
    assert platform.capture_status(stream, 0) is CaptureStatus.INVALIDATED
    assert platform.capture_status(other, 0) is CaptureStatus.INVALIDATED


def test_a_capture_ends_on_the_stream_on_which_it_began(platform, stream, other):
    platform.begin_capture(stream, 0, CaptureMode.GLOBAL)
    platform.wait_for_stream(other, stream, 0, 0)
    with pytest.raises(PlatformError, match="cudaErrorStreamCaptureUnmatched"):
        platform.end_capture(other, 0)
    with pytest.raises(PlatformError, match="cudaErrorStreamCaptureInvalidated"):
        platform.end_capture(stream, 0)


def test_an_event_of_a_capture_that_is_over_marks_nothing_that_can_be_waited_for(platform, stream, other):
    event = platform.create_event(0)
    platform.begin_capture(stream, 0, CaptureMode.GLOBAL)
    platform.record_event(event, stream, 0)
    platform.end_capture(stream, 0)
    for wait in (
        lambda: platform.wait_for_event(event, other, 0),
        lambda: platform.event_is_done(event),
        lambda: platform.synchronize_event(event),
    ):
        with pytest.raises(PlatformError, match="cudaErrorCapturedEvent"):
            wait()
    platform.record_event(event, stream, 0)
    assert platform.event_is_done(event)


def test_an_event_never_recorded_holds_no_capture_up(platform, stream):
    platform.begin_capture(stream, 0, CaptureMode.GLOBAL)
    platform.wait_for_event(platform.create_event(0), stream, 0)
    assert platform.capture_status(stream, 0) is CaptureStatus.ACTIVE


@pytest.mark.parametrize("mode", STRICT)
def test_a_capture_on_one_device_is_ended_by_waiting_for_another(platform, stream, mode):
    platform.begin_capture(stream, 0, mode)
    with pytest.raises(PlatformError, match="cudaErrorStreamCaptureUnsupported"):
        platform.synchronize_device(1)
    assert platform.capture_status(stream, 0) is CaptureStatus.INVALIDATED


def test_a_relaxed_capture_does_not_mind_waiting_for_another_device(platform, stream):
    platform.begin_capture(stream, 0, CaptureMode.RELAXED)
    platform.synchronize_device(1)
    assert platform.capture_status(stream, 0) is CaptureStatus.ACTIVE


def test_the_null_stream_of_another_device_works_while_a_blocking_stream_is_captured(platform):
    blocking = platform.create_stream(0, non_blocking=False, priority=0)
    platform.begin_capture(blocking, 0, CaptureMode.GLOBAL)
    platform.launch(lambda: None, 0, 1)
    with pytest.raises(PlatformError, match="cudaErrorStreamCaptureImplicit"):
        platform.launch(lambda: None, 0, 0)


def test_each_thread_has_a_capture_mode_of_its_own(platform):
    seen = []
    assert platform.exchange_capture_mode(CaptureMode.RELAXED) is CaptureMode.GLOBAL
    thread = Thread(target=lambda: seen.append(platform.exchange_capture_mode(CaptureMode.THREAD_LOCAL)))
    thread.start()
    thread.join()
    assert seen == [CaptureMode.GLOBAL]
    assert platform.exchange_capture_mode(CaptureMode.GLOBAL) is CaptureMode.RELAXED


def test_a_thread_that_minds_only_itself_still_minds_its_own_captures(platform, stream):
    platform.exchange_capture_mode(CaptureMode.THREAD_LOCAL)
    platform.begin_capture(stream, 0, CaptureMode.GLOBAL)
    with pytest.raises(PlatformError, match="cudaErrorStreamCaptureUnsupported"):
        platform.malloc(1)


def test_a_refused_call_leaves_the_memory_as_it_was(platform, stream, memory):
    free = platform.memory_info(0).free
    platform.begin_capture(stream, 0, CaptureMode.GLOBAL)
    with pytest.raises(PlatformError):
        platform.malloc(2**30)
    with pytest.raises(PlatformError):
        platform.free(memory)
    assert platform.memory_info(0).free == free
    assert platform.pointer_attributes(memory).nbytes == KIB


def test_a_capture_keeps_no_array_alive(platform, stream, memory):
    class Owner:
        deleted = []

        def __del__(self):
            self.deleted.append(True)

    platform.begin_capture(stream, 0, CaptureMode.GLOBAL)
    array = StridedMemory(memory, (4,), (4,), np.dtype(np.int32), 0, Owner())
    platform.fill_elements(array, np.int32(1), stream, 0)
    del array
    assert Owner.deleted == [True]
