"""Capturing by scope and by pairs of calls: what begins, what is refused, what a failure leaves behind."""

# ruff: noqa: PT012, SIM117 - what happens inside of blocks is what is tried here

from __future__ import annotations

import gc
import threading

import pytest

import allotment as al
from allotment.errors import PlatformError
from allotment.platform import CaptureStatus

MODES = list(al.CaptureMode)


@pytest.fixture(autouse=True)
def _nothing_left(nothing_left):
    """Hold for every test here."""


def test_work_inside_is_done_when_the_graph_is_launched(sim):
    array = al.zeros(4)
    with al.ScopedCapture() as capture:
        array.fill_(3)
        assert capture.active
    assert not capture.active
    assert array.numpy().tolist() == [0.0] * 4

    al.capture_launch(capture.graph)

    assert array.numpy().tolist() == [3.0] * 4


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_captures_and_allocates(sim, mode):
    with al.ScopedCapture(capture_mode=mode) as capture:
        array = al.full(4, 2.0)
    capture.graph.launch()

    assert array.numpy().tolist() == [2.0] * 4
    assert sim.calls.named("begin_capture")[0].arguments["mode"] is mode


def test_in_place_of_the_null_stream_a_stream_of_its_own_is_in_force(sim):
    assert al.get_stream("cuda:0").handle == 0
    with al.ScopedCapture("cuda:0"):
        inside = al.get_stream("cuda:0")
        assert sim.capture_status(inside.handle, 0) is CaptureStatus.ACTIVE

    assert al.get_stream("cuda:0").handle == 0


def test_a_stream_of_its_own_leaves_the_null_stream_usable_for_others(sim):
    array = al.zeros(4)
    with al.ScopedCapture(), al.ScopedStream(al.Stream.from_external(0, "cuda:0"), sync_enter=False):
        array.fill_(5)

    assert array.numpy().tolist() == [5.0] * 4


def test_a_stream_that_is_given_is_captured_and_in_force(sim):
    stream = al.Stream("cuda:1", non_blocking=True)
    with al.ScopedCapture(stream=stream) as capture:
        assert al.get_stream("cuda:1") is stream
        array = al.full(2, 1.0, device="cuda:1")
    capture.graph.launch()

    assert capture.graph.device is al.get_device("cuda:1")
    assert array.numpy().tolist() == [1.0, 1.0]


def test_a_stream_of_another_library_is_captured(sim):
    class Theirs:
        def __init__(self, handle):
            self.handle = handle

        def __cuda_stream__(self):
            return 0, self.handle

    handle = sim.create_stream(0, non_blocking=True, priority=0)
    array = al.zeros(2)
    with al.ScopedCapture("cuda:0", Theirs(handle)) as capture:
        array.fill_(1)
    capture.graph.launch()

    assert array.numpy().tolist() == [1.0, 1.0]


def test_a_stream_of_another_device_is_refused(sim):
    with pytest.raises(al.CaptureError, match="cannot be captured for 'cuda:0'"):
        al.ScopedCapture("cuda:0", al.Stream("cuda:1")).__enter__()


# Pairs of calls


def test_begin_and_end_work_as_the_scope_does(sim):
    al.capture_begin()
    array = al.full(3, 7.0)
    graph = al.capture_end()
    al.capture_launch(graph)

    assert array.numpy().tolist() == [7.0] * 3
    assert al.get_stream("cuda:0").handle == 0


def test_begin_and_end_name_the_stream(sim):
    stream = al.Stream("cuda:0")
    al.capture_begin(stream=stream, capture_mode=al.CaptureMode.RELAXED)
    with pytest.raises(al.CaptureError, match="no capture is under way on this stream of 'cuda:1'"):
        al.capture_end("cuda:1")

    assert isinstance(al.capture_end(stream=stream), al.Graph)


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_an_end_without_a_beginning_is_refused(sim, device):
    with pytest.raises(al.CaptureError, match="no capture is under way"):
        al.capture_end(device)


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_a_second_capture_inside_is_refused_and_the_first_goes_on(sim, device):
    with al.ScopedCapture(device) as outer:
        array = al.full(2, 1.0, device=device)
        with pytest.raises(al.CaptureError, match="under way already"):
            al.ScopedCapture(device).__enter__()
        with pytest.raises(al.CaptureError, match="under way already"):
            al.capture_begin(device)
        with pytest.raises(al.CaptureError, match="under way already"):
            outer.__enter__()
    outer.graph.launch()

    assert array.numpy().tolist() == [1.0, 1.0]


def test_a_scope_captures_again_when_it_is_entered_again(sim):
    capture = al.ScopedCapture()
    graphs = []
    for value in (1.0, 2.0):
        with capture:
            array = al.full(2, value)
        graphs.append(capture.graph)
        capture.graph.launch()
        assert array.numpy().tolist() == [value] * 2

    assert graphs[0] is not graphs[1]


