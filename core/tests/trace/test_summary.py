import csv
import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.errors import TraceError
from allotment.trace import EventKind, TraceEvent, read, shipped_trace, shrink, summarize

A, F = EventKind.ALLOCATE, EventKind.FREE


@st.composite
def traces(draw):
    """Return a valid trace of up to 40 events."""
    events, live = [], {}
    for number in range(draw(st.integers(0, 40))):
        if live and draw(st.booleans()):
            chosen = draw(st.sampled_from(sorted(live)))
            events.append(TraceEvent(F, chosen, live.pop(chosen), draw(st.integers(0, 2))))
        else:
            live[number] = draw(st.integers(0, 10_000))
            events.append(TraceEvent(A, number, live[number], draw(st.integers(0, 2))))
    return events


def peak_of(events):
    """Return the peak, computed from the whole list at each moment."""
    sizes = [event.size if event.kind is A else -event.size for event in events]
    return max((sum(sizes[:end]) for end in range(len(sizes) + 1)), default=0)


@given(traces())
def test_the_summary_is_what_the_events_add_up_to(events):
    summary = summarize(events)

    assert summary.events == len(events)
    assert summary.allocations == sum(event.kind is A for event in events)
    assert summary.peak_requested == peak_of(events)
    assert summary.live_at_end == 2 * summary.allocations - summary.events
    assert summary.streams == tuple(sorted({event.stream for event in events}))


@given(traces(), st.integers(1, 1000))
def test_a_shrunk_trace_keeps_its_shape_and_loses_no_block(events, divisor):
    shrunk = list(shrink(events, divisor))

    assert [(event.kind, event.id, event.stream) for event in shrunk] == [(e.kind, e.id, e.stream) for e in events]
    assert all((small.size > 0) == (large.size > 0) for small, large in zip(shrunk, events, strict=True))
    assert peak_of(shrunk) <= peak_of(events) / divisor + len(events)
    summarize(shrunk)


def test_a_trace_is_not_shrunk_by_less_than_one():
    with pytest.raises(ValueError, match="not by 0"):
        shrink([], 0)


def test_an_event_that_cannot_follow_is_reported_with_its_number():
    with pytest.raises(TraceError, match=r"the trace: event 2: allocation 5 is live already\."):
        summarize([TraceEvent(A, 5, 1), TraceEvent(A, 5, 1)])


def test_the_shipped_trace_asks_for_what_its_recording_says():
    with shipped_trace().open("rb") as file, gzip.open(file, "rt") as lines:
        rows = list(csv.DictReader(lines))
    current = peak = 0
    for row in rows:
        current += int(row["size"]) if row["op"] == "a" else -int(row["size"])
        peak = max(peak, current)
    summary = summarize(read(shipped_trace()))

    assert summary.peak_requested == peak == 11_383_464_991
    assert summary.events == len(rows)
