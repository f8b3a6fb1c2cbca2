"""What the scopes of the running thread or task say about allocators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from allotment._scope import ScopeStack

if TYPE_CHECKING:
    from allotment.device import Device
    from allotment.layers.accounting import AccountedAllocator


@dataclass(frozen=True, slots=True)
class AllocatorScope:
    """What a scope says about a device: an allocator (``None``: the built-in one), or whether the pool is built in."""

    device: Device
    allocator: AccountedAllocator | None = None
    pooling: bool | None = None


allocator_scopes: Final[ScopeStack[AllocatorScope]] = ScopeStack("allotment_allocators")


def is_pooling(device: Device) -> bool:
    """Return whether the built-in allocator of a device is the memory pool now."""
    said = (scope.pooling for _, scope in reversed(allocator_scopes.get()) if scope.device is device)
    return next((pooling for pooling in said if pooling is not None), device.is_mempool_enabled)
