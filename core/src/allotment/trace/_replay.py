"""Replaying a trace through an allocator.

One pass measures both time and peaks. The peaks are not sampled: they are the high-water marks that the accounts and
the allocator keep anyway, set back before the pass and read after it, so they are exact and cost no time between two
calls. The time is that of the calls and of the loop around them; checking the trace, preparing it, reporting progress,
taking figures for a plot and freeing what the trace leaves live are not in it.
"""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from itertools import groupby, islice
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeAlias

from allotment.device import find_device
from allotment.errors import OutOfMemoryError
from allotment.platform import CountsCalls
from allotment.selection import account_of, allocator_in_force, named_allocator
from allotment.stream import ScopedStream, Stream
from allotment.trace._event import EventKind
from allotment.trace._ledger import TraceLedger
from allotment.trace._summary import checked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager
    from typing import Self

    from allotment.device import Device, DeviceLike
    from allotment.layers.accounting import AccountedAllocator
    from allotment.selection import AllocatorLike
    from allotment.trace._event import TraceEvent

_RUN_LENGTH: Final = 256
"""How many events are replayed at most between two reports of progress."""

_Step: TypeAlias = tuple[bool, int, int]
"""An event on the hot path: whether it allocates, the number, the size."""


@dataclass(frozen=True, slots=True)
class ReplayMoment:
    """How an allocator stands at a moment of a replay.

    Parameters
    ----------
    events
        How many events were replayed before.
    requested, reserved
        The bytes that are handed out, and that the allocator holds of the device.
    """

    events: int
    requested: int
    reserved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """How an allocator served a trace.

    Parameters
    ----------
    allocator, device
        The names of both.
    seconds
        The time of the calls.
    events, allocations
        How many events were replayed, and how many allocations succeeded.
    failures
        Allocations that were refused for lack of memory. Their frees were left out.
    peak_requested
        The most bytes that were handed out at once, with what was live before.
    peak_reserved
        The most bytes that the allocator held of the device, with what it held before.
    driver_calls
        How many calls of the platform the allocator made, without those that ask for the current device or set it;
        ``None`` where the platform does not count, as real ones.
    moments
        How it stood in between, where that was asked for.
    """

    allocator: str
    device: str
    seconds: float
    events: int
    allocations: int
    failures: int
    peak_requested: int
    peak_reserved: int
    driver_calls: int | None = None
    moments: tuple[ReplayMoment, ...] = ()

    @property
    def allocations_per_second(self) -> float:
        """Allocations in a second of the calls' time, frees included; 0 for an empty trace."""
        return self.allocations / self.seconds if self.seconds else 0.0

    @property
    def overhead(self) -> float | None:
        """Peak reserved as a multiple of peak requested; ``None`` if nothing was handed out."""
        return self.peak_reserved / self.peak_requested if self.peak_requested else None

    @property
    def fragmentation(self) -> float | None:
        """External fragmentation at the peaks, 1 - peak requested / peak reserved; ``None`` if nothing was held."""
        return 1 - self.peak_requested / self.peak_reserved if self.peak_reserved else None


def replay(
    events: Iterable[TraceEvent],
    allocator: AllocatorLike = None,
    device: DeviceLike = None,
    on_progress: Callable[[int], None] | None = None,
    moments: int = 0,
) -> ReplayResult:
    """Replay a trace through an allocator and measure it.

    Parameters
    ----------
    events
        The trace; it is taken in and checked as a whole before the first call. Blocks that were live when it was
        recorded are allocated too; requests that were not met are left out.
    allocator
        An object with the two methods, a name, or ``None`` for the one in force on the device.
    device
        The device; the default device if not given.
    on_progress
        Called with the number of events replayed so far, now and then and at the end.
    moments
        At how many moments to note how the allocator stands, at least, if the trace is so long; 0 for none.

    Raises
    ------
    TraceError
        If an event cannot follow those before. Nothing was called.
    AllotmentError
        For what the allocator raises besides a lack of memory, which is counted.

    Notes
    -----
    The allocator's idle memory is given back and its high-water marks are set back first, so that the figures are those
    of this trace. Streams of the trace other than 0 become streams of a CUDA device; 0 is the stream in force. Whatever
    happens, all blocks are freed at the end.
    """
    account = _account(allocator, find_device(device))
    runs = _runs(events, moments)
    replayer = _Replayer(account, on_progress or (lambda _: None))
    account.trim()
    account.reset_peak()
    with replayer:
        for stream, steps in runs:
            replayer.play(stream, steps)
            if moments:
                replayer.note_moment()
        return replayer.result()


