"""One look at a process after the other, and how fast it allocates between them."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from typing import TYPE_CHECKING

from allotment.serving._reading import read_status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from allotment.serving._reading import AllocatorStatus, ProcessStatus


@dataclass(frozen=True, slots=True)
class Tick:
    """A look at a process.

    Parameters
    ----------
    status
        How its memory stands.
    rates
        The allocations per second of each of ``status.allocators`` since the look before; ``None`` where it is not
        known, as at the first one.
    """

    status: ProcessStatus
    rates: tuple[float | None, ...]


class Pace:
    """Makes ticks of what is read of one process, in the order of time."""

    def __init__(self) -> None:
        self._last: ProcessStatus | None = None

    def next(self, status: ProcessStatus) -> Tick:
        """Return the next tick."""
        last, self._last = self._last, status
        if last is None or status.clock <= last.clock:
            return Tick(status, (None,) * len(status.allocators))
        seconds = status.clock - last.clock
        before = {(each.device, each.allocator): each for each in last.allocators}
        # What was not there at the last look began with 0.
        return Tick(
            status, tuple(_rate(each, before.get((each.device, each.allocator)), seconds) for each in status.allocators)
        )


def _rate(now: AllocatorStatus, before: AllocatorStatus | None, seconds: float) -> float | None:
    begin = 0 if before is None else before.allocations
    if now.allocations is None or begin is None or now.allocations < begin:
        return None
    return (now.allocations - begin) / seconds


@contextmanager
def ticking(show: Callable[[Tick], None], interval: float, *, only_last: bool = False) -> Iterator[None]:
    """Show ticks of this process while a block runs, and one at its end.

    Parameters
    ----------
    show
        Called with each tick, by a thread of its own and at last by this one.
    interval
        Seconds between ticks.
    only_last
        Show the one at the end only.
    """
    pace, done = Pace(), Event()

    def tick() -> None:
        show(pace.next(read_status()))

    def run() -> None:
        while not done.wait(interval):
            tick()

    thread = Thread(target=run, name="allotment-watch", daemon=True)
    if not only_last:
        thread.start()
    try:
        yield
    finally:
        done.set()
        if not only_last:
            thread.join()
        tick()
