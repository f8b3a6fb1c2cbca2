"""Streams: own and foreign, in force and closed, and the memory that is bound to them."""

from __future__ import annotations

import gc
import threading
import weakref
from types import SimpleNamespace

import pytest

import allotment as al
from allotment.stream import SupportsCudaStream


@pytest.fixture
def device(sim):
    return al.get_device("cuda:0")


def contents(sim, array):
    """Return what the memory holds now, without waiting for anything."""
    import numpy as np

    out = np.empty(array.shape, array.dtype)
    side = sim.create_stream(array.device.ordinal, non_blocking=True, priority=0)
    sim.copy(out.ctypes.data, array.ptr, array.nbytes, side, array.device.ordinal)
    sim.synchronize_stream(side, array.device.ordinal)
    return out.tolist()


# ---------------------------------------------------------------------------------------------------------------------
# Making and closing


def test_a_stream_belongs_to_a_device_and_has_a_handle(sim):
    stream = al.Stream("cuda:1", non_blocking=True, priority=-1)

    assert stream.device is al.get_device("cuda:1")
    assert stream.handle == stream.cuda_stream == sim.calls.named("create_stream")[0].result
    assert stream.__cuda_stream__() == (0, stream.handle)
    assert sim.calls.named("create_stream")[0].arguments == {"ordinal": 1, "non_blocking": True, "priority": -1}
    assert isinstance(stream, SupportsCudaStream)


def test_the_host_has_no_streams(sim):
    with pytest.raises(al.UnsupportedError, match="streams belong to CUDA devices"):
        al.Stream("cpu")
    with pytest.raises(al.UnsupportedError, match="streams belong to CUDA devices"):
        al.get_stream("cpu")
    with pytest.raises(al.UnsupportedError, match="streams belong to CUDA devices"):
        _ = al.get_device("cpu").stream


def test_a_stream_that_cannot_be_made_leaves_nothing_to_destroy(sim):
    sim.fail("create_stream", code="cudaErrorInvalidDevice")
    with pytest.raises(al.PlatformError, match="cudaErrorInvalidDevice"):
        al.Stream("cuda:0")
    gc.collect()

    assert sim.calls.named("destroy_stream") == []


def test_closing_waits_for_the_work_first(sim, device):
    stream, array = al.Stream(device), al.zeros(4)
    with al.ScopedStream(stream):
        sim.hold(stream.handle)
        array.fill_(7)
    stream.close()

    assert contents(sim, array) == [7.0] * 4
    assert [call.name for call in sim.calls.named("synchronize_stream", "destroy_stream")][:2] == [
        "synchronize_stream",
        "destroy_stream",
    ]


def test_a_closed_stream_reads_as_closed_and_closing_it_again_does_nothing(sim, device):
    stream = al.Stream(device)
    stream.close()
    sim.calls.clear()
    stream.close()

    assert stream.is_closed
    assert repr(stream) == "<Stream closed of 'cuda:0'>"
    assert len(sim.calls) == 0


@pytest.mark.parametrize(
    "use",
    [
        lambda stream: stream.cuda_stream,
        lambda stream: stream.__cuda_stream__(),
        lambda stream: stream.is_done,
        lambda stream: stream.synchronize(),
        lambda stream: al.synchronize_stream(stream),
        lambda stream: stream.wait_for(al.get_stream()),
        lambda stream: al.get_stream().wait_for(stream),
        lambda stream: al.set_stream(stream),
        lambda stream: al.ScopedStream(stream).__enter__(),
        lambda stream: al.ScopedStream(stream, sync_enter=False).__enter__(),
    ],
)
def test_using_a_closed_stream_is_refused_before_any_call(sim, device, use):
    stream = al.Stream(device)
    al.get_stream()
    stream.close()
    sim.calls.clear()
    with pytest.raises(al.ClosedError, match="this stream of 'cuda:0' was closed"):
        use(stream)

    assert [call.name for call in sim.calls if call.name != "current_device"] == []
    assert al.get_stream().handle == 0


def test_the_null_stream_is_open_although_its_handle_is_zero(sim, device):
    stream = al.get_stream(device)

    assert (stream.handle, stream.is_closed, stream.is_done) == (0, False, True)
    assert repr(stream) == "<Stream 0x0 of 'cuda:0'>"


def test_a_stream_that_is_closed_is_not_in_force_any_more(sim, device):
    stream = al.set_stream(al.Stream(device))
    stream.close()

    assert al.get_stream(device).handle == 0
    assert not al.get_stream(device).is_closed


