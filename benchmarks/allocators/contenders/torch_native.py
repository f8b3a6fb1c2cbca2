"""PyTorch's caching allocator, by way of its C functions and of its documented Python ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.allocators.session import Streams, library
from benchmarks.contenders import torch_pair

if TYPE_CHECKING:
    from collections.abc import Callable


class TorchSession:
    """``raw_alloc`` and ``raw_delete``: what is below `torch.cuda.caching_allocator_alloc`, without its Python.

    Parameters
    ----------
    limit
        For ``set_per_process_memory_fraction``.
    """

    def __init__(self, limit: int | None) -> None:
        self._torch = torch = library("torch")
        torch.cuda.init()
        torch.cuda.synchronize()  # opens the context
        if limit is not None:
            torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(0).total_memory)
        self._alloc = torch._C._cuda_cudaCachingAllocator_raw_alloc
        self._delete = torch._C._cuda_cudaCachingAllocator_raw_delete
        self._streams = Streams(0, torch.cuda.Stream)
        self._stream = 0

    def allocate(self, size: int) -> Any:
        """Allocate on the stream in use."""
        return self._alloc(size, self._stream)

    def free(self, block: int, size: int) -> None:  # noqa: ARG002 - the shape of a session
        """Free."""
        self._delete(block)

    def use(self, stream: int) -> None:
        """Take a stream's handle."""
        chosen = self._streams[stream]
        self._stream = getattr(chosen, "cuda_stream", chosen)

    def pair(self, size: int) -> Callable[[], object]:
        """Return the two calls, on the null stream."""
        alloc, delete = self._alloc, self._delete

        def allocate_and_free() -> None:
            delete(alloc(size, 0))

        return allocate_and_free

    def reserved(self) -> int:
        """Return PyTorch's own figure."""
        return int(self._torch.cuda.memory_reserved())

    def peak_reserved(self) -> int:
        """Return PyTorch's own high-water mark."""
        return int(self._torch.cuda.max_memory_reserved())


class DocumentedTorchSession(TorchSession):
    """``torch.cuda.caching_allocator_alloc`` and ``caching_allocator_delete``."""

    def pair(self, size: int) -> Callable[[], object]:
        """Return the two calls."""
        return torch_pair(self._torch, size)
