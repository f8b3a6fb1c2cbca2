from operator import attrgetter

import pytest

import allotment as al
from allotment.errors import TraceError
from allotment.trace import EventKind, TraceEvent, replay, summarize

A, F, H, OOM = EventKind.ALLOCATE, EventKind.FREE, EventKind.HELD, EventKind.OUT_OF_MEMORY
TRACE = [TraceEvent(A, 0, 1000), TraceEvent(A, 1, 500), TraceEvent(F, 0, 1000), TraceEvent(A, 2, 700)]


class Plain:
    """The smallest allocator, with a list of its calls."""

    def __init__(self, platform, device="cuda:0", limit=None):
        self.platform, self.device, self.limit = platform, device, limit
        self.calls, self.held = [], 0

    def allocate(self, size_in_bytes):
        if self.limit is not None and self.held + size_in_bytes > self.limit:
            raise MemoryError("limited")
        ptr = self.platform.malloc(size_in_bytes)
        self.held += size_in_bytes
        self.calls.append(("allocate", size_in_bytes, al.get_stream(self.device).handle))
        return ptr

    def deallocate(self, ptr, size_in_bytes):
        self.held -= size_in_bytes
        self.calls.append(("deallocate", size_in_bytes, al.get_stream(self.device).handle))
        self.platform.free(ptr)


@pytest.fixture
def simulated():
    with al.simulate("2xh200") as platform:
        yield platform


@pytest.fixture
def plain(simulated):
    return Plain(simulated)


def test_the_calls_are_those_of_the_trace_in_its_order(plain):
    replay(TRACE, plain, "cuda:0")

    assert [call[:2] for call in plain.calls[:4]] == [
        ("allocate", 1000),
        ("allocate", 500),
        ("deallocate", 1000),
        ("allocate", 700),
    ]


def test_the_peaks_are_those_of_the_trace(plain):
    result = replay(TRACE, plain, "cuda:0")

    assert result.peak_requested == result.peak_reserved == summarize(TRACE).peak_requested == 1500
    assert (result.events, result.allocations, result.failures) == (4, 3, 0)
    assert (result.allocator, result.device) == ("Plain", "cuda:0")
    assert result.seconds > 0
    assert result.allocations_per_second == result.allocations / result.seconds


def test_an_earlier_peak_is_not_this_trace_s(plain):
    with al.ScopedAllocator("cuda:0", plain):
        al.empty(10**6, "uint8", "cuda:0")

    assert replay(TRACE, plain, "cuda:0").peak_requested == 1500


def test_what_the_trace_leaves_live_is_freed(plain, simulated):
    replay(TRACE, plain, "cuda:0")

    assert plain.held == 0
    assert len(simulated.calls.named("malloc")) == len(simulated.calls.named("free")) == 3


def test_an_allocator_can_be_named(simulated):
    al.register_allocator("replayed", lambda device: Plain(device.platform))

    assert replay(TRACE, "replayed", "cuda:0").allocator == "replayed"


def test_without_an_allocator_it_is_the_one_in_force(plain):
    with al.ScopedAllocator("cuda:0", plain):
        assert replay(TRACE, device="cuda:0").allocator == "Plain"


def test_the_host_has_no_streams_and_is_replayed_on_all_the_same():
    events = [TraceEvent(A, 0, 10, stream=4), TraceEvent(F, 0, 10, stream=4)]

    assert replay(events, device="cpu").allocations == 1


def test_streams_of_the_trace_are_streams_of_the_device(plain):
    events = [TraceEvent(A, number, 8, stream) for number, stream in enumerate([0, 1, 2, 1, 0])]
    null = al.get_stream("cuda:0").handle
    replay(events, plain, "cuda:0")
    streams = [handle for name, _, handle in plain.calls if name == "allocate"]

    assert streams[0] == streams[4] == null
    assert streams[1] == streams[3] != streams[2]
    assert null not in streams[1:4]


def test_streams_are_closed_at_the_end(plain, simulated):
    replay([TraceEvent(A, 0, 8, stream=1)], plain, "cuda:0")

    assert len(simulated.calls.named("create_stream")) == len(simulated.calls.named("destroy_stream")) == 1
    assert al.get_stream("cuda:0").handle == 0


def test_an_allocation_that_does_not_fit_is_counted_and_its_free_left_out(simulated):
    limited = Plain(simulated, limit=1200)
    events = [*TRACE[:2], TraceEvent(F, 1, 500), TRACE[2]]
    result = replay(events, limited, "cuda:0")

    assert (result.allocations, result.failures, result.peak_requested) == (1, 1, 1000)
    assert [call[:2] for call in limited.calls] == [("allocate", 1000), ("deallocate", 1000)]


