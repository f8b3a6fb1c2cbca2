"""What a bridge draws from: booked, on the library's stream, and given back to whoever gave it."""

import gc
from contextlib import contextmanager
from weakref import ref

import pytest

import allotment as al
from allotment.errors import InvalidPointerError

NAMES = ["default", "mempool", "managed", "caching"]


@pytest.mark.parametrize("name", NAMES)
def test_a_block_is_booked_and_returns_to_its_allocator(sim, name):
    delivery = al.Delivery("library", name)
    ptr = delivery.allocate(1, 100, 0)
    account = al.get_allocator(name, "cuda:1")

    assert (account.statistics().current, delivery.is_live(ptr)) == (100, True)
    delivery.deallocate(ptr)
    assert (account.statistics().current, delivery.is_live(ptr)) == (0, False)


@pytest.mark.parametrize("name", ["mempool", "caching"])
def test_a_block_is_for_the_library_s_stream_whatever_is_in_force(sim, name):
    al.configure(layers=["track"])
    delivery, stream, other = al.Delivery("library", name), al.Stream("cuda:0"), al.Stream("cuda:0")
    with al.ScopedStream(other):
        ptr = delivery.allocate(0, 100, stream.handle)
        assert al.get_stream("cuda:0") is other
    (block,) = al.live_blocks()

    assert block.stream == stream.handle
    delivery.deallocate(ptr)


def test_no_bytes_are_no_block(sim):
    delivery = al.Delivery("library")

    assert delivery.allocate(0, 0, 0) == 0
    delivery.deallocate(0)


def test_a_block_is_freed_once(sim):
    delivery = al.Delivery("library")
    ptr = delivery.allocate(0, 100, 0)
    delivery.deallocate(ptr)

    with pytest.raises(InvalidPointerError, match="bridge to library"):
        delivery.deallocate(ptr)


def test_a_block_whose_free_fails_is_not_lost(sim):
    delivery = al.Delivery("library", "default")
    ptr = delivery.allocate(0, 100, 0)
    sim.fail("free")
    with pytest.raises(al.PlatformError):
        delivery.deallocate(ptr)
    delivery.deallocate(ptr)

    assert al.get_allocator("default", "cuda:0").statistics().current == 0


def test_a_request_that_cannot_be_met_is_out_of_memory(sim):
    with pytest.raises(al.OutOfMemoryError):
        al.Delivery("library").allocate(0, 2**50, 0)


def test_another_platform_has_other_devices():
    delivery = al.Delivery("library", "default")
    for _ in range(2):
        with al.simulate():
            delivery.deallocate(delivery.allocate(0, 100, 0))


@pytest.mark.parametrize(("allocator", "source"), [(None, "the allocator in force"), ("caching", "caching")])
def test_it_says_what_it_draws_from(allocator, source):
    assert al.Delivery("library", allocator).source == source


# Streams


class Owned:
    """A library's object of a stream."""

    def __init__(self, stream):
        self.stream = stream

    def __cuda_stream__(self):
        return 0, self.stream.handle


def owner_of(stream):
    owner = Owned(stream)
    return owner, ref(owner)


def test_the_owner_of_a_stream_is_kept_for_memory_on_it_and_no_longer(sim):
    delivery, device = al.Delivery("library", "mempool"), al.get_device("cuda:0")
    owner, alive = owner_of(al.Stream(device))
    ptr = delivery.account(device).allocate_on(100, delivery.stream(device, owner.stream.handle, owner))
    del owner
    delivery.stream(device, 0)
    gc.collect()
    assert alive() is not None
    delivery.account(device).deallocate(ptr, 100)
    gc.collect()

    assert alive() is None


def test_a_stream_is_the_same_object_while_somebody_has_it(sim):
    delivery, device = al.Delivery("library"), al.get_device("cuda:0")
    first, null = delivery.stream(device, 7), delivery.stream(device, 0)

    assert delivery.stream(device, 7) is first
    assert delivery.stream(device, 0) is null
    assert delivery.stream(al.get_device("cuda:1"), 0) is not null


# Given back by those who cannot be told of an error


def statistics(name="mempool"):
    return al.get_allocator(name, "cuda:0").statistics()


@pytest.mark.parametrize("name", NAMES)
def test_a_released_block_is_given_back(sim, name):
    delivery = al.Delivery("library", name)
    delivery.release(delivery.allocate(0, 100, 0))
    delivery.release(0)

    assert (statistics(name).current, statistics(name).frees) == (0, 1)


@pytest.mark.parametrize("name", ["mempool", "caching"])
def test_memory_that_another_stream_used_is_not_reused_before_its_work_is_done(sim, name):
    delivery, stream, other = al.Delivery("library", name), al.Stream("cuda:0"), al.Stream("cuda:0")
    ptr = delivery.allocate(0, 2**20, stream.handle)
    sim.hold(other.handle)
    delivery.release(ptr, other.handle)
    waits = sim.calls.named("wait_for_stream")

    assert [(call.arguments["waiting"], call.arguments["awaited"]) for call in waits] == [(stream.handle, other.handle)]
    sim.release(other.handle)