def test_a_stream_cannot_be_closed_in_a_scope_that_sends_work_to_it(sim, device):
    stream = al.Stream(device)
    with al.ScopedStream(stream):
        with pytest.raises(al.UnsupportedError, match="while a ScopedStream sends work to it"):
            stream.close()
        assert al.get_stream() is stream
        al.zeros(4).fill_(1)
    stream.close()


def test_a_stream_that_nobody_holds_is_destroyed(sim, device):
    stream = al.Stream(device)
    handle = stream.handle
    del stream

    assert [call.arguments for call in sim.calls.named("destroy_stream")] == [{"stream": handle}]


def test_a_stream_that_cannot_be_destroyed_in_its_finaliser_warns(sim, device):
    stream = al.Stream(device)
    sim.fail("destroy_stream", code="cudaErrorIllegalAddress")
    with pytest.warns(al.AllotmentWarning, match=r"a stream of 'cuda:0' was not destroyed: .*cudaErrorIllegalAddress"):
        del stream


# ---------------------------------------------------------------------------------------------------------------------
# Streams of other libraries


class Foreign:
    """A stream of a library that follows the protocol."""

    def __init__(self, handle):
        self.handle = handle

    def __cuda_stream__(self):
        return (0, self.handle)


@pytest.fixture
def handle(sim):
    return sim.create_stream(1, non_blocking=False, priority=0)


@pytest.mark.parametrize(
    "wrap",
    [Foreign, lambda handle: SimpleNamespace(cuda_stream=handle), lambda handle: SimpleNamespace(ptr=handle), int],
    ids=["protocol", "as in PyTorch", "as in CuPy", "handle"],
)
def test_a_foreign_stream_is_wrapped_and_never_destroyed(sim, handle, wrap):
    stream = al.Stream.from_external(wrap(handle), "cuda:1")
    assert (stream.handle, str(stream.device)) == (handle, "cuda:1")
    stream.synchronize()
    stream.close()
    del stream

    assert sim.calls.named("destroy_stream") == []


def test_a_foreign_stream_is_kept_alive(sim, handle):
    foreign = Foreign(handle)
    watched = weakref.ref(foreign)
    stream = al.Stream.from_external(foreign, "cuda:1")
    del foreign
    assert watched() is not None
    del stream

    assert watched() is None


def test_wrapping_a_stream_of_ours_gives_it_back(sim, device):
    stream = al.Stream(device)

    assert al.Stream.from_external(stream) is stream


@pytest.mark.parametrize("wrong", [True, None, "0x10", 1.0, object(), SimpleNamespace(ptr="0x10")])
def test_what_is_no_stream_is_a_type_error(sim, wrong):
    with pytest.raises(TypeError, match="not a CUDA stream"):
        al.Stream.from_external(wrong, "cuda:0")


# ---------------------------------------------------------------------------------------------------------------------
# Which stream is in force


def test_work_goes_to_the_null_stream_at_first(sim):
    assert al.get_stream("cuda:1") is al.get_device("cuda:1").stream
    assert al.get_stream("cuda:1").handle == 0
    assert al.get_stream("cuda:1") is not al.get_stream("cuda:0")


def test_get_stream_without_a_device_is_about_the_device_that_is_current(sim):
    assert al.get_stream().device is al.get_device("cuda:0")
    sim.set_current_device(1)
    assert al.get_stream().device is al.get_device("cuda:1")


def test_set_stream_is_about_one_device_and_the_whole_process(sim):
    stream = al.set_stream(al.Stream("cuda:1"))
    seen = []
    thread = threading.Thread(target=lambda: seen.append(al.get_stream("cuda:1")))
    thread.start()
    thread.join()

    assert seen == [stream]
    assert al.get_stream("cuda:0").handle == 0


def test_a_scope_is_about_the_device_of_its_stream_and_the_running_thread(sim):
    stream, seen = al.Stream("cuda:1"), []
    with al.ScopedStream(stream) as entered:
        thread = threading.Thread(target=lambda: seen.append(al.get_stream("cuda:1").handle))
        thread.start()
        thread.join()
        assert entered is stream is al.get_stream("cuda:1")
        assert al.get_stream("cuda:0").handle == 0

    assert seen == [0]
    assert al.get_stream("cuda:1").handle == 0


def test_scopes_nest_are_entered_again_and_are_left_in_any_order(sim, device):
    one, two = al.Stream(device), al.Stream(device)
    first, second = al.ScopedStream(one), al.ScopedStream(two)
    with first, second, first:
        assert al.get_stream(device) is one
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert al.get_stream(device) is two
    second.__exit__(None, None, None)

    assert al.get_stream(device).handle == 0


def test_a_scope_of_a_foreign_stream_wraps_it(sim, handle):
    with al.ScopedStream(Foreign(handle), "cuda:1") as stream:
        assert al.get_stream("cuda:1") is stream
        assert stream.handle == handle