def test_another_error_ends_the_replay_and_frees_what_is_live(plain, simulated):
    simulated.fail("malloc", 2, "cudaErrorIllegalAddress")
    with pytest.raises(al.PlatformError, match="cudaErrorIllegalAddress"):
        replay(TRACE, plain, "cuda:0")

    assert plain.held == 0
    assert [name for name, *_ in plain.calls].count("deallocate") == len(plain.calls) / 2


def test_an_interrupt_frees_what_is_live(plain):
    def interrupt(done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replay(TRACE, plain, "cuda:0", interrupt)

    assert plain.held == 0
    assert [name for name, *_ in plain.calls].count("deallocate") == len(plain.calls) / 2


def test_a_trace_that_cannot_be_calls_nothing(plain):
    with pytest.raises(TraceError, match="event 5"):
        replay([*TRACE, TraceEvent(F, 99, 1)], plain, "cuda:0")

    assert plain.calls == []


def test_progress_is_told_and_ends_with_all_events(plain):
    told = []
    events = [TraceEvent(A, number, 8) for number in range(1000)]
    replay(events, plain, "cuda:0", told.append)

    assert told == sorted(told)
    assert len(told) > 1
    assert told[-1] == 1000


def test_an_empty_trace_is_replayed():
    result = replay([], device="cpu")

    assert attrgetter("events", "allocations", "peak_requested", "allocations_per_second")(result) == (0, 0, 0, 0)


def test_blocks_of_no_bytes_are_served(plain):
    assert replay([TraceEvent(A, 0, 0), TraceEvent(F, 0, 0)], plain, "cuda:0").peak_requested == 0
    assert plain.calls == []


# ---------------------------------------------------------------------------------------------------------------------
# What recordings have besides


def test_a_block_that_was_live_when_the_recording_began_is_allocated(plain):
    result = replay([TraceEvent(H, 0, 1000), TraceEvent(F, 0, 1000)], plain, "cuda:0")

    assert [call[:2] for call in plain.calls] == [("allocate", 1000), ("deallocate", 1000)]
    assert (result.events, result.allocations, result.peak_requested) == (2, 1, 1000)


def test_a_request_that_was_not_met_is_left_out(plain):
    result = replay([TraceEvent(A, 0, 1000), TraceEvent(OOM, -1, 1 << 60)], plain, "cuda:0")

    assert (result.events, result.allocations, result.failures) == (1, 1, 0)


# ---------------------------------------------------------------------------------------------------------------------
# Figures


def test_no_moments_are_noted_unless_asked_for(plain):
    assert replay(TRACE, plain, "cuda:0").moments == ()


def test_moments_say_how_the_allocator_stands_in_between(plain):
    result = replay(TRACE, plain, "cuda:0", moments=4)

    assert [(moment.events, moment.requested) for moment in result.moments] == [
        (1, 1000),
        (2, 1500),
        (3, 500),
        (4, 1200),
    ]
    assert all(moment.reserved == moment.requested for moment in result.moments)


@pytest.mark.parametrize("moments", [1, 10, 333, 1000, 5000])
def test_there_are_as_many_moments_as_asked_for_if_there_are_as_many_events(plain, moments):
    events = [TraceEvent(A, number, 8) for number in range(1000)]
    noted = replay(events, plain, "cuda:0", moments=moments).moments

    assert min(moments, 1000) <= len(noted) <= 1000
    assert noted[-1].events == 1000


def test_driver_calls_are_those_of_the_allocator_alone(plain):
    assert replay(TRACE, plain, "cuda:0", moments=4).driver_calls == len(["malloc"] * 3 + ["free"])


def test_driver_calls_are_not_known_where_the_platform_does_not_count():
    assert replay(TRACE, device="cpu").driver_calls is None


def test_overhead_and_fragmentation_compare_the_peaks(simulated):
    result = replay(TRACE, "mempool", "cuda:0")

    assert result.peak_reserved > result.peak_requested == 1500
    assert result.overhead == result.peak_reserved / 1500
    assert result.fragmentation == 1 - 1500 / result.peak_reserved


def test_an_empty_trace_has_neither_overhead_nor_fragmentation():
    result = replay([], device="cpu")

    assert (result.overhead, result.fragmentation) == (None, None)
