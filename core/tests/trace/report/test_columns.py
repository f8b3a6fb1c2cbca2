"""The columns tell what a walk over the events tells."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.errors import TraceError
from allotment.layers.call_site import Frame
from allotment.trace import EventKind, TraceEvent, TraceSite, TraceSource
from allotment.trace.report._columns import NOT_TOLD, gather

ALLOCATE, FREE, HELD, OUT_OF_MEMORY = EventKind

LABELS = st.sampled_from([None, "weights", "step", "step/activations"])
SOURCES = st.sampled_from([None, TraceSource("cuda:0", "caching"), TraceSource("cuda:1", "mempool")])
FRAMES = st.tuples(st.sampled_from(["a.py", "b.py"]), st.integers(1, 3), st.sampled_from(["f", "g"]))
SITES = st.none() | st.builds(
    TraceSite,
    st.lists(FRAMES.map(lambda frame: Frame(*frame)), max_size=3).map(tuple),
    st.sampled_from([None, "torch"]),
)


@st.composite
def told_traces(draw):
    """Return a valid trace of up to 30 events of all kinds; numbers of blocks come again after they were freed."""
    events, live = [], {}
    timed = draw(st.booleans())
    for _ in range(draw(st.integers(0, 30))):
        time = draw(st.none() | st.integers(0, 10**12)) if timed else None
        kind = draw(st.sampled_from(EventKind))
        told = (draw(st.integers(0, 2)), time, draw(SOURCES), draw(LABELS), draw(SITES))
        if kind is FREE and live:
            number = draw(st.sampled_from(sorted(live)))
            events.append(TraceEvent(FREE, number, live.pop(number), *told))
        elif kind is OUT_OF_MEMORY:
            events.append(TraceEvent(OUT_OF_MEMORY, -1, draw(st.integers(1, 2**40)), *told))
        elif kind is not FREE and (free := set(range(12)) - set(live)):
            number = draw(st.sampled_from(sorted(free)))
            live[number] = draw(st.integers(0, 2**40))
            events.append(TraceEvent(kind, number, live[number], *told))
    return events


def live_sets(events):
    """Return what is live after each event: by number, the size and who asked."""
    live, sets = {}, []
    for event in events:
        if event.kind is FREE:
            del live[event.id]
        elif event.kind is not OUT_OF_MEMORY:
            live[event.id] = (event.size, event.label, event.source, event.site, event.stream)
        sets.append(dict(live))
    return sets


def told(columns, origin):
    """Return who asked, as the events tell it."""
    label, source, site = (
        None if index == NOT_TOLD else table[index]
        for index, table in (
            (origin.label, columns.labels),
            (origin.source, columns.sources),
            (origin.site, columns.sites),
        )
    )
    return label, source, site, origin.stream


def live_set(columns, event):
    """Return what the columns say is live after an event."""
    return {
        int(columns.number[block]): (int(columns.size[block]), *told(columns, columns.origins[columns.origin[block]]))
        for block in range(columns.blocks)
        if columns.begin[block] <= event < columns.end[block]
    }


@given(told_traces())
def test_the_live_set_after_each_event_is_that_of_a_walk(events):
    columns = gather(events)

    assert [live_set(columns, event) for event in range(columns.events)] == live_sets(events)


@given(told_traces())
def test_the_live_bytes_after_each_event_are_those_of_a_walk(events):
    expected = [sum(size for size, *_ in live.values()) for live in live_sets(events)]

    assert gather(events).live_bytes().tolist() == expected


@given(told_traces())
def test_requests_that_were_not_met_are_told_with_who_asked(events):
    columns = gather(events)
    expected = [
        (place, event.size, (event.label, event.source, event.site, event.stream))
        for place, event in enumerate(events)
        if event.kind is OUT_OF_MEMORY
    ]

    assert [
        (request.event, request.size, told(columns, columns.origins[request.origin])) for request in columns.unmet
    ] == expected


@given(told_traces())
def test_times_never_fall_and_are_absent_where_none_is_told(events):
    time = gather(events).time

    if all(event.time is None for event in events):
        assert time is None
    else:
        assert time.tolist() == list(accumulate((event.time or 0 for event in events), max))


@given(told_traces())
def test_where_a_block_was_freed_is_told(events):
    columns = gather(events)
    freed = {int(end): int(site) for end, site in zip(columns.end, columns.freed_at, strict=True)}

    for place, event in enumerate(events):
        if event.kind is FREE:
            assert event.site == (None if freed[place] == NOT_TOLD else columns.sites[freed[place]])


def test_blocks_that_were_live_before_the_trace_are_told_apart():
    columns = gather([TraceEvent(HELD, 0, 10), TraceEvent(ALLOCATE, 1, 10)])

    assert columns.held.tolist() == [1, 0]


def test_equal_sites_are_one_though_they_are_several_objects():
    events = [TraceEvent(ALLOCATE, number, 1, site=TraceSite((Frame("a.py", 1, "f"),))) for number in range(3)]

    assert len(gather(events).sites) == len(gather(events).origins) == 1


def test_an_event_that_cannot_follow_is_refused_with_its_number():
    with pytest.raises(TraceError, match="event 2: allocation 7 is freed, and is not live"):
        gather([TraceEvent(ALLOCATE, 0, 1), TraceEvent(FREE, 7, 1)])
