"""The allocator over PyTorch's cache of one device."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from allotment import (
    API_VERSION,
    AllocatorTraits,
    Availability,
    MemoryKind,
    PluginUnavailableError,
    Reservation,
    get_stream,
)
from allotment_torch_caching._options import TorchCachingOptions
from allotment_torch_caching._private_pool import TorchPrivatePool

if TYPE_CHECKING:
    from allotment import Device, Stream


class TorchCachingAllocator:
    """Device memory from PyTorch's caching allocator, which PyTorch itself draws from in the same process.

    A block is for the stream that it was allocated on, and serves again when the work queued there before its free is
    done: nobody waits. Idle memory is given back when PyTorch needs it, or by `trim`.

    Parameters
    ----------
    device
        The device it serves.
    options
        See `TorchCachingOptions`.

    Raises
    ------
    PluginUnavailableError
        If this PyTorch has no CUDA.
    """

    api_version: ClassVar = API_VERSION
    traits = AllocatorTraits(memory_kind=MemoryKind.CUDA_DEVICE, alignment=512, stream_ordered=True, capturable=True)
    Options: ClassVar = TorchCachingOptions
    deallocate_requires_context_guard: ClassVar = False
    draws_from: ClassVar = "torch"
    """Whose memory it is: that library's bridge does not draw from it."""

    def __init__(self, *, device: Device, options: TorchCachingOptions | None = None) -> None:
        import torch

        if not torch.cuda.is_available():
            raise PluginUnavailableError(
                allocator="torch-caching", cause=f"PyTorch {torch.__version__} sees no CUDA device"
            )
        backend = torch.cuda.get_allocator_backend()
        if backend != "native":
            raise PluginUnavailableError(
                allocator="torch-caching",
                cause=f"PyTorch uses the allocator {backend!r} in the place of its caching one",
            )
        torch.cuda.init()
        self.device, self.options = device, options or TorchCachingOptions()
        self._torch, self._ordinal = torch, device.ordinal
        self._raw_alloc = getattr(torch._C, "_cuda_cudaCachingAllocator_raw_alloc", None)
        if _maps_memory(torch):
            self.traits = replace(self.traits, mapped=True)

    def allocate_on(self, size_in_bytes: int, stream: Stream) -> int:
        """Return a block that work queued on ``stream`` from now on may use.

        Raises
        ------
        MemoryError
            If PyTorch has no memory. What it says is the message.
        """
        return self.draw(size_in_bytes, stream.handle)

    def draw(self, size_in_bytes: int, handle: int) -> int:
        """Return a block for the work of a stream, drawn from the pool that PyTorch draws from now."""
        cuda = self._torch.cuda
        try:
            if self._raw_alloc is not None and cuda.current_device() == self._ordinal:
                ptr: int = self._raw_alloc(size_in_bytes, handle)  # as the public function does
            else:
                ptr = cuda.caching_allocator_alloc(size_in_bytes, self._ordinal, handle)
        except self._torch.OutOfMemoryError as error:
            raise MemoryError(str(error)) from error
        return ptr

    def deallocate_on(self, ptr: int, size_in_bytes: int, stream: Stream) -> None:  # noqa: ARG002 - as the contract
        """Take a block back: it serves later work of the stream that it was allocated on."""
        self._torch.cuda.caching_allocator_delete(ptr)

    def allocate(self, size_in_bytes: int) -> int:
        """Return a block that work on the stream in force may use."""
        return self.allocate_on(size_in_bytes, get_stream(self.device))

    def deallocate(self, ptr: int, size_in_bytes: int) -> None:
        """Take a block back."""
        self.deallocate_on(ptr, size_in_bytes, get_stream(self.device))

    def open_private_pool(self) -> TorchPrivatePool:
        """Return memory that is set apart for a graph."""
        return TorchPrivatePool(self, self._torch, self._ordinal)

    # What PyTorch holds

    def reservation(self) -> Reservation:
        """Return what PyTorch holds of the device, for itself and for Allotment."""
        cuda = self._torch.cuda
        return Reservation(current=cuda.memory_reserved(self._ordinal), peak=cuda.max_memory_reserved(self._ordinal))

    def reset_peak_reservation(self) -> None:
        """Set all of PyTorch's peaks for the device to the current values."""
        self._torch.cuda.reset_peak_memory_stats(self._ordinal)

    def figures(self) -> dict[str, Any]:
        """Return what PyTorch tells of its allocator: ``torch.cuda.memory_stats``."""
        return dict(self._torch.cuda.memory_stats(self._ordinal))

    def trim(self, keep_bytes: int = 0) -> int:
        """Let PyTorch give back what it holds idle, on all devices, if of this one that is more than ``keep_bytes``."""
        before: int = self._torch.cuda.memory_reserved(self._ordinal)
        if before <= keep_bytes:
            return 0
        self._torch.cuda.empty_cache()
        return before - int(self._torch.cuda.memory_reserved(self._ordinal))

    def close(self) -> None:
        """Let PyTorch give back what it holds idle."""
        self._torch.cuda.empty_cache()

    @classmethod
    def availability(cls, device: Device) -> Availability:
        """Return whether PyTorch is installed, without importing it, and the device is one that it can use."""
        if device.is_cpu:
            return Availability(ok=False, reason="it is PyTorch's memory of CUDA devices")
        if find_spec("torch") is None:
            return Availability(
                ok=False, reason="PyTorch is not installed: see https://pytorch.org/get-started/locally/"
            )
        if device.platform.name != "cuda":
            reason = f"PyTorch's memory is of real devices, and this one is of the platform {device.platform.name!r}"
            return Availability(ok=False, reason=reason)
        return Availability(ok=True)


def _maps_memory(torch: Any) -> bool:
    """Return whether PyTorch is told to map its segments, so that they can expand."""
    try:
        return bool(torch.cuda.memory._snapshot()["allocator_settings"]["expandable_segments"])
    except (AttributeError, KeyError):
        return False
