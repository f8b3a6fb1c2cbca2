"""Virtual memory, and what compiled code asks for."""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Final

from allotment.errors import PlatformError
from allotment.platform.cuda._calls import Calls

if TYPE_CHECKING:
    from allotment.platform._values import PoolAccess

_DRIVER_LIBRARY: Final = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"


class VirtualMemory(Calls):
    """The calls about reserved addresses, physical memory and mappings. The driver has them, the runtime does not."""

    def address_range(self, nbytes: int) -> int:
        """Reserve device addresses with nothing behind them, and return the first."""
        return self._bindings.reserve_addresses(nbytes)

    def free_address_range(self, ptr: int, nbytes: int) -> None:
        """Give a whole reservation back, behind which nothing is mapped."""
        self._bindings.free_addresses(ptr, nbytes)

    def create_physical(self, ordinal: int, nbytes: int) -> int:
        """Return a handle of new physical memory of a device, which has no address."""
        return self._bindings.create_physical(ordinal, nbytes)

    def release_physical(self, handle: int) -> None:
        """Release a handle of physical memory, which lives until it is mapped nowhere."""
        self._bindings.release_physical(handle)

    def map_physical(self, ptr: int, nbytes: int, handle: int) -> None:
        """Put physical memory behind reserved addresses. No device may touch it yet, not even its own."""
        self._bindings.map_physical(ptr, nbytes, handle)

    def unmap_physical(self, ptr: int, nbytes: int) -> None:
        """Take what is mapped in a range away: whole mappings without a gap. Work that still uses it faults."""
        self._bindings.unmap_physical(ptr, nbytes)

    def set_mapping_access(self, ptr: int, nbytes: int, ordinal: int, access: PoolAccess) -> None:
        """Let a device touch what is mapped in a range, from a mapping to a mapping, or not."""
        self._bindings.set_mapping_access(ptr, nbytes, ordinal, access.value)

    def mapping_granularity(self, ordinal: int) -> int:
        """Return what addresses and sizes of a device's mappings are multiples of, in bytes. Opens no context."""
        return self._bindings.mapping_granularity(ordinal)

    def driver_entry_point(self, name: str) -> int:
        """Return the address of a function of the CUDA driver, with the interface that it has in CUDA 12.0.

        Raises
        ------
        PlatformError
            ``cudaErrorSymbolNotFound``, if the driver has no such function.
        """
        address = self._bindings.entry_point(name) or _exported(name)
        if not address:
            detail = f"the driver has no function {name!r}"
            raise PlatformError(call="cuGetProcAddress", code="cudaErrorSymbolNotFound", detail=detail)
        return address

    def driver_error(self, call: str, result: int) -> PlatformError:
        """Return the error for a ``CUresult``, by the name that the runtime has for the same number."""
        return PlatformError(call=call, code=self._bindings.name_of(result))


def _exported(name: str) -> int:
    """Return the address that the driver's library exports under a name, 0 if there is none."""
    try:
        function = getattr(ctypes.CDLL(_DRIVER_LIBRARY), name)
    except (OSError, AttributeError):
        return 0
    return ctypes.cast(function, ctypes.c_void_p).value or 0
