"""CuPy's two memory pools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.allocators.contenders.driver import DefaultPool
from benchmarks.allocators.session import Streams, library
from benchmarks.contenders import cupy_pair

if TYPE_CHECKING:
    from collections.abc import Callable


class _PoolSession:
    """What the two have in common: a block is freed by dropping it, and the stream is CuPy's current one."""

    allocate: Callable[[int], Any]

    def __init__(self, pool: Any) -> None:
        cupy = library("cupy")
        self.allocate = pool.malloc
        self._streams = Streams(cupy.cuda.Stream.null, lambda: cupy.cuda.Stream(non_blocking=True))

    def free(self, block: Any, size: int) -> None:
        """Do nothing: the caller drops the block."""

    def use(self, stream: int) -> None:
        """Make a stream the thread's current one."""
        self._streams[stream].use()

    def pair(self, size: int) -> Callable[[], object]:
        """Return a call that takes a block and drops it."""
        return cupy_pair(self.allocate, size)


class MemoryPoolSession(_PoolSession):
    """``cupy.cuda.MemoryPool``. It has no high-water mark, so what it draws is counted, at no cost to a hit.

    Parameters
    ----------
    limit
        For ``set_limit``.
    """

    def __init__(self, limit: int | None) -> None:
        cupy = library("cupy")
        cupy.cuda.runtime.free(0)
        self._held = self._peak = 0
        session = self

        class Counted(cupy.cuda.Memory):  # type: ignore[name-defined, misc]
            """Memory of cudaMalloc that is counted as long as it exists."""

            counted = 0

            def __init__(self, size: int) -> None:
                super().__init__(size)
                self.counted = size
                session._grow(size)

            def __del__(self) -> None:
                session._grow(-self.counted)

        self._pool = cupy.cuda.MemoryPool(lambda size: cupy.cuda.MemoryPointer(Counted(size), 0))
        if limit is not None:
            self._pool.set_limit(size=limit)
        super().__init__(self._pool)

    def _grow(self, size: int) -> None:
        self._held += size
        self._peak = max(self._peak, self._held)

    def reserved(self) -> int:
        """Return what the pool holds by its own figure."""
        return int(self._pool.total_bytes())

    def peak_reserved(self) -> int:
        """Return the most that it drew and had not given back."""
        return self._peak


class MemoryAsyncPoolSession(DefaultPool, _PoolSession):
    """``cupy.cuda.MemoryAsyncPool`` over the device's default pool."""

    def __init__(self, limit: int | None) -> None:
        assert limit is None
        DefaultPool.__init__(self)
        _PoolSession.__init__(self, library("cupy").cuda.MemoryAsyncPool("default"))