def test_a_scope_lets_its_stream_wait_for_the_work_before_it(sim, device):
    stream, array = al.Stream(device, non_blocking=True), al.zeros(4)
    with sim.delayed(0, 0):
        array.fill_(1)
        with al.ScopedStream(stream):
            array.fill_(2)
    al.synchronize()

    assert array.numpy().tolist() == [2.0] * 4


def test_a_scope_without_sync_enter_does_not_wait(sim, device):
    stream, array = al.Stream(device, non_blocking=True), al.zeros(4)
    with sim.delayed(0, 0):
        array.fill_(1)
        with al.ScopedStream(stream, sync_enter=False):
            array.fill_(2)
    al.synchronize()

    assert array.numpy().tolist() == [1.0] * 4


def test_a_scope_with_sync_exit_lets_later_work_wait_for_it(sim, device):
    stream, array = al.Stream(device, non_blocking=True), al.zeros(4)
    with al.ScopedStream(stream, sync_exit=True):
        sim.hold(stream.handle)
        array.fill_(1)
    array.fill_(2)
    sim.release(stream.handle)

    assert array.numpy().tolist() == [2.0] * 4


def test_wait_for_orders_streams_of_two_devices(sim):
    here, there = al.Stream("cuda:0"), al.Stream("cuda:1")
    array = al.zeros(4, device="cuda:0")
    sim.hold(there.handle)
    sim.launch(lambda: None, there.handle, 1)
    here.wait_for(there)
    with al.ScopedStream(here):
        array.fill_(5)
    assert (here.is_done, contents(sim, array)) == (False, [0.0] * 4)
    sim.release(there.handle)

    assert (here.is_done, contents(sim, array)) == (True, [5.0] * 4)


def test_synchronize_stream_waits_for_a_stream_or_for_that_of_a_device(sim, device):
    stream = al.Stream(device)
    sim.calls.clear()
    al.synchronize_stream(stream)
    with al.ScopedStream(stream):
        al.synchronize_stream(device)
        al.synchronize_stream()

    assert [call.arguments["stream"] for call in sim.calls.named("synchronize_stream")] == [stream.handle] * 3


# ---------------------------------------------------------------------------------------------------------------------
# Memory


def test_pool_memory_is_allocated_and_freed_on_the_stream_in_force_when_it_was_made(sim, device):
    stream = al.Stream(device)
    with al.ScopedStream(stream):
        array = al.empty(1000)
    ptr = array.ptr
    with al.ScopedStream(al.Stream(device)):
        del array

    assert sim.calls.named("malloc_from_pool")[0].arguments["stream"] == stream.handle
    assert [call.arguments for call in sim.calls.named("free_async")] == [{"ptr": ptr, "stream": stream.handle}]


def test_a_stream_lives_as_long_as_memory_that_is_bound_to_it(sim, device):
    stream = al.Stream(device)
    watched = weakref.ref(stream)
    with al.ScopedStream(stream):
        array = al.empty(1000)
    del stream
    assert watched() is not None
    assert sim.calls.named("destroy_stream") == []
    del array

    assert watched() is None
    assert [call.name for call in sim.calls.named("free_async", "destroy_stream")] == ["free_async", "destroy_stream"]


def test_memory_of_a_closed_stream_is_freed_on_the_null_stream(sim, device):
    stream = al.Stream(device)
    with al.ScopedStream(stream):
        array = al.empty(1000)
    stream.close()
    del array

    assert sim.calls.named("free_async")[0].arguments["stream"] == 0
    assert sim.calls.named("free_async")[0].error is None


def test_memory_in_use_by_delayed_work_is_not_handed_out_to_another_stream(sim, device):
    busy, other = al.Stream(device, non_blocking=True), al.Stream(device, non_blocking=True)
    with al.ScopedStream(busy):
        array = al.zeros(1000)
        sim.hold(busy.handle)
        array.fill_(1)
        used = array.ptr
        del array
    with al.ScopedStream(other):
        later = al.empty(1000)

    assert later.ptr != used


def test_memory_of_the_null_stream_is_freed_on_that_of_its_own_device(sim):
    """The null stream's handle means another stream under another device."""
    array = al.zeros(1000, device="cuda:1")
    used = array.ptr
    with sim.delayed(0, 1):
        array.fill_(1)
        del array
        with al.ScopedStream(al.Stream("cuda:1", non_blocking=True)):
            assert al.empty(1000, device="cuda:1").ptr != used

    freed = [call for call in sim.calls.named("free_async") if call.arguments["ptr"] == used]
    assert [call.device for call in freed] == [1]
    assert sim.contexts() == {1}
