"""The calls about virtual memory.

None of them waits for work, needs a context or is ruled out by a capture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allotment.errors import PlatformError
from allotment.platform._values import PoolAccess
from allotment.platform.simulated._calls import call
from allotment.platform.simulated._simulation import Simulation
from allotment.platform.simulated._virtual_memory import GRANULARITY

if TYPE_CHECKING:
    from allotment.platform.simulated._virtual_memory import VirtualMemory


class VirtualMemoryCalls(Simulation):
    """Reserved addresses, physical memory and mappings, and what compiled code asks for."""

    @call("cuMemAddressReserve")
    def address_range(self, nbytes: int) -> int:
        """Reserve device addresses with nothing behind them."""
        return self._supported().reserve(nbytes)

    @call("cuMemAddressFree", can_wait=True)
    def free_address_range(self, ptr: int, nbytes: int) -> None:
        """Give a reservation back, behind which nothing is mapped."""
        self._supported().free(ptr, nbytes)

    @call("cuMemCreate")
    def create_physical(self, ordinal: int, nbytes: int) -> int:
        """Return a handle of new physical memory of a device."""
        return self._supported(ordinal).create(ordinal, nbytes)

    @call("cuMemRelease", can_wait=True)
    def release_physical(self, handle: int) -> None:
        """Release a handle; the memory lives until it is mapped nowhere."""
        self._supported().release(handle)

    @call("cuMemMap")
    def map_physical(self, ptr: int, nbytes: int, handle: int) -> None:
        """Put the beginning of physical memory behind reserved addresses, without access for any device yet."""
        self._supported().map(ptr, nbytes, handle)

    @call("cuMemUnmap", can_wait=True)
    def unmap_physical(self, ptr: int, nbytes: int) -> None:
        """Take what is mapped in a range away, at once, whatever work still uses it."""
        self._supported().unmap(ptr, nbytes)

    @call("cuMemSetAccess")
    def set_mapping_access(self, ptr: int, nbytes: int, ordinal: int, access: PoolAccess) -> None:
        """Let a device touch what is mapped in a range, or not."""
        mappings = self._supported().mappings_between(ptr, nbytes)
        self._access.grant_mappings(mappings, ordinal, granted=access is PoolAccess.READ_WRITE)

    @call("cuMemGetAllocationGranularity", after_fault=True)
    def mapping_granularity(self, ordinal: int) -> int:
        """Return what addresses and sizes are multiples of."""
        self._supported(ordinal)
        return GRANULARITY

    @call("cuGetProcAddress", after_fault=True)
    def driver_entry_point(self, name: str) -> int:  # noqa: ARG002 - there is no driver
        """Return 0: there is no driver to call."""
        return 0

    def driver_error(self, call: str, result: int) -> PlatformError:
        """Return the error by its number: there is no driver that knows its name."""
        return PlatformError(call=call, code=f"CUresult {result}")

    def _supported(self, ordinal: int | None = None) -> VirtualMemory:
        if ordinal is not None:
            self._access.check_ordinal(ordinal)
        self._memory.virtual.check_supported(ordinal)
        return self._memory.virtual
