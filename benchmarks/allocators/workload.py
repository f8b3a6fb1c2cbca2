"""What a contender is given to do: a pass over requests, the first of a process cold and the others warm."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from random import Random
from time import perf_counter, perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from allotment.trace import EventKind
from benchmarks.allocators.session import is_out_of_memory
from benchmarks.measurement import calls_a_round, time_loop

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from allotment.trace import TraceEvent
    from benchmarks.allocators.session import Session

Step: TypeAlias = tuple[bool, int, int]
"""A request: whether it allocates, the number of the block, its size."""
Run: TypeAlias = tuple[int, tuple[Step, ...]]
"""Requests on one stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What one pass took.

    Parameters
    ----------
    seconds
        The time of the calls and of the loop around them.
    pairs
        How many blocks were asked for.
    failures
        How many of them there was no memory for.
    """

    seconds: float
    pairs: int
    failures: int = 0

    @property
    def ns(self) -> float:
        """Nanoseconds for an allocation and its free."""
        return self.seconds / self.pairs * 1e9


class Workload(Protocol):
    """Something to do."""

    @property
    def limit(self) -> int | None:
        """The most bytes that the contender may hold; ``None`` for as many as there are."""
        ...

    @property
    def peak_requested(self) -> int | None:
        """The most bytes live at once, each block with the size that is asked for; ``None`` where it is by chance."""
        ...

    @property
    def warm_passes(self) -> int:
        """How many passes are wanted after the first."""
        ...

    def passes(self, session: Session) -> Iterator[Pass]:
        """Make one pass after another, the first cold, without end; between two of them nothing of a pass is live."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A sequence of requests, prepared so that the loop over it is short.

    Parameters
    ----------
    runs
        The requests.
    pairs
        How many of them allocate.
    peak_requested, warm_passes, limit
        As `Workload` says.
    """

    runs: tuple[Run, ...]
    pairs: int
    peak_requested: int
    warm_passes: int = 5
    limit: int | None = None

    @classmethod
    def of(cls, events: Iterable[TraceEvent], warm_passes: int = 5) -> Replay:
        """Prepare events."""
        runs, pairs, current, peak = [], 0, 0, 0
        for stream, group in groupby(events, key=lambda event: event.stream):
            steps = tuple((event.kind is EventKind.ALLOCATE, event.id, event.size) for event in group)
            runs.append((stream, steps))
            for allocates, _, size in steps:
                pairs += allocates
                current += size if allocates else -size
                peak = max(peak, current)
        return cls(runs=tuple(runs), pairs=pairs, peak_requested=peak, warm_passes=warm_passes)

    def limited(self, times: float) -> Replay:
        """Return the same requests for a contender that may hold no more than ``times`` the peak requested."""
        whole_mebibytes = -(-int(self.peak_requested * times) >> 20) << 20
        return replace(self, limit=whole_mebibytes)

    def passes(self, session: Session) -> Iterator[Pass]:
        """Make the requests in turn. What is live at the end, or was not freed, is freed outside of the time."""
        while True:
            yield self._play(session)

    def _play(self, session: Session) -> Pass:
        live: dict[int, tuple[Any, int]] = {}
        taken = failures = 0
        for stream, steps in self.runs:
            session.use(stream)
            start = perf_counter_ns()
            failures += play(steps, session, live)
            taken += perf_counter_ns() - start
        session.use(0)
        while live:
            session.free(*live.popitem()[1])
        return Pass(seconds=taken / 1e9, pairs=self.pairs, failures=failures)


def play(steps: Iterable[Step], session: Session, live: dict[int, tuple[Any, int]]) -> int:
    """Make requests and return how many failed for lack of memory; their frees are left out."""
    allocate, free, failures = session.allocate, session.free, 0
    for allocates, number, size in steps:
        if allocates:
            try:
                live[number] = allocate(size), size
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                failures += 1
        elif number in live:
            free(*live.pop(number))
    return failures


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """One size allocated and freed at once, again and again; cold is the very first pair.

    Parameters
    ----------
    size
        The size.
    live
        How many other blocks are live meanwhile, of 256 to 4096 bytes, with holes between them.
    """

    size: int
    live: int = 0

    limit = None
    peak_requested = None
    warm_passes = 5

    def passes(self, session: Session) -> Iterator[Pass]:
        """Time one pair, then rounds of them less what empty calls cost."""
        _blocks = self._fill(session)
        pair = session.pair(self.size)
        start = perf_counter()
        pair()
        yield Pass(seconds=perf_counter() - start, pairs=1)
        times = calls_a_round(pair)
        while True:
            floor = time_loop(_nothing, times)
            yield Pass(seconds=(time_loop(pair, times) - floor) / 1e9, pairs=times)

    def _fill(self, session: Session) -> list[Any]:
        """Allocate a tenth more than is wanted, and free that tenth here and there."""
        random = Random(3)
        blocks = [(session.allocate(size), size) for size in random.choices(range(256, 4097), k=self.live * 11 // 10)]
        for _ in range(len(blocks) - self.live):
            chosen = random.randrange(len(blocks))
            blocks[chosen], blocks[-1] = blocks[-1], blocks[chosen]
            session.free(*blocks.pop())
        return blocks


def _nothing() -> None:
    pass
