"""What waits and streams may do while graphs are captured."""

# ruff: noqa: PT012, SIM117 - what happens inside of blocks is what is tried here

from __future__ import annotations

import threading

import pytest

import allotment as al
from allotment import registry
from allotment.interchange import asarray
from allotment.platform import CaptureStatus

STRICT = [al.CaptureMode.GLOBAL, al.CaptureMode.THREAD_LOCAL]


@pytest.fixture(autouse=True)
def _nothing_left(nothing_left):
    """Hold for every test here."""


def in_thread(work):
    """Do work in another thread, and return what it raised."""
    raised = []

    def run():
        try:
            work()
        except al.CaptureError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised


# Waiting


@pytest.mark.parametrize("mode", al.CaptureMode)
def test_waiting_for_the_device_or_the_captured_stream_is_refused_before_the_driver_is_asked(sim, mode):
    al.zeros(1)
    with al.ScopedCapture("cuda:0", capture_mode=mode) as capture:
        stream = al.get_stream("cuda:0")
        sim.calls.clear()
        waits = [
            al.synchronize,
            lambda: al.synchronize_device("cuda:0"),
            lambda: al.synchronize_stream("cuda:0"),
            stream.synchronize,
            lambda: stream.is_done,
        ]
        for wait in waits:
            with pytest.raises(al.CaptureError, match=r"would end the graph capture on 'cuda:0'\. Wait after it"):
                wait()
        names = {call.name for call in sim.calls}
        assert names.isdisjoint({"synchronize_device", "synchronize_stream", "stream_is_done", "destroy_stream"})
    capture.graph.launch()


@pytest.mark.parametrize("mode", STRICT)
def test_waiting_for_other_streams_is_refused_in_strict_modes(sim, mode):
    other = al.Stream("cuda:0", non_blocking=True)
    with al.ScopedCapture(capture_mode=mode) as capture:
        for wait in (other.synchronize, lambda: other.is_done, lambda: al.synchronize_device("cuda:1")):
            with pytest.raises(al.CaptureError):
                wait()
    capture.graph.launch()


def test_a_relaxed_capture_bears_waiting_for_others(sim):
    other = al.Stream("cuda:0", non_blocking=True)
    al.zeros(1, device="cuda:1")
    with al.ScopedCapture("cuda:0", capture_mode=al.CaptureMode.RELAXED) as capture:
        other.synchronize()
        assert other.is_done
        al.synchronize_device("cuda:1")
    capture.graph.launch()


@pytest.mark.parametrize("mode", al.CaptureMode)
def test_another_thread_may_not_wait_for_the_captured_device_in_any_mode(sim, mode):
    al.zeros(1)
    with al.ScopedCapture("cuda:0", capture_mode=mode) as capture:
        assert len(in_thread(lambda: al.synchronize_device("cuda:0"))) == 1
    capture.graph.launch()


@pytest.mark.parametrize("mode", al.CaptureMode)
def test_another_thread_waits_for_its_own_stream_unless_the_capture_is_global(sim, mode):
    stream = al.Stream("cuda:0", non_blocking=True)
    with al.ScopedCapture(capture_mode=mode) as capture:
        refused = in_thread(stream.synchronize)
    capture.graph.launch()

    assert len(refused) == (mode is al.CaptureMode.GLOBAL)


def test_outside_of_captures_waiting_asks_nothing_more_of_the_platform(sim):
    stream = al.Stream("cuda:0")
    sim.calls.clear()
    stream.synchronize()
    al.Stream("cuda:0").wait_for(stream)

    assert sim.calls.named("capture_status", "exchange_capture_mode") == []


def test_a_stream_that_joined_cannot_be_closed_meanwhile(sim):
    other = al.Stream("cuda:0", non_blocking=True)
    with al.ScopedCapture() as capture:
        other.wait_for(al.get_stream("cuda:0"))
        with pytest.raises(al.CaptureError, match="would end the graph capture"):
            other.close()
    capture.graph.launch()
    other.close()


# Streams


def test_a_stream_in_scope_inside_joins_the_capture_and_comes_back(sim):
    other = al.Stream("cuda:0", non_blocking=True)
    array = al.zeros(4)
    with al.ScopedCapture() as capture:
        array.fill_(1)
        with al.ScopedStream(other, sync_exit=True):
            assert sim.capture_status(other.handle, 0) is CaptureStatus.ACTIVE
            array[:2] = 2.0
            mine = al.full(4, 3.0)
        array[:1] = 4.0
    assert array.numpy().tolist() == [0.0] * 4
    assert capture.graph.owned_bytes == mine.nbytes
    capture.graph.launch()

    assert array.numpy().tolist() == [4.0, 2.0, 1.0, 1.0]
    assert mine.numpy().tolist() == [3.0] * 4


def test_a_stream_that_joined_comes_back_at_the_end_by_itself(sim):
    other = al.Stream("cuda:0", non_blocking=True)
    array = al.zeros(4)
    with al.ScopedCapture() as capture, al.ScopedStream(other):
        array.fill_(2)
    capture.graph.launch()

    assert array.numpy().tolist() == [2.0] * 4
    assert sim.capture_status(other.handle, 0) is CaptureStatus.NONE


