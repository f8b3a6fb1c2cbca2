"""Streams, their order among each other, and events."""

import threading

import numpy as np
import pytest

from allotment.errors import PlatformError


@pytest.fixture
def trace(platform):
    """A list, and what adds a word to it in the order of a stream."""
    words = []

    def launch(word, stream, ordinal=0):
        platform.launch(lambda: words.append(word), stream, ordinal)

    return words, launch


@pytest.fixture
def blocking(platform):
    return platform.create_stream(0, non_blocking=False, priority=0)


@pytest.fixture
def non_blocking(platform):
    return platform.create_stream(0, non_blocking=True, priority=0)


def test_work_is_done_at_once_by_default(platform, trace, blocking):
    words, launch = trace
    launch("work", blocking)
    assert words == ["work"]
    assert platform.stream_is_done(blocking, 0)


def test_held_work_waits_for_its_release_and_keeps_its_order(platform, trace, non_blocking):
    words, launch = trace
    with platform.delayed(non_blocking):
        launch("first", non_blocking)
        launch("second", non_blocking)
        assert words == []
        assert not platform.stream_is_done(non_blocking, 0)
    assert words == ["first", "second"]


@pytest.mark.parametrize("call", ["synchronize_stream", "synchronize_device", "synchronize_event"])
def test_a_synchronise_does_held_work(platform, trace, non_blocking, call):
    words, launch = trace
    event = platform.create_event(0)
    platform.hold(non_blocking)
    launch("work", non_blocking)
    platform.record_event(event, non_blocking, 0)
    arguments = {"synchronize_stream": (non_blocking, 0), "synchronize_device": (0,), "synchronize_event": (event,)}
    getattr(platform, call)(*arguments[call])
    assert words == ["work"]


def test_a_stream_stays_held_after_a_synchronise(platform, trace, non_blocking):
    words, launch = trace
    platform.hold(non_blocking)
    platform.synchronize_stream(non_blocking, 0)
    launch("work", non_blocking)
    assert words == []


def test_a_synchronise_of_another_stream_leaves_held_work(platform, trace, blocking, non_blocking):
    words, launch = trace
    platform.hold(non_blocking)
    launch("work", non_blocking)
    platform.synchronize_stream(blocking, 0)
    platform.synchronize_device(1)
    assert words == []


def test_a_malloc_free_waits_for_all_work_of_its_device(platform, trace, non_blocking):
    words, launch = trace
    ptr = platform.malloc(64)
    platform.hold(non_blocking)
    launch("work", non_blocking)
    platform.free(ptr)
    assert words == ["work"]


# The null stream


def test_the_null_stream_waits_for_blocking_streams(platform, trace, blocking):
    words, launch = trace
    with platform.delayed(blocking):
        launch("blocking", blocking)
        launch("null", 0)
        assert words == []
    assert words == ["blocking", "null"]


def test_blocking_streams_wait_for_the_null_stream(platform, trace, blocking):
    words, launch = trace
    with platform.delayed(0, 0):
        launch("null", 0)
        launch("blocking", blocking)
        assert words == []
    assert words == ["null", "blocking"]


def test_non_blocking_streams_are_free_of_the_null_stream(platform, trace, non_blocking):
    words, launch = trace
    with platform.delayed(0, 0):
        launch("null", 0)
        launch("non-blocking", non_blocking)
        assert words == ["non-blocking"]


def test_null_streams_of_different_devices_are_free_of_each_other(platform, trace):
    words, launch = trace
    with platform.delayed(0, 0):
        launch("device 0", 0, 0)
        launch("device 1", 0, 1)
        assert words == ["device 1"]


def test_the_null_stream_is_not_done_while_a_blocking_stream_works(platform, trace, blocking):
    _, launch = trace
    with platform.delayed(blocking):
        launch("work", blocking)
        assert not platform.stream_is_done(0, 0)


def test_the_legacy_handle_names_the_null_stream(platform, trace):
    words, launch = trace
    with platform.delayed(0, 0):
        launch("work", 1)
        assert words == []


def test_each_thread_has_its_own_per_thread_stream(platform, trace):
    words, launch = trace
    with platform.delayed(2, 0):
        launch("held", 2)
        other = threading.Thread(target=launch, args=("other thread", 2))
        other.start()
        other.join()
        assert words == ["other thread"]


# Waiting


def test_a_stream_waits_for_the_work_another_had_then(platform, trace, blocking, non_blocking):
    words, launch = trace
    platform.hold(non_blocking)
    launch("before", non_blocking)
    platform.wait_for_stream(blocking, non_blocking, 0, 0)
    launch("waiting", blocking)
    launch("after", non_blocking)
    assert words == []
    platform.synchronize_stream(blocking, 0)
    assert words == ["before", "waiting"]


def test_streams_of_different_devices_wait_for_each_other(platform, trace, non_blocking):
    words, launch = trace
    other = platform.create_stream(1, non_blocking=True, priority=0)
    with platform.delayed(non_blocking):
        launch("device 0", non_blocking)
        platform.wait_for_stream(other, non_blocking, 1, 0)
        launch("device 1", other, 1)
        assert words == []
    assert words == ["device 0", "device 1"]


