"""The allocator of managed memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from allotment import (
    API_VERSION,
    AllocatorTraits,
    Availability,
    MemoryAdvice,
    MemoryKind,
    UnsupportedError,
    get_device,
    get_stream,
)
from allotment_managed._options import Location, ManagedOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment import Device

_HOST = -1


class ManagedAllocator:
    """Memory that host and devices address alike and whose pages the driver moves to whoever touches them.

    One instance serves all devices: each block belongs to the device that is current when it is allocated, which must
    support managed memory. The object can be made before any device is chosen.

    Parameters
    ----------
    options
        See `ManagedOptions`. Advice needs a device with concurrent managed access, which is asked of the device and
        never guessed from the system.
    """

    api_version: ClassVar = API_VERSION
    traits: ClassVar = AllocatorTraits(memory_kind=MemoryKind.CUDA_MANAGED, alignment=512, device_bound=False)
    Options: ClassVar = ManagedOptions
    deallocate_requires_context_guard: ClassVar = False

    def __init__(self, options: ManagedOptions | None = None) -> None:
        self.options = options or ManagedOptions()
        self._free: Callable[[int], None] | None = None

    def allocate(self, size_in_bytes: int) -> int:
        """Return a block that belongs to the current device.

        Raises
        ------
        UnsupportedError
            If there is no CUDA device, the device has no managed memory, or advice is configured that it cannot follow.
        """
        device = get_device("cuda")
        self._require_support(device)
        self._free = device.platform.free  # the blocks may outlive the time in which their platform is in force
        ptr = device.platform.malloc_managed(size_in_bytes)
        if self.options.is_advice:
            try:
                self._advise(device, ptr, size_in_bytes)
            except BaseException:
                device.platform.free(ptr)
                raise
        return ptr

    def deallocate(self, ptr: int, size_in_bytes: int) -> None:  # noqa: ARG002 - the contract gives the size
        """Give a block back to the driver, which waits for the device first."""
        assert self._free is not None
        self._free(ptr)

    def _require_support(self, device: Device) -> None:
        if not device.is_managed_memory_supported:
            raise UnsupportedError(f"device {device.alias!r} does not support managed memory")
        if self.options.is_advice and not device.is_concurrent_managed_access_supported:
            raise UnsupportedError(
                f"device {device.alias!r} has no concurrent managed access, so it takes no advice about managed "
                "memory: leave the options of allocator 'managed' at their defaults"
            )

    def _advise(self, device: Device, ptr: int, nbytes: int) -> None:
        advise, options = device.platform.advise, self.options
        if options.read_mostly:
            advise(ptr, nbytes, MemoryAdvice.SET_READ_MOSTLY, device.ordinal)
        if options.accessed_by_host:
            advise(ptr, nbytes, MemoryAdvice.SET_ACCESSED_BY, _HOST)
        if options.preferred_location is not Location.NONE:
            advise(ptr, nbytes, MemoryAdvice.SET_PREFERRED_LOCATION, _ordinal(options.preferred_location, device))
        if options.prefetch is not Location.NONE:
            stream = get_stream(device).handle
            device.platform.prefetch(ptr, nbytes, _ordinal(options.prefetch, device), stream, device.ordinal)

    @classmethod
    def availability(cls, device: Device) -> Availability:
        """Ask the device whether it has managed memory."""
        if device.is_cpu:
            return Availability(ok=False, reason="managed memory is allocated under a CUDA device")
        if not device.is_managed_memory_supported:
            return Availability(ok=False, reason="the device does not support managed memory; use allocator 'default'")
        return Availability(ok=True)


def _ordinal(location: Location, device: Device) -> int:
    return _HOST if location is Location.HOST else device.ordinal
