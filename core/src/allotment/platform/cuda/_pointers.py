"""What is known about addresses."""

from __future__ import annotations

from typing import Final

from allotment.memory_kind import MemoryKind
from allotment.platform._values import HOST_LOCATION, PointerAttributes
from allotment.platform.cuda._bindings import POOL_HANDLE, RANGE_SIZE, RANGE_START
from allotment.platform.cuda._calls import Calls
from allotment.platform.cuda._errors import reports

_HOST: Final = 1
_DEVICE: Final = 2
_MANAGED: Final = 3
_KINDS: Final = {_HOST: MemoryKind.PINNED, _DEVICE: MemoryKind.CUDA_DEVICE, _MANAGED: MemoryKind.CUDA_MANAGED}
"""The kinds by ``cudaMemoryType``."""


class Pointers(Calls):
    """The call about addresses."""

    @reports("cudaPointerGetAttributes")
    def pointer_attributes(self, ptr: int) -> PointerAttributes:
        """Return what is known about an address, as the current device sees it.

        It may be asked while a graph is captured. The device is the runtime's answer, which for managed memory is the
        device that made it.
        """
        found = self._runtime.pointerGetAttributes(ptr)
        accessible = found.devicePointer != 0
        kind = _KINDS.get(found.type)
        if kind is None:
            return PointerAttributes(kind=MemoryKind.UNKNOWN, device=HOST_LOCATION, accessible=accessible)
        pool = self._bindings.pointer_attribute(POOL_HANDLE, ptr)
        if kind is MemoryKind.CUDA_DEVICE and pool:
            kind = MemoryKind.CUDA_MEMPOOL
        base, nbytes = self._range(ptr)
        return PointerAttributes(
            kind=kind, device=found.device, accessible=accessible, base=base, nbytes=nbytes, pool=pool
        )

    def _range(self, ptr: int) -> tuple[int, int]:
        """Return the allocation around an address, zeros if CUDA names another one, as for host memory of a pool."""
        base = self._bindings.pointer_attribute(RANGE_START, ptr)
        nbytes = self._bindings.pointer_attribute(RANGE_SIZE, ptr)
        return (base, nbytes) if base <= ptr < base + nbytes else (0, 0)
