"""What is live while the events of a trace pass by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allotment.trace._event import EventKind

if TYPE_CHECKING:
    from allotment.trace._event import TraceEvent


class TraceLedger:
    """The books of a trace, which also say whether its events can follow each other.

    Attributes
    ----------
    live : dict of int to int
        The size in bytes of each block that is live, by its number.
    current, peak : int
        The bytes that are live, and the most that were at once.
    """

    __slots__ = ("current", "live", "peak")

    def __init__(self) -> None:
        self.live: dict[int, int] = {}
        self.current = self.peak = 0

    def enter(self, event: TraceEvent) -> None:
        """Enter an event.

        A request that was not met changes nothing.

        Raises
        ------
        ValueError
            If it cannot follow those before: a live block is allocated again, one that is not live is freed, or one is
            freed with another size.
        """
        if event.kind.brings_a_block:
            self._allocate(event)
        elif event.kind is EventKind.FREE:
            self._free(event)

    def _allocate(self, event: TraceEvent) -> None:
        if event.id in self.live:
            raise ValueError(f"allocation {event.id} is live already")
        self.live[event.id] = event.size
        self.current += event.size
        self.peak = max(self.peak, self.current)

    def _free(self, event: TraceEvent) -> None:
        size = self.live.get(event.id)
        if size is None:
            raise ValueError(f"allocation {event.id} is freed, and is not live")
        if size != event.size:
            raise ValueError(f"allocation {event.id} has {size:,} bytes and is freed with {event.size:,}")
        del self.live[event.id]
        self.current -= size