def test_streams_that_wait_for_each_other_in_turn_do_not_lock_up(platform, trace, blocking, non_blocking):
    words, launch = trace
    platform.hold(non_blocking)
    for turn in range(500):
        launch(turn, non_blocking)
        platform.wait_for_stream(blocking, non_blocking, 0, 0)
        platform.wait_for_stream(non_blocking, blocking, 0, 0)
    platform.synchronize_stream(blocking, 0)
    assert words == list(range(500))


def test_work_that_synchronises_with_its_own_stream_returns(platform, non_blocking):
    with platform.delayed(non_blocking):
        platform.launch(lambda: platform.synchronize_stream(non_blocking, 0), non_blocking, 0)
    assert platform.stream_is_done(non_blocking, 0)


# Events


def test_an_event_is_done_when_the_work_before_it_is(platform, trace, non_blocking):
    _, launch = trace
    event = platform.create_event(0)
    assert platform.event_is_done(event)
    with platform.delayed(non_blocking):
        launch("before", non_blocking)
        platform.record_event(event, non_blocking, 0)
        assert not platform.event_is_done(event)
    assert platform.event_is_done(event)


def test_a_mark_on_a_held_stream_is_work_that_is_held(platform, non_blocking):
    event = platform.create_event(0)
    with platform.delayed(non_blocking):
        platform.record_event(event, non_blocking, 0)
        assert not platform.event_is_done(event)
    assert platform.event_is_done(event)


def test_waiting_for_an_event_leaves_later_work(platform, trace, non_blocking):
    words, launch = trace
    event = platform.create_event(0)
    platform.hold(non_blocking)
    launch("before", non_blocking)
    platform.record_event(event, non_blocking, 0)
    launch("after", non_blocking)
    platform.synchronize_event(event)
    assert words == ["before"]


def test_an_event_of_another_device_is_refused(platform, non_blocking):
    event = platform.create_event(1)
    with pytest.raises(PlatformError, match="cudaErrorInvalidResourceHandle"):
        platform.record_event(event, non_blocking, 0)


# Handles


def test_work_of_a_destroyed_stream_is_still_done(platform, trace, non_blocking):
    words, launch = trace
    platform.hold(non_blocking)
    launch("work", non_blocking)
    platform.destroy_stream(non_blocking)
    assert words == ["work"]


def test_a_destroyed_stream_and_event_are_refused(platform, non_blocking):
    event = platform.create_event(0)
    platform.destroy_event(event)
    platform.destroy_stream(non_blocking)
    for call in (
        lambda: platform.synchronize_stream(non_blocking, 0),
        lambda: platform.destroy_stream(non_blocking),
        lambda: platform.synchronize_event(event),
        lambda: platform.destroy_event(event),
    ):
        with pytest.raises(PlatformError, match="cudaErrorInvalidResourceHandle"):
            call()


def test_a_handle_is_given_out_again(platform, non_blocking):
    platform.destroy_stream(non_blocking)
    assert platform.create_stream(1, non_blocking=False, priority=0) == non_blocking


def test_a_new_stream_with_an_old_handle_knows_nothing_of_the_old_ones_order(platform, blocking, non_blocking):
    pool = platform.create_pool(0)
    platform.wait_for_stream(blocking, non_blocking, 0, 0)
    platform.destroy_stream(non_blocking)
    again = platform.create_stream(0, non_blocking=True, priority=0)
    platform.hold(again)
    ptr = platform.malloc_from_pool(64, pool, again)
    platform.free_async(ptr, again)
    assert platform.malloc_from_pool(64, pool, blocking) != ptr


def test_the_order_of_a_memset_and_a_copy_on_a_held_stream_holds(platform, non_blocking):
    ptr, out = platform.malloc(4), np.zeros(4, np.uint8)
    with platform.delayed(non_blocking):
        platform.fill(ptr, 1, 4, non_blocking, 0)
        platform.copy(out.ctypes.data, ptr, 4, non_blocking, 0)
        platform.fill(ptr, 2, 4, non_blocking, 0)
        assert out.tolist() == [0, 0, 0, 0]
    assert out.tolist() == [1, 1, 1, 1]


def test_threads_work_side_by_side(platform):
    pool = platform.create_pool(0)
    failures = []

    def work(ordinal):
        try:
            platform.set_current_device(ordinal)
            stream = platform.create_stream(ordinal, non_blocking=True, priority=0)
            for size in range(1, 200):
                ptr, plain = platform.malloc_from_pool(size, pool, stream), platform.malloc(size)
                assert platform.pointer_attributes(plain).device == ordinal == platform.current_device()
                platform.free_async(ptr, stream)
                platform.free(plain)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n % 2,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert platform.current_device() == 0


def test_a_stream_waits_for_an_event_of_another(platform, read):
    stream, other = (platform.create_stream(0, non_blocking=True, priority=0) for _ in range(2))
    event, memory = platform.create_event(0), platform.malloc(1024)
    platform.hold(stream)
    platform.fill(memory, 4, 1024, stream, 0)
    platform.record_event(event, stream, 0)
    platform.wait_for_event(event, other, 0)
    platform.fill(memory, 5, 1024, other, 0)
    assert not platform.stream_is_done(other, 0)
    platform.release(stream)
    assert (read(memory, 1024) == 5).all()


def test_an_event_that_was_never_recorded_is_not_waited_for(platform):
    stream = platform.create_stream(0, non_blocking=True, priority=0)
    platform.wait_for_event(platform.create_event(0), stream, 0)
    assert platform.stream_is_done(stream, 0)