def _account(allocator: AllocatorLike, device: Device) -> AccountedAllocator:
    if allocator is None:
        return allocator_in_force(device)
    return named_allocator(allocator, device) if isinstance(allocator, str) else account_of(allocator, device)


def _runs(events: Iterable[TraceEvent], moments: int) -> list[tuple[int, list[_Step]]]:
    """Return the trace in runs of events on one stream, short enough to report progress or note a moment after each."""
    played = [event for event in checked(events, TraceLedger()) if event.kind is not EventKind.OUT_OF_MEMORY]
    length = min(_RUN_LENGTH, max(1, len(played) // moments)) if moments else _RUN_LENGTH
    runs = []
    for stream, group in groupby(played, key=lambda event: event.stream):
        steps = ((event.kind.brings_a_block, event.id, event.size) for event in group)
        while run := list(islice(steps, length)):
            runs.append((stream, run))
    return runs


class _Replayer:
    """Plays runs of a trace, and frees what is live when it is left."""

    def __init__(self, account: AccountedAllocator, on_progress: Callable[[int], None]) -> None:
        self._account = account
        self._on_progress = on_progress
        self._live: dict[int, tuple[int, int]] = {}
        self._streams: dict[int, Stream] = {}
        self._events = self._allocations = self._failures = 0
        self._seconds = 0.0
        self._moments: list[ReplayMoment] = []
        platform = account.device.platform
        self._counter = platform if isinstance(platform, CountsCalls) else None
        self._driver_calls = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as rest:
            for stream in self._streams.values():
                rest.callback(stream.close)
            for block in self._live.values():
                rest.callback(self._account.deallocate, *block)
            self._live.clear()

    def play(self, stream: int, steps: list[_Step]) -> None:
        """Play a run of events on a stream."""
        with self._on(stream):
            made, start = self._calls_made(), perf_counter()
            try:
                self._call(steps)
            finally:
                self._seconds += perf_counter() - start
                self._driver_calls += self._calls_made() - made
        self._events += len(steps)
        self._allocations += sum(allocates for allocates, _, _ in steps)
        self._on_progress(self._events)

    def note_moment(self) -> None:
        """Note how the allocator stands."""
        now = self._account.statistics()
        self._moments.append(ReplayMoment(self._events, now.current, now.reserved))

    def _calls_made(self) -> int:
        return 0 if self._counter is None else self._counter.calls_made

    def _call(self, steps: Iterable[_Step]) -> None:
        live, allocate, deallocate = self._live, self._account.allocate, self._account.deallocate
        for allocates, number, size in steps:
            if allocates:
                try:
                    live[number] = allocate(size), size
                except OutOfMemoryError:
                    self._failures += 1
            elif block := live.pop(number, None):
                deallocate(*block)

    def _on(self, number: int) -> AbstractContextManager[object]:
        """Return the scope of a stream of the trace."""
        device = self._account.device
        if number == 0 or device.is_cpu:
            return nullcontext()
        if number not in self._streams:
            self._streams[number] = Stream(device, non_blocking=True)
        return ScopedStream(self._streams[number], sync_enter=False)

    def result(self) -> ReplayResult:
        """Return what was measured so far."""
        marks = self._account.statistics()
        return ReplayResult(
            allocator=self._account.name,
            device=self._account.device.alias,
            seconds=self._seconds,
            events=self._events,
            allocations=self._allocations - self._failures,
            failures=self._failures,
            peak_requested=marks.peak,
            peak_reserved=marks.peak_reserved,
            driver_calls=None if self._counter is None else self._driver_calls,
            moments=tuple(self._moments),
        )
