"""Writing a report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from allotment._version import version
from allotment.errors import TraceError
from allotment.trace.report._columns import gather
from allotment.trace.report._page import page_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from allotment.trace._event import TraceEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenReport:
    """A report that was written, and what it shows in short.

    Parameters
    ----------
    path
        The page.
    events, blocks
        How many of each the trace has.
    peak, live_at_end
        The most bytes that were live at once, and those that are live after the last event.
    unmet_requests
        How many requests ran out of memory.
    """

    path: Path
    events: int
    blocks: int
    peak: int
    live_at_end: int
    unmet_requests: int


def write_report(
    events: Iterable[TraceEvent],
    path: str | Path,
    *,
    title: str = "trace",
    problems: Sequence[TraceError] = (),
) -> WrittenReport:
    """Write a page that shows the memory of a trace over time.

    Parameters
    ----------
    events
        The trace.
    path
        The page to write. It is one file, which needs no network and no other file.
    title
        What to call the trace.
    problems
        The lines of the trace that were left out. It is read after the events were taken, so that it may be the list
        that `allotment.trace.read` fills.

    Raises
    ------
    TraceError
        If an event cannot follow those before, or the page cannot be written.
    """
    target = Path(path)
    columns = gather(events)
    page = page_of(columns, title, version(), problems)
    try:
        target.write_text(page, "utf-8", errors="replace", newline="\n")
    except OSError as error:
        raise TraceError(origin=str(target), problem=f"it cannot be written: {error.strerror}") from error
    live = columns.live_bytes()
    return WrittenReport(
        path=target,
        events=columns.events,
        blocks=columns.blocks,
        peak=int(live.max(initial=0)),
        live_at_end=int(live[-1]) if columns.events else 0,
        unmet_requests=len(columns.unmet),
    )