def test_memory_made_and_dropped_on_a_stream_that_joined_is_freed_there(sim):
    other = al.Stream("cuda:0", non_blocking=True)
    result = al.zeros(1000)
    with al.ScopedCapture() as capture:
        with al.ScopedStream(other, sync_exit=True):
            temporary = al.full(1000, 1.0)
            al.copy(result, temporary)
            sim.calls.clear()
            del temporary
            assert [call.arguments["stream"] for call in sim.calls.named("free_async")] == [other.handle]
    noise = []
    for value in range(10):
        capture.graph.launch()
        noise.append(al.full(1000, float(value)))
        assert result.numpy()[-1] == 1.0


def test_a_stream_that_another_library_let_join_is_covered(sim):
    other = al.Stream("cuda:0", non_blocking=True)
    with al.ScopedCapture() as capture:
        sim.wait_for_stream(other.handle, al.get_stream("cuda:0").handle, 0, 0)
        with al.ScopedStream(other, sync_enter=False):
            array = al.full(4, 1.0)
        sim.wait_for_stream(al.get_stream("cuda:0").handle, other.handle, 0, 0)
    assert capture.graph.owned_bytes == 32
    capture.graph.launch()

    assert array.numpy().tolist() == [1.0] * 4


def test_a_stream_that_another_library_let_join_and_does_not_bring_back_is_told(sim):
    other = al.Stream("cuda:0", non_blocking=True)
    array = al.zeros(4)
    with pytest.raises(al.CaptureError, match="a stream that joined it did not come back"), al.ScopedCapture():
        sim.wait_for_stream(other.handle, al.get_stream("cuda:0").handle, 0, 0)
        sim.fill(array.ptr, 1, 32, other.handle, 0)
    sim.calls.clear()


def test_a_captured_stream_cannot_wait_for_one_that_is_not(sim):
    other = al.Stream("cuda:0", non_blocking=True)
    with al.ScopedCapture() as capture:
        with pytest.raises(al.CaptureError, match="cannot wait for work outside of the capture"):
            al.get_stream("cuda:0").wait_for(other)
    capture.graph.launch()


def test_the_null_stream_cannot_wait_for_captured_work(sim):
    null = al.Stream.from_external(0, "cuda:0")
    with al.ScopedCapture() as capture:
        with pytest.raises(al.CaptureError, match="the null stream cannot wait for captured work"):
            null.wait_for(al.get_stream("cuda:0"))
        with pytest.raises(al.CaptureError, match="null stream"), al.ScopedStream(null):
            pass
    capture.graph.launch()


def test_streams_of_two_captures_cannot_wait_for_each_other(sim):
    with al.ScopedCapture("cuda:0") as first:
        one = al.get_stream("cuda:0")
        with al.ScopedCapture("cuda:1") as second:
            with pytest.raises(al.CaptureError, match="captured into two graphs"):
                al.get_stream("cuda:1").wait_for(one)
    first.graph.launch()
    second.graph.launch()


def test_streams_that_are_not_captured_wait_for_each_other_meanwhile(sim):
    one, other = al.Stream("cuda:0", non_blocking=True), al.Stream("cuda:0", non_blocking=True)
    with al.ScopedCapture() as capture:
        one.wait_for(other)
        assert sim.capture_status(one.handle, 0) is CaptureStatus.NONE
    capture.graph.launch()


# Interchange


def test_nobody_is_asked_to_wait_for_a_captured_stream(sim):
    array = al.zeros(4)
    with al.ScopedCapture() as capture:
        assert array.__cuda_array_interface__["stream"] is None
        taken = asarray(_Foreign(array.__cuda_array_interface__))
        taken.fill_(3)
    capture.graph.launch()

    assert array.numpy().tolist() == [3.0] * 4
    assert array.__cuda_array_interface__["stream"] == 1


def test_memory_of_a_producer_outside_is_refused_inside(sim):
    array = al.zeros(4)
    theirs = al.Stream("cuda:0")
    interface = array.__cuda_array_interface__ | {"stream": theirs.handle}
    with al.ScopedCapture() as capture:
        with pytest.raises(al.CaptureError, match="cannot wait for work outside"):
            asarray(_Foreign(interface))
    capture.graph.launch()


class _Foreign:
    def __init__(self, interface):
        self.__cuda_array_interface__ = interface


def test_whether_a_graph_is_captured_can_be_asked(sim):
    gpu, cpu = al.get_device("cuda:1"), al.get_device("cpu")
    with al.ScopedCapture("cuda:0"):
        assert (gpu.is_capturing, cpu.is_capturing) == (True, False)
    with al.ScopedCapture("cpu"):
        assert (gpu.is_capturing, cpu.is_capturing) == (False, True)


def test_a_capture_begins_where_no_allocator_of_the_device_is_installed(sim, monkeypatch):
    with monkeypatch.context() as patch, registry.use(registry.Registry()):
        patch.setattr("importlib.metadata.distributions", list)
        with al.ScopedCapture("cuda:0") as capture, pytest.raises(al.UnknownAllocatorError, match="'default'"):
            al.empty(8, device="cuda:0")

    assert capture.graph is not None
