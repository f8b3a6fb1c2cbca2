"""Free ranges of addresses: what can be handed out, to whom, and in which order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from allotment.platform.simulated._stream import Stream


class Condition(NamedTuple):
    """When freed memory may be used again: once a stream's work up to a ticket is done."""

    stream: Stream
    ticket: int


class FreeRange(NamedTuple):
    """A free range of addresses; ``condition`` is ``None`` where it may be used at once by everyone."""

    start: int
    end: int
    condition: Condition | None


def _anyone(condition: Condition | None) -> bool:
    return condition is None


class FreeRanges:
    """The free ranges of one heap.

    Ranges just freed are kept as they are, by size, and handed out again last freed first. They are merged with their
    neighbours when a request meets none of its size. Ranges under different streams' conditions are never merged.
    """

    def __init__(self) -> None:
        self._recent: dict[int, list[tuple[int, Condition | None]]] = {}
        self._starts: list[int] = []
        self._ranges: dict[int, FreeRange] = {}
        self._sizes: list[tuple[int, int]] = []

    def add(self, start: int, nbytes: int, condition: Condition | None = None) -> None:
        """Take in a range that was in use."""
        self._recent.setdefault(nbytes, []).append((start, condition))

    def take(self, nbytes: int, usable: Callable[[Condition | None], bool] = _anyone) -> int | None:
        """Hand out ``nbytes``, or return ``None``: last freed of that size, best fit, or several adjacent ranges."""
        if recent := self._recent.get(nbytes):
            for index in range(len(recent) - 1, -1, -1):
                if usable(recent[index][1]):
                    return recent.pop(index)[0]
        self._merge_recent()
        start = self._best_fit(nbytes, usable)
        if start is None:
            start = next((start for start, end in self.runs(usable) if end - start >= nbytes), None)
        if start is not None:
            self.remove(start, start + nbytes)
        return start

    def take_lowest(self, nbytes: int) -> int | None:
        """Hand out ``nbytes`` at the lowest address that has them, or return ``None``."""
        start = next((start for start, end in self.runs() if end - start >= nbytes), None)
        if start is not None:
            self.remove(start, start + nbytes)
        return start

    def runs(self, usable: Callable[[Condition | None], bool] = _anyone) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each run of adjacent usable ranges, by address."""
        self._merge_recent()
        start = end = -1
        for key in self._starts:
            free = self._ranges[key]
            if not usable(free.condition):
                continue
            if free.start == end:
                end = free.end
                continue
            if end >= 0:
                yield start, end
            start, end = free.start, free.end
        if end >= 0:
            yield start, end

    def remove(self, start: int, end: int) -> None:
        """Take ``start`` to ``end``, which is free throughout, out of the ranges."""
        self._merge_recent()
        index = bisect_right(self._starts, start) - 1
        while index < len(self._starts) and self._starts[index] < end:
            free = self._pop(self._starts[index])
            if free.start < start:
                self._insert(FreeRange(free.start, start, free.condition))
                index += 1
            if free.end > end:
                self._insert(FreeRange(end, free.end, free.condition))
                return

    def settle(self, settled: Callable[[Condition], bool]) -> None:
        """Lift each condition of which ``settled`` says that it is met."""
        self._merge_recent()
        met = [free for free in self._ranges.values() if free.condition is not None and settled(free.condition)]
        for free in met:
            self._pop(free.start)
        for free in met:
            self._insert(FreeRange(free.start, free.end, None))

    def conditions(self) -> list[Condition]:
        """Return the conditions of the ranges under one, oldest ticket first."""
        self._merge_recent()
        conditions = (free.condition for free in self._ranges.values())
        return sorted((c for c in conditions if c is not None), key=lambda condition: condition.ticket)

    @property
    def nbytes(self) -> int:
        """The size of all free ranges together."""
        self._merge_recent()
        return sum(size for size, _ in self._sizes)

    def _best_fit(self, nbytes: int, usable: Callable[[Condition | None], bool]) -> int | None:
        for index in range(bisect_left(self._sizes, (nbytes, 0)), len(self._sizes)):
            start = self._sizes[index][1]
            if usable(self._ranges[start].condition):
                return start
        return None

    def _merge_recent(self) -> None:
        if self._recent:
            recent, self._recent = self._recent, {}
            for nbytes, freed in recent.items():
                for start, condition in freed:
                    self._insert(FreeRange(start, start + nbytes, condition))

    def _insert(self, free: FreeRange) -> None:
        start, end, condition = free
        index = bisect_left(self._starts, start)
        if index < len(self._starts) and self._starts[index] == end:
            after = self._ranges[end]
            if _can_merge(after.condition, condition):
                end, condition = after.end, _later(after.condition, condition)
                self._pop(after.start)
        if index > 0:
            before = self._ranges[self._starts[index - 1]]
            if before.end == start and _can_merge(before.condition, condition):
                start, condition = before.start, _later(before.condition, condition)
                self._pop(before.start)
        insort(self._starts, start)
        self._ranges[start] = FreeRange(start, end, condition)
        insort(self._sizes, (end - start, start))

    def _pop(self, start: int) -> FreeRange:
        free = self._ranges.pop(start)
        del self._starts[bisect_left(self._starts, start)]
        del self._sizes[bisect_left(self._sizes, (free.end - start, start))]
        return free


def _can_merge(one: Condition | None, other: Condition | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.stream is other.stream


def _later(one: Condition | None, other: Condition | None) -> Condition | None:
    return one if one is None or other is None or one.ticket >= other.ticket else other
