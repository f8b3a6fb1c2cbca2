"""The memory pool of PyTorch that the requests of one device go to."""

from __future__ import annotations

from contextlib import contextmanager
from threading import RLock
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from allotment_torch_bridge._library import keep_for_ever

if TYPE_CHECKING:
    from collections.abc import Iterator

_SMALL: Final = 512
GRACE: Final = 1.0
"""Seconds after which no request that chose a pool before it was given up can still be on its way to it."""


class Route:
    """Sends what all threads and streams request of a device to a pool over a pluggable allocator.

    PyTorch takes a route for a capture that is underway. While it lasts, blocks that other streams use are not reused
    after they are freed, and idle segments are not given back. `rest` and `renew` make up for both.

    Parameters
    ----------
    torch
        The library.
    ordinal
        The device's number.
    allocator
        The pluggable allocator.
    """

    def __init__(self, torch: Any, ordinal: int, allocator: Any) -> None:
        self._torch, self._c, self.ordinal, self._allocator = torch, torch._C, ordinal, allocator
        # That of the time before anybody put something in its place.
        self._give_back_idle = torch._C._cuda_emptyCache
        self.is_used = False
        """Whether PyTorch has drawn anything: before, the device may have no context, and none is opened."""
        self._lock = RLock()
        self._is_renewed = False
        self._pins: list[tuple[float, int]] = []
        self._stray: int | None = None
        self._id: tuple[int, int] | None = None

    @property
    def is_open(self) -> bool:
        """Whether requests go to it."""
        return self._id is not None

    def open(self) -> None:
        """Send requests to a new pool from now on."""
        with self._lock:
            before = self._torch.cuda._maybe_exchange_device(self.ordinal)
            try:
                pool = self._torch.cuda.MemPool(self._allocator)
            finally:
                self._torch.cuda._maybe_exchange_device(before)
            keep_for_ever(pool)  # its end would be checked for what `_give_up` does in its place
            self._c._cuda_beginAllocateToPool(self.ordinal, pool.id)
            self._id = pool.id

    def leave(self) -> None:
        """Send no more requests to it, at the end of the process."""
        with self._lock:
            if self._id is not None:
                self._c._cuda_endAllocateToPool(self.ordinal, self._id)
                self._id = None

    def close(self) -> None:
        """Send no more requests to it. What is idle is given back, and the rest when it is freed."""
        with self._lock:
            if self._id is None:
                return
            is_pinned = self.is_used and self._pin()
            pool, self._id = self._id, None
            self._c._cuda_endAllocateToPool(self.ordinal, pool)
            self._c._cuda_releasePool(self.ordinal, pool)
            if is_pinned:
                self._give_up(pool)
            if self._stray is not None:
                self._stray = self._c._cuda_cudaCachingAllocator_raw_delete(self._stray)

    def _give_up(self, pool: tuple[int, int]) -> None:
        """Let nobody use a pool any more, which its own object would do at its end."""
        self._c._cuda_releasePool(self.ordinal, pool)
        self._give_back_idle()

    # Making up for the capture that there is not

    def rest(self) -> None:
        """Let PyTorch look for blocks that streams are done with, as it does in each request without a route."""
        if not self._has_waiting_blocks():
            return
        with self._lock, self._away(), self._torch.cuda.device(self.ordinal):
            if self._stray is None:
                self._stray = self._c._cuda_cudaCachingAllocator_raw_alloc(_SMALL, 0)
            looking = self._c._cuda_cudaCachingAllocator_raw_alloc(_SMALL, 0)
            self._c._cuda_cudaCachingAllocator_raw_delete(looking)

    def _has_waiting_blocks(self) -> bool:
        stats = self._c._cuda_memoryStats(self.ordinal)
        active, allocated = (stats[kind]["all"]["current"] for kind in ("active", "allocation"))
        return bool(active > allocated)

    @contextmanager
    def _away(self) -> Iterator[None]:
        """Send requests to PyTorch's own pool for a moment."""
        pool = self._id
        if pool is None:
            yield
            return
        self._c._cuda_endAllocateToPool(self.ordinal, pool)
        try:
            yield
        finally:
            self._c._cuda_beginAllocateToPool(self.ordinal, pool)
            self._c._cuda_releasePool(self.ordinal, pool)  # which was in use twice for a moment

    def renew(self) -> bool:
        """Give idle segments back; return whether there were any.

        PyTorch gives back the idle segments of pools that nobody uses, so that requests go to a new one from now on.
        """
        with self._lock:
            if self._id is None or not self.is_used or self._is_renewed:
                return False
            self._is_renewed = True
            try:
                return self._renew(self._id)
            finally:
                self._is_renewed = False

    def _renew(self, pool: tuple[int, int]) -> bool:
        with self._away():
            self._give_back_idle()  # which looks for blocks that streams are done with, too
        if not self._has_idle_segment() or not self._pin():
            return False
        self.open()
        self._c._cuda_endAllocateToPool(self.ordinal, pool)
        self._c._cuda_releasePool(self.ordinal, pool)
        self._give_up(pool)
        return True

    def _has_idle_segment(self) -> bool:
        return any(not segment["active_size"] for segment in self._segments())

    def _segments(self) -> list[dict[str, Any]]:
        # Of all pools: asked of one, PyTorch 2.11 drops a reference to each number of its id too many.
        found = self._torch.cuda.memory_snapshot()
        return [each for each in found if each["device"] == self.ordinal and each["segment_pool_id"] == self._id]

    def _pin(self) -> bool:
        """Hold a block of the pool, so that it outlives a request of another thread that is on its way to it."""
        try:
            with self._torch.cuda.device(self.ordinal):
                ptr = self._c._cuda_cudaCachingAllocator_raw_alloc(_SMALL, 0)
        except self._torch.OutOfMemoryError:
            return False
        if not any(0 <= ptr - segment["address"] < segment["total_size"] for segment in self._segments()):
            self._c._cuda_cudaCachingAllocator_raw_delete(ptr)  # this thread is in a torch.cuda.use_mem_pool
            return False
        self._pins.append((monotonic(), ptr))
        return True

    def unpin(self) -> bool:
        """Let pools go that no request can be on its way to any more; return whether there are others."""
        with self._lock:
            due = [pin for pin in self._pins if pin[0] + GRACE < monotonic()]
            for pin in due:
                self._pins.remove(pin)
                self._c._cuda_cudaCachingAllocator_raw_delete(pin[1])
            if due:
                self._give_back_idle()
            return bool(self._pins)
