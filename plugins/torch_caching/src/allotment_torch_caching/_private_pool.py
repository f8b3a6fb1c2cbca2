"""Memory of PyTorch that is set apart for a graph."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

from allotment import UnsupportedError

if TYPE_CHECKING:
    from allotment import Stream
    from allotment_torch_caching._allocator import TorchCachingAllocator

_PARTS = ("_cuda_beginAllocateCurrentThreadToPool", "_cuda_endAllocateToPool", "_cuda_releasePool")


class TorchPrivatePool:
    """A pool as PyTorch keeps one for each of its own graphs: what is freed of it serves this graph alone.

    Parameters
    ----------
    allocator
        The allocator that draws.
    torch
        The library.
    ordinal
        The device's number.

    Raises
    ------
    UnsupportedError
        If this PyTorch has no such pools.
    """

    def __init__(self, allocator: TorchCachingAllocator, torch: Any, ordinal: int) -> None:
        lacking = next((name for name in _PARTS if not hasattr(torch._C, name)), None)
        if lacking is not None:
            raise UnsupportedError(
                f"allocator 'torch-caching' has no memory for graphs: "
                f"PyTorch {torch.__version__} has no torch._C.{lacking}"
            )
        self._allocator, self._torch, self._ordinal = allocator, torch, ordinal
        self._id = torch.cuda.graph_pool_handle()
        self._lock, self._is_begun = Lock(), False

    def allocate_on(self, size_in_bytes: int, stream: Stream) -> int:
        """Return a new block of it."""
        torch = self._torch
        # PyTorch looks at its own current stream to see whether it must not end a capture.
        with self._lock, torch.cuda.stream(torch.cuda.ExternalStream(stream.handle, self._ordinal)):
            torch._C._cuda_beginAllocateCurrentThreadToPool(self._ordinal, self._id)
            try:
                return self._allocator.draw(size_in_bytes, stream.handle)
            finally:
                torch._C._cuda_endAllocateToPool(self._ordinal, self._id)
                self._hold_once()

    def _hold_once(self) -> None:
        """Use the pool once, however often it was drawn from."""
        if self._is_begun:
            self._torch._C._cuda_releasePool(self._ordinal, self._id)
        self._is_begun = True

    def close(self) -> None:
        """Let what is idle of it serve others again, when PyTorch next gives back idle memory, and the rest later."""
        if self._is_begun:
            self._is_begun = False
            self._torch._C._cuda_releasePool(self._ordinal, self._id)
