"""The cache of page-locked blocks."""

from __future__ import annotations

from collections import OrderedDict, deque
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING, ClassVar, Final

from allotment import API_VERSION, AllocatorTraits, Availability, MemoryKind, Reservation, get_device
from allotment_pinned._options import PinnedOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allotment import Device, Platform, Stream

_GRANULE: Final = 4096
"""Blocks are rounded up to pages, which page-locking works in anyway: at most 4095 bytes are lost."""
_FIT: Final = 8
"""An idle block is reused if at most one in so many of its bytes would be left over."""


class PinnedAllocator:
    """Page-locked host memory that devices copy from and to without waiting, kept for reuse.

    A block that work of a stream still uses (`record_use`) is reused once that work is done, so dropping an array right
    after an asynchronous copy is safe.

    Parameters
    ----------
    options
        See `PinnedOptions`.
    """

    api_version: ClassVar = API_VERSION
    traits: ClassVar = AllocatorTraits(
        memory_kind=MemoryKind.PINNED, alignment=512, host_accessible=True, device_bound=False
    )
    Options: ClassVar = PinnedOptions

    def __init__(self, options: PinnedOptions | None = None) -> None:
        self._cache_limit = (options or PinnedOptions()).cache_limit.resolve(0)
        self._lock = RLock()  # reentrant: a finaliser may free a block while this thread is in here
        self._is_busy = False
        self._deferred: list[tuple[int, list[int]]] = []
        """What finalisers freed in the middle of another call: address, events."""
        self._platform: Platform | None = None
        self._capacities: dict[int, int] = {}
        """Capacity by address of the blocks handed out."""
        self._streams: dict[int, set[Stream]] = {}
        """The streams that use a block, by its address."""
        self._in_flight: deque[tuple[int, int, list[int]]] = deque()
        """Freed blocks whose last work may not be done: address, capacity, events."""
        self._idle: OrderedDict[int, int] = OrderedDict()
        """Capacity by address of blocks that nobody uses, the longest idle first."""
        self._cached = self._reserved = self._peak = 0

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other threads out, and let a finaliser that frees meanwhile only leave a note."""
        with self._lock:
            if self._is_busy:
                yield
                return
            self._is_busy = True
            try:
                self._absorb_deferred()
                yield
            finally:
                self._absorb_deferred()
                self._is_busy = False

    def _absorb_deferred(self) -> None:
        while self._deferred:
            self._set_aside(*self._deferred.pop())

    # Allocation

    def allocate(self, size_in_bytes: int) -> int:
        """Return a block from the cache, or a new one; where the system refuses, after giving the cache back."""
        capacity = -(-size_in_bytes // _GRANULE) * _GRANULE
        with self._alone():
            self._collect_finished()
            self._shrink_cache(self._cache_limit)
            return self._take_idle(capacity) or self._lock_pages(capacity)

    def _take_idle(self, capacity: int) -> int:
        """Return the smallest idle block that fits without much waste; 0 if none does."""
        largest = capacity + capacity // _FIT
        fitting = [(held, ptr) for ptr, held in self._idle.items() if capacity <= held <= largest]
        if not fitting:
            return 0
        held, ptr = min(fitting)
        del self._idle[ptr]
        self._cached -= held
        self._capacities[ptr] = held
        return ptr

    def _lock_pages(self, capacity: int) -> int:
        platform = self._current_platform()
        try:
            ptr = platform.host_alloc(capacity)
        except Exception as error:
            refused = platform.error_from(error)
            if refused is None or not refused.is_out_of_memory or not self._give_back(0):
                raise
            ptr = platform.host_alloc(capacity)
        self._capacities[ptr] = capacity
        self._reserved += capacity
        self._peak = max(self._peak, self._reserved)
        return ptr

    def _current_platform(self) -> Platform:
        if self._platform is None:
            self._platform = get_device("cpu").platform
        return self._platform

    # Uses and frees

    def record_use(self, ptr: int, stream: Stream) -> None:
        """Note that the present work of ``stream`` uses the block at ``ptr``."""
        with self._lock:
            self._streams.setdefault(ptr, set()).add(stream)

    def deallocate(self, ptr: int, size_in_bytes: int) -> None:  # noqa: ARG002 - the capacity is known here
        """Keep the block for reuse, once the work that uses it is done."""
        with self._lock:
            events = self._mark_uses(ptr)
            if self._is_busy:
                self._deferred.append((ptr, events))
                return
            with self._alone():
                if events or self._has_room_for(self._capacities[ptr]):
                    self._set_aside(ptr, events)
                else:
                    self._unlock_pages(ptr, self._capacities[ptr])
                    del self._capacities[ptr]

    def _mark_uses(self, ptr: int) -> list[int]:
        """Return an event for each stream that uses the block, recorded at the stream's present end."""
        events: list[int] = []
        try:
            for stream in self._streams.get(ptr, ()):
                if not stream.is_closed:
                    platform, ordinal = stream.device.platform, stream.device.ordinal
                    events.append(platform.create_event(ordinal))
                    platform.record_event(events[-1], stream.handle, ordinal)
        except BaseException:
            self._destroy(events)
            raise
        self._streams.pop(ptr, None)
        return events

    def _set_aside(self, ptr: int, events: list[int]) -> None:
        """Take a block back. This calls nothing and cannot fail."""
        capacity = self._capacities.pop(ptr)
        if events:
            self._in_flight.append((ptr, capacity, events))
        else:
            self._keep(ptr, capacity)

    def _keep(self, ptr: int, capacity: int) -> None:
        self._idle[ptr] = capacity
        self._cached += capacity

    # Reuse and giving back

    def _collect_finished(self, *, wait: bool = False) -> None:
        """Move freed blocks whose work is done to the cache; with ``wait``, all of them."""
        platform = self._current_platform()
        for _ in range(len(self._in_flight)):
            ptr, capacity, events = self._in_flight[0]
            if not wait and not all(platform.event_is_done(event) for event in events):
                self._in_flight.rotate(-1)
                continue
            if wait:
                for event in events:
                    platform.synchronize_event(event)
            self._in_flight.popleft()
            self._keep(ptr, capacity)
            self._destroy(events)

    def _destroy(self, events: list[int]) -> None:
        for event in events:
            self._current_platform().destroy_event(event)

    def _has_room_for(self, capacity: int) -> bool:
        """Make room for one more idle block; return whether it fits into the cache at all."""
        if capacity > self._cache_limit:
            return False
        self._shrink_cache(self._cache_limit - capacity)
        return True

    def _shrink_cache(self, keep_bytes: int) -> None:
        while self._cached > keep_bytes:
            ptr, capacity = next(iter(self._idle.items()))
            self._unlock_pages(ptr, capacity)
            del self._idle[ptr]
            self._cached -= capacity

    def _unlock_pages(self, ptr: int, capacity: int) -> None:
        """Give a block back to the system. If that fails it is still ours: callers change their books afterwards."""
        self._current_platform().host_free(ptr)
        self._reserved -= capacity

    def _give_back(self, keep_bytes: int) -> int:
        before = self._reserved
        self._collect_finished(wait=True)
        in_use = self._reserved - self._cached
        self._shrink_cache(max(keep_bytes - in_use, 0))
        return before - self._reserved

    def trim(self, keep_bytes: int = 0) -> int:
        """Wait for work in flight and give idle blocks back until at most ``keep_bytes`` are reserved."""
        with self._alone():
            return self._give_back(keep_bytes)

    def reservation(self) -> Reservation:
        """Return what is page-locked, in use and idle."""
        with self._lock:
            return Reservation(current=self._reserved, peak=self._peak)

    def reset_peak_reservation(self) -> None:
        """Set the peak to the current value."""
        with self._lock:
            self._peak = self._reserved

    def close(self) -> None:
        """Give all idle blocks back."""
        self.trim(0)

    @classmethod
    def availability(cls, device: Device) -> Availability:
        """Say that it serves the host, where there is a CUDA device that page-locking is for."""
        if device.is_cuda:
            return Availability(ok=False, reason="page-locked memory is host memory: it serves device 'cpu'")
        if device.platform.device_count() == 0:
            return Availability(ok=False, reason=f"there is no CUDA device to lock pages for ({device.platform.why})")
        return Availability(ok=True)
