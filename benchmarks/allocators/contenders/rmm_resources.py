"""RMM's memory resources that can be compared: pool, arena, binning over a pool, and the driver's pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.allocators.contenders.driver import DefaultPool
from benchmarks.allocators.session import Streams, library

if TYPE_CHECKING:
    from collections.abc import Callable

BINS = (18, 22)
"""The exponents of the smallest and the largest bin, as in RMM's own benchmarks."""


class _ResourceSession:
    """What all have in common: address, size and stream, as RMM's objects of that name."""

    def __init__(self, resource: Any) -> None:
        module = library("rmm.pylibrmm.stream")
        self._null = module.DEFAULT_STREAM
        self._streams = Streams(self._null, module.Stream)
        self._allocate, self._deallocate, self._stream = resource.allocate, resource.deallocate, self._null
        self._resource = resource

    def allocate(self, size: int) -> Any:
        """Allocate on the stream in use."""
        return self._allocate(size, self._stream)

    def free(self, block: int, size: int) -> None:
        """Free on the stream in use."""
        self._deallocate(block, size, self._stream)

    def use(self, stream: int) -> None:
        """Take a stream."""
        self._stream = self._streams[stream]

    def pair(self, size: int) -> Callable[[], object]:
        """Return the two calls, on the null stream."""
        allocate, deallocate, stream = self._allocate, self._deallocate, self._null

        def allocate_and_free() -> None:
            deallocate(allocate(size, stream), size, stream)

        return allocate_and_free


class _CountedSession(_ResourceSession):
    """A resource over cudaMalloc, with RMM's own statistics between the two."""

    def __init__(self, make: Callable[[Any, Any], Any]) -> None:
        mr = library("rmm.mr")
        library("cupy").cuda.runtime.free(0)
        self._drawn = mr.StatisticsResourceAdaptor(mr.CudaMemoryResource())
        super().__init__(make(mr, self._drawn))

    def reserved(self) -> int:
        """Return what was drawn and not given back."""
        return int(self._drawn.allocation_counts.current_bytes)

    def peak_reserved(self) -> int:
        """Return the most of it."""
        return int(self._drawn.allocation_counts.peak_bytes)


class PoolSession(_CountedSession):
    """``PoolMemoryResource``, grown from nothing: by default it would begin with half of the device."""

    def __init__(self, limit: int | None) -> None:
        super().__init__(
            lambda mr, upstream: mr.PoolMemoryResource(upstream, initial_pool_size=0, maximum_pool_size=limit)
        )


class ArenaSession(_CountedSession):
    """``ArenaMemoryResource``, which takes its memory at once: half of what is free, or the limit."""

    def __init__(self, limit: int | None) -> None:
        super().__init__(lambda mr, upstream: mr.ArenaMemoryResource(upstream, arena_size=limit))


class BinningSession(_CountedSession):
    """``BinningMemoryResource``: fixed sizes from 2^18 to 2^22, the rest from a pool grown from nothing."""

    def __init__(self, limit: int | None) -> None:
        assert limit is None
        super().__init__(
            lambda mr, upstream: mr.BinningMemoryResource(mr.PoolMemoryResource(upstream, initial_pool_size=0), *BINS)
        )


class AsyncSession(DefaultPool, _ResourceSession):
    """``CudaAsyncViewMemoryResource`` over the device's default pool, whose figures can be read."""

    def __init__(self, limit: int | None) -> None:
        assert limit is None
        mr = library("rmm.mr")
        DefaultPool.__init__(self)
        handle = library("cuda.bindings.runtime").cudaMemPool_t(self.handle)
        _ResourceSession.__init__(self, mr.CudaAsyncViewMemoryResource(handle))
