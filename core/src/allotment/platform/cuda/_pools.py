"""Memory pools."""

from __future__ import annotations

from typing import Final

from allotment.platform._values import PoolAccess, PoolAttribute
from allotment.platform.cuda._calls import Calls
from allotment.platform.cuda._errors import reports

_PINNED_TO_ITS_PLACE: Final = 1
"""``cudaMemAllocationTypePinned``: memory that does not migrate."""
_NOT_SHARED: Final = 0
"""``cudaMemHandleTypeNone``."""
_ON_A_DEVICE: Final = 1
"""``cudaMemLocationTypeDevice``."""


class Pools(Calls):
    """The calls about memory pools."""

    @reports("cudaMemPoolCreate")
    def create_pool(self, ordinal: int) -> int:
        """Return a new pool of a device."""
        properties = self._runtime.MemPoolProps(_PINNED_TO_ITS_PLACE, _NOT_SHARED, _ON_A_DEVICE, ordinal)
        return int(self._runtime.memPoolCreate(properties))

    @reports("cudaMemPoolDestroy")
    def destroy_pool(self, pool: int) -> None:
        """Destroy a pool; memory still live stays valid until it is freed."""
        self._runtime.memPoolDestroy(pool)

    @reports("cudaDeviceGetDefaultMemPool")
    def default_pool(self, ordinal: int) -> int:
        """Return the device's default pool, which all libraries of the process share. Opens no context."""
        return int(self._runtime.deviceGetDefaultMemPool(ordinal))

    @reports("cudaMemPoolGetAttribute")
    def pool_attribute(self, pool: int, attribute: PoolAttribute) -> int:
        """Return an attribute of a pool."""
        return int(self._runtime.memPoolGetAttribute(pool, int(attribute)))

    @reports("cudaMemPoolSetAttribute")
    def set_pool_attribute(self, pool: int, attribute: PoolAttribute, value: int) -> None:
        """Set an attribute of a pool."""
        self._runtime.memPoolSetAttribute(pool, int(attribute), int(value))

    @reports("cudaMemPoolTrimTo")
    def trim_pool(self, pool: int, keep_bytes: int) -> None:
        """Give idle memory of a pool back until at most ``keep_bytes`` are reserved."""
        self._runtime.memPoolTrimTo(pool, keep_bytes)

    def pool_access(self, pool: int, ordinal: int) -> PoolAccess:
        """Return whether a device may touch a pool's memory."""
        flags = self._bindings.pool_access(pool, ordinal)
        return PoolAccess.READ_WRITE if flags == PoolAccess.READ_WRITE.value else PoolAccess.NONE

    def set_pool_access(self, pool: int, ordinal: int, access: PoolAccess) -> None:
        """Let a device touch a pool's memory, or not."""
        self._bindings.set_pool_access(pool, ordinal, access.value)