@pytest.mark.parametrize("handle", [0, 1, None])
def test_both_names_of_the_null_stream_are_one(sim, handle):
    delivery = al.Delivery("library", "mempool")
    delivery.release(delivery.allocate(0, 100, 0), handle)

    assert sim.calls.named("wait_for_stream") == []


def test_what_cannot_be_released_is_told_and_raises_nothing(sim, monkeypatch):
    told = []
    monkeypatch.setattr("sys.unraisablehook", told.append)
    al.Delivery("library").release(4096)

    assert [fact.exc_type for fact in told] == [InvalidPointerError]


def test_a_failed_release_is_told_and_the_block_stays_on_the_books(sim):
    delivery = al.Delivery("library", "default")
    ptr = delivery.allocate(0, 100, 0)
    sim.fail("free")
    with pytest.warns(al.FreeFailedWarning, match="100 bytes at .* given back to allocator 'default'"):
        delivery.release(ptr)

    assert statistics("default").current == 100


@pytest.fixture
def captured(sim):
    """Return a function under which a stream is captured that nobody told Allotment of."""

    @contextmanager
    def capture(stream):
        sim.begin_capture(stream.handle, 0, al.CaptureMode.RELAXED)
        yield
        sim.end_capture(stream.handle, 0)

    return capture


@pytest.mark.parametrize("non_blocking", [False, True])
@pytest.mark.parametrize("on_captured_stream", [False, True])
def test_a_block_waits_for_the_end_of_a_capture_that_nobody_told_us_of(captured, on_captured_stream, non_blocking):
    delivery, stream = al.Delivery("library", "mempool"), al.Stream("cuda:0", non_blocking=non_blocking)
    ptrs = [delivery.allocate(0, 100, stream.handle if on_captured_stream else 0) for _ in range(3)]
    with captured(stream):
        for ptr in ptrs:
            delivery.release(ptr)
        has_to_wait = on_captured_stream or not non_blocking
        assert statistics().current == (300 if has_to_wait else 0)
    delivery.give_back_kept()

    assert statistics().current == 0


def test_a_block_that_waited_in_vain_is_told(sim, captured):
    delivery, stream = al.Delivery("library", "mempool"), al.Stream("cuda:0")
    ptr = delivery.allocate(0, 100, stream.handle)
    with captured(stream):
        delivery.release(ptr)
    sim.fail("free_async")
    with pytest.warns(al.FreeFailedWarning):
        delivery.give_back_kept()

    assert statistics().current == 100


def test_what_waited_goes_back_in_the_course_of_later_calls(captured):
    delivery, stream = al.Delivery("library", "mempool"), al.Stream("cuda:0")
    ptr = delivery.allocate(0, 100, stream.handle)
    with captured(stream):
        delivery.release(ptr)
    delivery.release(delivery.allocate(0, 200, 0))

    assert statistics().current == 0


@pytest.mark.parametrize("name", ["default", "mempool", "managed"])
@pytest.mark.parametrize("mode", list(al.CaptureMode))
def test_a_free_of_other_memory_does_not_end_a_capture_that_nobody_told_us_of(sim, name, mode):
    delivery, stream = al.Delivery("library", name), al.Stream("cuda:0", non_blocking=True)
    other = al.Stream("cuda:0", non_blocking=True)
    ptr = delivery.allocate(0, 100, other.handle)
    sim.begin_capture(stream.handle, 0, mode)
    delivery.release(ptr)
    sim.end_capture(stream.handle, 0)

    assert statistics(name).current == 0


def marks(sim):
    return [call.arguments["stream"] for call in sim.calls if call.name == "record_event"]


@pytest.mark.parametrize(("name", "expected"), [("mempool", [0]), ("caching", [0]), ("default", []), ("managed", [])])
def test_memory_of_a_library_that_does_not_tell_its_streams_goes_back_after_all_work(sim, name, expected):
    delivery = al.Delivery("library", name)
    delivery.tells_streams = False
    delivery.release(delivery.allocate(0, 100, 0))

    assert (marks(sim), statistics(name).current) == (expected, 0)


def test_such_memory_waits_for_a_capture_that_a_mark_on_the_null_stream_would_end(sim, captured):
    delivery, stream, other = al.Delivery("library", "mempool"), al.Stream("cuda:0"), al.Stream("cuda:0")
    delivery.tells_streams = False
    ptr = delivery.allocate(0, 100, other.handle)
    with captured(stream):
        delivery.release(ptr)
        assert (marks(sim), statistics().current) == ([], 100)
    delivery.give_back_kept()

    assert (marks(sim), statistics().current) == ([0], 0)


def test_such_memory_goes_back_in_a_capture_of_ours_without_a_mark(sim):
    delivery, stream = al.Delivery("library", "mempool"), al.Stream("cuda:0", non_blocking=True)
    delivery.tells_streams = False
    ptr = delivery.allocate(0, 100, 0)
    with al.ScopedCapture(stream=stream):
        delivery.release(ptr)

    assert (marks(sim), statistics().current) == ([], 0)
