"""Moving managed memory to where it is going to be used, as soon as it is allocated."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from allotment.errors import UnsupportedError
from allotment.layers.layer import Place
from allotment.memory_kind import MemoryKind
from allotment.platform import HOST_LOCATION
from allotment.stream import stream_in_force

if TYPE_CHECKING:
    from allotment.device import Device
    from allotment.layers.accounting import AccountedAllocator
    from allotment.layers.layer import Calls
    from allotment.stream import Stream


class Destination(Enum):
    """Where pages are moved."""

    DEVICE = "device"
    """To the device that the array is of."""
    HOST = "host"
    """To the host's memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefetchOptions:
    """Options of the layer ``prefetch``.

    Parameters
    ----------
    to
        Where the pages of a new block are moved, in the order of the stream in force.
    """

    to: Destination = Destination.DEVICE


class Prefetch:
    """Moves the pages of each new block of managed memory to the device, so that first touches need no fault.

    Parameters
    ----------
    options
        See `PrefetchOptions`.
    device
        The device of the account.
    """

    name: ClassVar = "prefetch"
    Options: ClassVar = PrefetchOptions
    place: ClassVar = Place.PREFETCH

    def __init__(self, options: PrefetchOptions, device: Device) -> None:
        self._device = device
        self._location = HOST_LOCATION if options.to is Destination.HOST else device.ordinal

    def wrap(self, calls: Calls, account: AccountedAllocator) -> Calls:
        """Return the calls with the move after each allocation.

        Raises
        ------
        UnsupportedError
            If the allocator's memory is not managed, or the device has no concurrent managed access.
        """
        self._require_support(account)
        inner, device, location, prefetch = calls, self._device, self._location, self._device.platform.prefetch

        def allocate(size: int, *stream: Stream) -> int:
            ptr = inner.allocate(size, *stream)
            try:
                on = stream[0] if stream else stream_in_force(device)
                prefetch(ptr, size, location, on.handle, device.ordinal)
            except BaseException:
                inner.deallocate(ptr, size, *stream)
                raise
            return ptr

        return calls._replace(allocate=allocate)

    def _require_support(self, account: AccountedAllocator) -> None:
        if account.declared_kind is not MemoryKind.CUDA_MANAGED:
            raise UnsupportedError(
                f"layer 'prefetch' moves managed memory, and allocator {account.name!r} hands out "
                f"{account.declared_kind.name} memory. Leave the layer out, or choose an allocator of managed memory."
            )
        if not self._device.is_concurrent_managed_access_supported:
            raise UnsupportedError(
                f"device {self._device.alias!r} has no concurrent managed access, so no pages can be moved ahead: "
                "leave the layer 'prefetch' out"
            )
