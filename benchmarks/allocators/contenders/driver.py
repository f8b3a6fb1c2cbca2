"""CUDA's own allocators, called through CuPy's runtime and through cuda.core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.allocators.session import Streams, library

if TYPE_CHECKING:
    from collections.abc import Callable

ALL_OF_IT = (1 << 64) - 1


class DefaultPool:
    """The memory pool that a device comes with, told to keep what it has; it knows its own high-water mark."""

    def __init__(self) -> None:
        self._runtime = library("cupy").cuda.runtime
        self._runtime.free(0)  # opens the context
        self.handle: int = self._runtime.deviceGetDefaultMemPool(0)
        self._runtime.memPoolSetAttribute(self.handle, self._runtime.cudaMemPoolAttrReleaseThreshold, ALL_OF_IT)

    def reserved(self) -> int:
        """Return what it holds."""
        return int(self._runtime.memPoolGetAttribute(self.handle, self._runtime.cudaMemPoolAttrReservedMemCurrent))

    def peak_reserved(self) -> int:
        """Return the most that it held in this process."""
        return int(self._runtime.memPoolGetAttribute(self.handle, self._runtime.cudaMemPoolAttrReservedMemHigh))


class AsyncSession(DefaultPool):
    """``cudaMallocAsync`` and ``cudaFreeAsync``."""

    def __init__(self, limit: int | None) -> None:
        assert limit is None
        super().__init__()
        cupy = library("cupy")
        self._streams = Streams(0, lambda: cupy.cuda.Stream(non_blocking=True))
        self._malloc, self._free, self._stream = self._runtime.mallocAsync, self._runtime.freeAsync, 0

    def allocate(self, size: int) -> Any:
        """Allocate on the stream in use."""
        return self._malloc(size, self._stream)

    def free(self, block: int, size: int) -> None:  # noqa: ARG002 - the shape of a session
        """Free on the stream in use."""
        self._free(block, self._stream)

    def use(self, stream: int) -> None:
        """Take a stream's handle."""
        chosen = self._streams[stream]
        self._stream = getattr(chosen, "ptr", chosen)

    def pair(self, size: int) -> Callable[[], object]:
        """Return the two calls, on the null stream."""
        malloc, free = self._malloc, self._free

        def allocate_and_free() -> None:
            free(malloc(size, 0), 0)

        return allocate_and_free


class CudaMallocSession:
    """``cudaMalloc`` and ``cudaFree``; it holds what is live, in an unknown number of whole pages."""

    def __init__(self, limit: int | None) -> None:
        assert limit is None
        runtime = library("cupy").cuda.runtime
        runtime.free(0)
        self.allocate, self._free = runtime.malloc, runtime.free

    def free(self, block: int, size: int) -> None:  # noqa: ARG002 - the shape of a session
        """Free."""
        self._free(block)

    def use(self, stream: int) -> None:
        """Do nothing: it knows no streams."""

    def pair(self, size: int) -> Callable[[], object]:
        """Return the two calls."""
        allocate, free = self.allocate, self._free

        def allocate_and_free() -> None:
            free(allocate(size))

        return allocate_and_free

    def reserved(self) -> None:
        """Return nothing: it does not say."""

    def peak_reserved(self) -> None:
        """Return nothing: it does not say."""


class CoreSession(DefaultPool):
    """``Device.allocate`` of cuda.core, from the device's default pool, and ``Buffer.close``."""

    def __init__(self, limit: int | None) -> None:
        assert limit is None
        super().__init__()
        device = library("cuda.core").Device(0)
        device.set_current()
        self._allocate = device.allocate
        self._streams = Streams(device.default_stream, device.create_stream)
        self._stream = self._streams[0]

    def allocate(self, size: int) -> Any:
        """Allocate on the stream in use."""
        return self._allocate(size, stream=self._stream)

    def free(self, block: Any, size: int) -> None:  # noqa: ARG002 - the shape of a session
        """Close the buffer, on the stream that it was allocated on."""
        block.close()

    def use(self, stream: int) -> None:
        """Take a stream."""
        self._stream = self._streams[stream]

    def pair(self, size: int) -> Callable[[], object]:
        """Return the two calls."""
        allocate, stream = self._allocate, self._stream

        def allocate_and_free() -> None:
            allocate(size, stream=stream).close()

        return allocate_and_free
