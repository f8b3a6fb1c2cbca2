"""Which kinds of a device's memory another device can touch now, without an array to ask about."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from allotment._grants import grants_of
from allotment._locks import without_property_locks
from allotment.access._case import AccessCase
from allotment.access._rules import judge
from allotment.memory_kind import MemoryKind

if TYPE_CHECKING:
    from allotment.access._verdict import AccessReport
    from allotment.device import Device

_SOME_ADDRESS = 1


@without_property_locks
class _Prospect(AccessCase):
    """A question about memory that Allotment would allocate now."""

    @cached_property
    def pool_access(self) -> bool | None:
        return grants_of(self.owner).is_pool_access_granted(self.pair)


def kinds_of(owner: Device) -> tuple[MemoryKind, ...]:
    """Return the kinds of memory that a device can have."""
    if owner.is_cpu:
        has_gpu = bool(owner.registry.cuda)
        return (MemoryKind.HOST, MemoryKind.PINNED) if has_gpu else (MemoryKind.HOST,)
    supported = {
        MemoryKind.CUDA_DEVICE: True,
        MemoryKind.CUDA_MEMPOOL: owner.is_mempool_supported,
        MemoryKind.CUDA_MANAGED: owner.is_managed_memory_supported,
    }
    return tuple(kind for kind, is_supported in supported.items() if is_supported)


def survey(accessor: Device, owner: Device) -> dict[MemoryKind, AccessReport]:
    """Return the verdict for each kind of memory that a device can have. Opens no context."""
    return {kind: judge(_Prospect(accessor, owner, kind, _SOME_ADDRESS)) for kind in kinds_of(owner)}
