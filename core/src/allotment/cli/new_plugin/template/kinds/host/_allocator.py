"""The allocator of host memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from allotment import API_VERSION, AllocatorTraits, Availability, MemoryKind

from allotment_your_pool._options import YourPoolOptions

if TYPE_CHECKING:
    from allotment import Device

_ALIGNMENT: Final = 256


class YourPoolAllocator:
    """Memory of the host, taken from NumPy in multiples of a granularity.

    The allocator contract, a page of Allotment's documentation, says what each method must do and may count on. Core
    checks sizes, addresses and frees around these calls, and keeps the accounts.

    Parameters
    ----------
    options
        What configuration says; see `YourPoolOptions`.
    """

    api_version: ClassVar = API_VERSION
    traits: ClassVar = AllocatorTraits(
        memory_kind=MemoryKind.HOST, alignment=_ALIGNMENT, host_accessible=True, device_bound=False
    )
    Options: ClassVar = YourPoolOptions
    deallocate_requires_context_guard: ClassVar = False

    def __init__(self, options: YourPoolOptions | None = None) -> None:
        self._options = options or YourPoolOptions()
        self._buffers: dict[int, np.ndarray[Any, Any]] = {}
        """What keeps each block alive, by its address. Threads and finalisers may come at any time: each method changes
        it once, in one step."""

    def allocate(self, size_in_bytes: int) -> int:
        """Return the address of a new block. A MemoryError becomes an OutOfMemoryError with the figures of the host."""
        try:
            buffer = np.empty(self._options.rounded(size_in_bytes) + _ALIGNMENT, np.uint8)
        except ValueError as error:  # NumPy's answer to a size that no array can have
            raise MemoryError(str(error)) from error
        ptr = -(-buffer.ctypes.data // _ALIGNMENT) * _ALIGNMENT
        self._buffers[ptr] = buffer
        return ptr

    def deallocate(self, ptr: int, size_in_bytes: int) -> None:  # noqa: ARG002 - the buffer knows its size
        """Take a block back."""
        del self._buffers[ptr]

    @classmethod
    def availability(cls, device: Device) -> Availability:
        """Say whether it works on a device; cheap, and without an effect."""
        return Availability(device.is_cpu, "" if device.is_cpu else "it serves device 'cpu' only")
