"""A trace as a whole: what it asks for, and a smaller one of the same shape."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from allotment.errors import TraceError
from allotment.trace._ledger import TraceLedger

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from allotment.trace._event import TraceEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """What a trace asks for.

    Parameters
    ----------
    events, allocations
        How many of each.
    peak_requested
        The most bytes that are live at once, each block with the size that was asked for.
    live_at_end
        The number of blocks that are never freed.
    streams
        The numbers of the streams, sorted.
    """

    events: int
    allocations: int
    peak_requested: int
    live_at_end: int
    streams: tuple[int, ...]


def summarize(events: Iterable[TraceEvent]) -> TraceSummary:
    """Return what a trace asks for.

    Raises
    ------
    TraceError
        If an event cannot follow those before.
    """
    ledger, streams, count, allocations = TraceLedger(), set(), 0, 0
    for event in checked(events, ledger):
        count += 1
        allocations += event.kind.brings_a_block
        streams.add(event.stream)
    return TraceSummary(
        events=count,
        allocations=allocations,
        peak_requested=ledger.peak,
        live_at_end=len(ledger.live),
        streams=tuple(sorted(streams)),
    )


def checked(events: Iterable[TraceEvent], ledger: TraceLedger) -> Iterator[TraceEvent]:
    """Yield the events, each entered into the ledger before; raise `TraceError` for one that cannot follow."""
    for number, event in enumerate(events, start=1):
        try:
            ledger.enter(event)
        except ValueError as error:
            raise TraceError(origin="the trace", problem=f"event {number}: {error}") from error
        yield event


def shrink(events: Iterable[TraceEvent], divisor: int) -> Iterator[TraceEvent]:
    """Yield the events with each size divided and rounded up, to replay a trace where its memory is not to be had.

    Parameters
    ----------
    events
        The trace.
    divisor
        What to divide by, at least 1.
    """
    if divisor < 1:
        raise ValueError(f"sizes can be divided by 1 or more, not by {divisor}")
    return (replace(event, size=-(-event.size // divisor)) for event in events)
