"""The allocator of device memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from allotment import API_VERSION, AllocatorTraits, Availability, MemoryKind

from allotment_your_pool._options import YourPoolOptions

if TYPE_CHECKING:
    from allotment import Device


class YourPoolAllocator:
    """Memory of one device, taken from the driver in multiples of a granularity.

    The allocator contract, a page of Allotment's documentation, says what each method must do and may count on. Core
    checks sizes, addresses and frees around these calls, and keeps the accounts.

    Parameters
    ----------
    device
        The device to serve.
    options
        What configuration says; see `YourPoolOptions`.
    """

    api_version: ClassVar = API_VERSION
    traits: ClassVar = AllocatorTraits(memory_kind=MemoryKind.CUDA_DEVICE)
    Options: ClassVar = YourPoolOptions

    def __init__(self, *, device: Device, options: YourPoolOptions | None = None) -> None:
        self._platform = device.platform
        self._options = options or YourPoolOptions()

    def allocate(self, size_in_bytes: int) -> int:
        """Return the address of a new block. What the driver raises for want of memory becomes an OutOfMemoryError."""
        return self._platform.malloc(self._options.rounded(size_in_bytes))

    def deallocate(self, ptr: int, size_in_bytes: int) -> None:  # noqa: ARG002 - the driver knows the size
        """Take a block back."""
        self._platform.free(ptr)

    @classmethod
    def availability(cls, device: Device) -> Availability:
        """Say whether it works on a device; cheap, and without an effect."""
        return Availability(device.is_cuda, "" if device.is_cuda else "it serves CUDA devices only")
