"""Plain device memory for Allotment: ``cudaMalloc`` and ``cudaFree``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from allotment import API_VERSION, AllocatorTraits, Availability, IpcKind, MemoryKind

if TYPE_CHECKING:
    from allotment import Device

__all__ = ["DefaultAllocator"]


class DefaultAllocator:
    """Device memory by ``cudaMalloc``.

    Each allocation and each free is a call to the driver that waits for the device, so this is the slow, simple choice:
    for few large arrays, for memory that another process maps (CUDA IPC), and where memory pools are not supported.

    Parameters
    ----------
    device
        The device it serves.
    """

    api_version: ClassVar = API_VERSION
    traits: ClassVar = AllocatorTraits(memory_kind=MemoryKind.CUDA_DEVICE, alignment=512, ipc=IpcKind.LEGACY)
    # 512: every cudaMalloc of the recording in tests/truth is aligned so; CUDA itself promises 256.

    def __init__(self, *, device: Device) -> None:
        self.allocate = device.platform.malloc
        self._free = device.platform.free

    def deallocate(self, ptr: int, size_in_bytes: int) -> None:  # noqa: ARG002 - the contract gives the size
        """Give a block back to the driver, which waits for the device first."""
        self._free(ptr)

    @classmethod
    def availability(cls, device: Device) -> Availability:
        """Say that any CUDA device will do."""
        return Availability(device.is_cuda, "" if device.is_cuda else "cudaMalloc memory is memory of a CUDA device")
