"""A trace as columns: what happened to each block, and who asked for it."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import numpy as np

from allotment.trace._event import EventKind
from allotment.trace._ledger import TraceLedger
from allotment.trace._summary import checked

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable
    from typing import TypeAlias

    from numpy.typing import NDArray

    from allotment.trace._event import TraceEvent, TraceSite, TraceSource

    Column: TypeAlias = NDArray[np.int64]

T = TypeVar("T", bound="Hashable")

NOT_TOLD: Final = -1
"""The index of a label, a source or a site that the trace does not tell."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Who asked for memory.

    Parameters
    ----------
    label, source, site
        Indices into the tables of the same names, or `NOT_TOLD`.
    stream
        The number of the stream.
    """

    label: int
    source: int
    site: int
    stream: int


@dataclass(frozen=True, slots=True)
class UnmetRequest:
    """A request that ran out of memory.

    Parameters
    ----------
    event
        The number of the event, counted from 0.
    size
        The bytes that were asked for.
    origin
        Index of who asked.
    """

    event: int
    size: int
    origin: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceColumns:
    """The events of a trace, by block. Events and blocks are counted from 0, blocks in the order in which they came.

    Parameters
    ----------
    events
        How many there are.
    time
        The time of each event in nanoseconds, never falling; an event without one has that of the event before.
        ``None`` if no event has one.
    begin, end
        The event that brought each block, and the one that freed it; `events` if none did.
    size, number, origin
        The bytes of each block, its number in the trace, and the index of who asked for it.
    held
        1 for a block that was live before the trace began.
    freed_at
        The index of the site that freed each block, or `NOT_TOLD`.
    labels, sources, sites, origins
        The tables that the indices lead to.
    unmet
        The requests that ran out of memory.
    """

    events: int
    time: Column | None
    begin: Column
    end: Column
    size: Column
    number: Column
    origin: Column
    held: Column
    freed_at: Column
    labels: tuple[str, ...]
    sources: tuple[TraceSource, ...]
    sites: tuple[TraceSite, ...]
    origins: tuple[Origin, ...]
    unmet: tuple[UnmetRequest, ...]

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return len(self.begin)

    def live_bytes(self) -> Column:
        """Return the bytes that are live after each event."""
        change = np.zeros(self.events + 1, np.int64)
        np.add.at(change, self.begin, self.size)
        np.subtract.at(change, self.end, self.size)
        return np.cumsum(change[: self.events])


def gather(events: Iterable[TraceEvent]) -> TraceColumns:
    """Return the events of a trace as columns.

    Raises
    ------
    TraceError
        If an event cannot follow those before.
    """
    gathering = _Gathering()
    for event in checked(events, TraceLedger()):
        gathering.add(event)
    return gathering.result()


class _Numbering(Generic[T]):
    """Values, numbered in the order in which they first came.

    A reader makes one object of a site and hands it out with every event. It is known by its identity: to hash all
    of its frames for each event would take longer than all else.
    """

    def __init__(self) -> None:
        self.values: dict[T, int] = {}
        self._by_identity: dict[int, int] = {}  # of the keys of `values`, which stay alive

    def number(self, value: T | None) -> int:
        if value is None:
            return NOT_TOLD
        known = self._by_identity.get(id(value))
        return self._number_by_value(value) if known is None else known

    def _number_by_value(self, value: T) -> int:
        known = self.values.get(value)
        if known is None:
            known = self.values[value] = self._by_identity[id(value)] = len(self.values)
        return known


def _numbers() -> array[int]:
    return array("q")


@dataclass(slots=True)
class _Gathering:
    """The columns while events come in."""

    times: array[int] = field(default_factory=_numbers)
    begin: array[int] = field(default_factory=_numbers)
    size: array[int] = field(default_factory=_numbers)
    number: array[int] = field(default_factory=_numbers)
    origin: array[int] = field(default_factory=_numbers)
    held: array[int] = field(default_factory=_numbers)
    freed: list[tuple[int, int, int]] = field(default_factory=list)
    """Block, event and site of each free."""
    unmet: list[UnmetRequest] = field(default_factory=list)
    labels: _Numbering[str] = field(default_factory=_Numbering)
    sources: _Numbering[TraceSource] = field(default_factory=_Numbering)
    sites: _Numbering[TraceSite] = field(default_factory=_Numbering)
    origins: dict[tuple[int, int, int, int], int] = field(default_factory=dict)
    live: dict[int, int] = field(default_factory=dict)
    """The block of each number that is live."""
    has_times: bool = False

    def add(self, event: TraceEvent) -> None:
        place = len(self.times)
        self._add_time(event.time)
        if event.kind is EventKind.FREE:
            self.freed.append((self.live.pop(event.id), place, self.sites.number(event.site)))
        elif event.kind is EventKind.OUT_OF_MEMORY:
            self.unmet.append(UnmetRequest(place, event.size, self._origin(event)))
        else:
            self._add_block(event, place)

    def _add_time(self, time: int | None) -> None:
        before = self.times[-1] if self.times else 0
        self.times.append(before if time is None else max(before, time))
        self.has_times |= time is not None

    def _add_block(self, event: TraceEvent, place: int) -> None:
        self.live[event.id] = len(self.begin)
        self.begin.append(place)
        self.size.append(event.size)
        self.number.append(event.id)
        self.origin.append(self._origin(event))
        self.held.append(event.kind is EventKind.HELD)

    def _origin(self, event: TraceEvent) -> int:
        label, source = self.labels.number(event.label), self.sources.number(event.source)
        key = (label, source, self.sites.number(event.site), event.stream)
        return self.origins.setdefault(key, len(self.origins))

    def result(self) -> TraceColumns:
        end = np.full(len(self.begin), len(self.times), np.int64)
        freed_at = np.full(len(self.begin), NOT_TOLD, np.int64)
        if self.freed:
            blocks, events, sites = np.array(self.freed, np.int64).T
            end[blocks], freed_at[blocks] = events, sites
        return TraceColumns(
            events=len(self.times),
            time=_column(self.times) if self.has_times else None,
            begin=_column(self.begin),
            end=end,
            size=_column(self.size),
            number=_column(self.number),
            origin=_column(self.origin),
            held=_column(self.held),
            freed_at=freed_at,
            labels=tuple(self.labels.values),
            sources=tuple(self.sources.values),
            sites=tuple(self.sites.values),
            origins=tuple(Origin(*key) for key in self.origins),
            unmet=tuple(self.unmet),
        )


def _column(numbers: array[int]) -> Column:
    return np.array(numbers, np.int64)
