"""The allocator over a memory resource of RMM."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, cast

from allotment import API_VERSION, Availability, InvalidPointerError, PlatformError, Reservation, get_device, get_stream
from allotment_rmm._options import Resource, RmmOptions
from allotment_rmm._resource import (
    HOW_TO_GET,
    RmmStreams,
    current_resource,
    is_installed,
    kind_of,
    make_resource,
    memory_resources,
)

if TYPE_CHECKING:
    from typing import Self

    from allotment import AllocatorTraits, Device, Stream

_REAL: Final = "cuda"
"""The name of the platform that RMM works on."""
_OUT_OF_MEMORY: Final = "cudaErrorMemoryAllocation"


class RmmAllocator:
    """Device memory from a memory resource of RMM.

    Parameters
    ----------
    device
        The device it serves. Without one, as the guides make it, one object serves all devices: each block comes from
        the resource that is current in RMM for its device when it is allocated.
    options
        See `RmmOptions`.

    Attributes
    ----------
    resource
        RMM's own object; ``None`` if it is asked for with each block.
    memory_kind
        The kind of memory, as far as RMM's object says.

    Raises
    ------
    ImportError
        If RMM is not installed.
    UnsupportedError
        If the current resource of RMM is wanted, and draws from Allotment.
    """

    api_version: ClassVar = API_VERSION
    Options: ClassVar = RmmOptions
    traits: AllocatorTraits = RmmOptions().traits
    exempt_from: ClassVar = {"E3": "RMM's resources ignore what the driver answers to a free, so that no failure shows"}
    follows_current_resource: ClassVar = False
    """Whether it draws from whatever is current in RMM; the bridge to RMM must not draw from it then."""

    def __new__(cls, *, device: Device | None = None, options: RmmOptions | None = None) -> Self:
        """Make an allocator of the kind that the arguments ask for."""
        kind: type[RmmAllocator] = cls
        if device is None:
            kind = SharedAllocator
        elif options is not None and options.resource is Resource.POOL:
            kind = PoolAllocator
        return cast("Self", super().__new__(kind))

    def __init__(self, *, device: Device | None = None, options: RmmOptions | None = None) -> None:
        memory_resources()
        self.device, self.options = device, options or RmmOptions()
        self._streams = RmmStreams()
        self.resource = self._make_resource()
        self.traits = self._find_traits()
        self.memory_kind = self.traits.memory_kind
        if self.options.resource is Resource.CURRENT and self.resource is not None:
            self.memory_kind = kind_of(self.resource)

    def _make_resource(self) -> Any:
        assert self.device is not None
        return make_resource(self.options, self.device)

    def _find_traits(self) -> AllocatorTraits:
        return self.options.traits

    def __repr__(self) -> str:
        return f"<RmmAllocator over {type(self.resource).__name__}>"

    @classmethod
    def traits_for(cls, options: RmmOptions) -> AllocatorTraits:
        """Return what holds of memory of a resource."""
        return options.traits

    def allocate_on(self, size_in_bytes: int, stream: Stream) -> int:
        """Return a block that work queued on ``stream`` from now on may use."""
        try:
            ptr: int = self.resource.allocate(size_in_bytes, self._streams[stream.handle])
        except MemoryError as error:
            _raise_as_meant(error)
        return ptr

    def deallocate_on(self, ptr: int, size_in_bytes: int, stream: Stream) -> None:
        """Give a block back to the resource once the work queued on ``stream`` so far is done."""
        self.resource.deallocate(ptr, size_in_bytes, self._streams[stream.handle])

    def allocate(self, size_in_bytes: int) -> int:
        """Return a block that work on the stream in force may use."""
        return self.allocate_on(size_in_bytes, get_stream(self.device))

    def deallocate(self, ptr: int, size_in_bytes: int) -> None:
        """Give a block back in the order of the stream in force."""
        self.deallocate_on(ptr, size_in_bytes, get_stream(self.device))

    def close(self) -> None:
        """Let go of the resource, which gives back what is its own."""
        if self.device is not None:
            self.device.synchronize()
        self.resource = None

    @classmethod
    def availability(cls, device: Device) -> Availability:
        """Tell whether RMM is installed and can work on the device."""
        if device.is_cpu:
            return Availability(ok=False, reason="RMM hands out memory of CUDA devices")
        if not is_installed():
            return Availability(ok=False, reason=HOW_TO_GET)
        if device.platform.name != _REAL:
            reason = f"RMM calls the CUDA driver itself, which knows nothing of the platform {device.platform.name!r}"
            return Availability(ok=False, reason=reason)
        return Availability(ok=True)


class PoolAllocator(RmmAllocator):
    """Device memory from a pool of RMM, which tells how large it is and never shrinks."""

    def reservation(self) -> Reservation:
        """Return what the pool holds of the device."""
        size: int = self.resource.pool_size()
        return Reservation(current=size, peak=size)

    def reset_peak_reservation(self) -> None:
        """Do nothing: the pool never held more than it holds."""


class SharedAllocator(RmmAllocator):
    """Memory of any device from the resource that is current in RMM then: what the guides call ``AllocatorRmm``.

    Each block returns to the resource that made it, on the stream that it was allocated on.
    """

    traits = replace(RmmOptions().traits, device_bound=False)
    follows_current_resource: ClassVar = True

    def __init__(self, *, device: Device | None = None, options: RmmOptions | None = None) -> None:
        super().__init__(device=device, options=options)
        self._blocks: dict[int, tuple[Any, Any]] = {}

    def _make_resource(self) -> Any:
        return None

    def _find_traits(self) -> AllocatorTraits:
        return type(self).traits

    def __repr__(self) -> str:
        return f"<RmmAllocator over RMM's current resource: {len(self._blocks)} blocks>"

    def allocate_on(self, size_in_bytes: int, stream: Stream) -> int:
        """Return a block that work queued on ``stream`` from now on may use; 0 for no bytes."""
        if not size_in_bytes:
            return 0
        resource, rmm_stream = current_resource(stream.device.ordinal), self._streams[stream.handle]
        try:
            ptr: int = resource.allocate(size_in_bytes, rmm_stream)
        except MemoryError as error:
            _raise_as_meant(error)
        self._blocks[ptr] = resource, rmm_stream
        return ptr

    def deallocate_on(self, ptr: int, size_in_bytes: int, stream: Stream | None) -> None:  # noqa: ARG002 - it has its own
        """Give a block back to the resource that made it; 0 is nothing.

        Raises
        ------
        InvalidPointerError
            If it is not a live block.
        """
        if not ptr:
            return
        block = self._blocks.pop(ptr, None)
        if block is None:
            raise InvalidPointerError(pointer=ptr, allocator="rmm")
        resource, rmm_stream = block
        try:
            resource.deallocate(ptr, size_in_bytes, rmm_stream)
        except BaseException:
            self._blocks[ptr] = block
            raise

    def allocate(self, size_in_bytes: int) -> int:
        """Return a block of the current device that work on the stream in force there may use."""
        return self.allocate_on(size_in_bytes, get_stream(get_device("cuda")))

    def deallocate(self, ptr: int, size_in_bytes: int) -> None:
        """Give a block back on the stream that it was allocated on."""
        self.deallocate_on(ptr, size_in_bytes, None)


def _raise_as_meant(error: MemoryError) -> NoReturn:
    """Raise the driver's failure that RMM tells of as a lack of memory, or the error itself if memory is what lacks."""
    named = re.search(r"(cudaError\w+)(.*)", str(error))
    if named is None or named[1] == _OUT_OF_MEMORY:
        raise error
    raise PlatformError(call="RMM", code=named[1], detail=named[2].strip()) from error