def test_two_devices_are_captured_at_once_each_into_its_graph(sim):
    with al.ScopedCapture("cuda:0") as first:
        one = al.full(2, 1.0, device="cuda:0")
        with al.ScopedCapture("cuda:1") as second:
            two = al.full(3, 2.0, device="cuda:1")
            more = al.full(2, 3.0, device="cuda:0")
        late = al.full(2, 4.0, device="cuda:0")
    assert (first.graph.owned_bytes, second.graph.owned_bytes) == (48, 24)
    first.graph.launch()
    second.graph.launch()

    assert [array.numpy()[0] for array in (one, two, more, late)] == [1.0, 2.0, 3.0, 4.0]


def test_frees_wait_for_the_last_of_two_captures(sim):
    outside = al.zeros(1000)
    with al.ScopedCapture("cuda:0"):
        with al.ScopedCapture("cuda:1"):
            del outside
        assert sim.calls.named("free_async") == []

    assert len(sim.calls.named("free_async")) == 1


def test_two_threads_capture_at_once(sim):
    results, barrier = {}, threading.Barrier(2)

    def capture(value):
        stream = al.Stream("cuda:0", non_blocking=True)
        with al.ScopedCapture(stream=stream) as capture:
            barrier.wait()
            array = al.full(8, value)
            barrier.wait()
        barrier.wait()
        capture.graph.launch(stream)
        with al.ScopedStream(stream):
            results[value] = array.numpy().tolist(), capture.graph.owned_bytes

    threads = [threading.Thread(target=capture, args=(value,)) for value in (1.0, 2.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results == {value: ([value] * 8, 64) for value in (1.0, 2.0)}


# Failures


def test_an_exception_in_the_block_leaves_unchanged_and_nothing_is_kept(sim):
    al.zeros(1)
    before = sim.graph_memory(0)
    error = ValueError("from the block")
    with pytest.raises(ValueError, match="from the block") as raised, al.ScopedCapture() as capture:
        al.zeros(2**23)
        raise error
    assert raised.value is error
    assert error.__cause__ is None
    assert capture.graph is None
    del raised, error
    assert sim.graph_memory(0) == before
    assert al.memory_stats("cuda:0")["cuda:0"]["mempool"].current == 0

    with al.ScopedCapture() as again:
        array = al.full(2, 1.0)
    again.graph.launch()
    assert array.numpy().tolist() == [1.0, 1.0]


def test_an_exception_in_the_block_leaves_the_memory_of_others_alone(sim):
    outside = al.full(4, 1.0)
    with pytest.raises(KeyError), al.ScopedCapture():
        outside.fill_(2)
        raise KeyError
    assert outside.numpy().tolist() == [1.0] * 4


@pytest.mark.parametrize("mode", [al.CaptureMode.GLOBAL, al.CaptureMode.THREAD_LOCAL])
def test_a_call_that_ends_the_capture_is_told_at_its_end_and_arrays_of_it_have_no_memory(sim, mode):
    with pytest.raises(al.CaptureError, match="a call that it does not bear ended it") as raised:
        with al.ScopedCapture(capture_mode=mode) as capture:
            array = al.empty(4)
            view = array[1:]
            with pytest.raises(PlatformError):
                sim.malloc(100)  # as another library would
    assert raised.value.__cause__.code == "cudaErrorStreamCaptureInvalidated"
    assert capture.graph is None
    for void in (array, view):
        for use in (al.Array.numpy, str, al.Array.zero_, al.Array.copy):
            with pytest.raises(al.CaptureError, match="has no memory: the capture that made it failed"):
                use(void)
    sim.calls.clear()


def test_arrays_are_dropped_quietly_inside_a_capture_that_is_lost(sim):
    with pytest.raises(al.CaptureError), al.ScopedCapture():
        array = al.empty(4)
        with pytest.raises(PlatformError):
            sim.malloc(100)
        del array
        gc.collect()
    sim.calls.clear()


def test_an_array_of_a_lost_capture_does_not_stand_in_the_way_of_its_address(sim):
    void = []
    for _ in range(3):
        with pytest.raises(RuntimeError, match="lost"), al.ScopedCapture():
            void += [al.empty(100), al.empty(50)]
            raise RuntimeError("lost")
    with al.ScopedCapture() as capture:
        fresh = [al.full(100, 1.0), al.full(50, 2.0)]
    capture.graph.launch()
    assert {array.ptr for array in fresh}.isdisjoint(array.ptr for array in void)
    del void
    gc.collect()

    assert [array.numpy()[-1] for array in fresh] == [1.0, 2.0]


def test_the_failing_call_of_the_body_is_what_the_user_sees(sim):
    with pytest.raises(PlatformError, match="StreamCaptureUnsupported"), al.ScopedCapture():
        sim.set_pool_attribute(sim.default_pool(0), al.PoolAttribute.RELEASE_THRESHOLD, 0)
    sim.calls.clear()


def test_an_end_in_another_thread_gives_no_graph(sim):
    stream = al.Stream("cuda:0")
    al.capture_begin(stream=stream)
    errors = []

    def end():
        try:
            al.capture_end(stream=stream)
        except al.CaptureError as error:
            errors.append(str(error))

    thread = threading.Thread(target=end)
    thread.start()
    thread.join()
    al.set_stream(0, "cuda:0")

    assert len(errors) == 1
    assert "another thread" in errors[0]
    assert not al.get_device("cuda:0").is_capturing
    sim.calls.clear()


def test_a_capture_that_the_platform_refuses_to_begin_leaves_nothing(sim):
    al.zeros(1)
    sim.fail("begin_capture", code="cudaErrorUnknown")
    with pytest.raises(al.CaptureError, match="cannot be captured: cudaErrorUnknown"):
        al.ScopedCapture().__enter__()
    sim.calls.clear()
    assert not al.get_device("cuda:0").is_capturing


# Captures of other libraries


@pytest.fixture
def captured(sim):
    """A stream that another library captures."""
    al.zeros(1)
    stream = al.Stream("cuda:0", non_blocking=True)
    sim.begin_capture(stream.handle, 0, al.CaptureMode.GLOBAL)
    yield stream
    assert sim.capture_status(stream.handle, 0) is CaptureStatus.NONE


def launch(sim, stream, graph):
    executable = sim.instantiate_graph(graph)
    sim.launch_graph(executable, stream.handle, 0)
    sim.synchronize_stream(stream.handle, 0)
    sim.destroy_graph(graph)
    return executable


def test_arrays_join_a_capture_of_another_library(sim, captured):
    with al.ScopedCapture(stream=captured, external=True) as capture:
        array = al.full(4, 6.0)
    theirs = sim.end_capture(captured.handle, 0)
    with pytest.raises(al.CaptureError, match="has no memory yet"):
        array.numpy()

    executable = launch(sim, captured, theirs)

    assert array.numpy().tolist() == [6.0] * 4
    del array
    assert capture.graph.owned_bytes == 32
    del capture
    sim.destroy_graph_executable(executable)


def test_the_graph_of_another_library_is_not_ours_to_launch(sim, captured):
    with al.ScopedCapture(stream=captured, external=True) as capture:
        pass
    with pytest.raises(al.CaptureError, match="another library captured this graph"):
        capture.graph.launch()
    sim.destroy_graph(sim.end_capture(captured.handle, 0))


def test_memory_in_a_graph_of_another_library_that_is_never_launched_is_let_go_quietly(sim, captured):
    with al.ScopedCapture(stream=captured, external=True) as capture:
        array = al.empty(4)
    sim.destroy_graph(sim.end_capture(captured.handle, 0))
    del array, capture


def test_an_exception_leaves_the_capture_of_another_library_to_it(sim, captured):
    with pytest.raises(ValueError, match="body"), al.ScopedCapture(stream=captured, external=True):
        raise ValueError("body")
    assert sim.capture_status(captured.handle, 0) is CaptureStatus.ACTIVE
    sim.destroy_graph(sim.end_capture(captured.handle, 0))


def test_a_lost_capture_of_another_library_is_told(sim, captured):
    with pytest.raises(al.CaptureError, match="gave no graph"), al.ScopedCapture(stream=captured, external=True):
        with pytest.raises(PlatformError):
            sim.malloc(100)
    with pytest.raises(PlatformError):
        sim.end_capture(captured.handle, 0)
    sim.calls.clear()


def test_what_nobody_captures_is_no_external_capture(sim):
    for stream in (None, al.Stream("cuda:0")):
        with pytest.raises(al.CaptureError, match="external=True says that another library captures"):
            al.ScopedCapture("cuda:0", stream, external=True).__enter__()


def test_a_stream_that_another_library_captures_cannot_be_captured_again(sim, captured):
    with pytest.raises(al.CaptureError, match="cannot be captured: cudaErrorIllegalState"):
        al.capture_begin(stream=captured)
    sim.destroy_graph(sim.end_capture(captured.handle, 0))
    sim.calls.clear()


def test_streams_that_joined_come_back_to_the_capture_of_another_library(sim, captured):
    other = al.Stream("cuda:0", non_blocking=True)
    with al.ScopedCapture(stream=captured, external=True) as capture:
        array = al.empty(4)
        with al.ScopedStream(other):
            array.fill_(1)
    executable = launch(sim, captured, sim.end_capture(captured.handle, 0))

    assert array.numpy().tolist() == [1.0] * 4
    del array, capture
    sim.destroy_graph_executable(executable)
