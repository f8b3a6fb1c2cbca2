"""A question to the access rules: who wants to touch what. Each fact is found when a rule first asks for it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from allotment._grants import Pair, grants_of, on_device
from allotment._locks import without_property_locks
from allotment.memory_kind import MemoryKind

if TYPE_CHECKING:
    from allotment.device import Device
    from allotment.platform import PointerAttributes


@without_property_locks
class AccessCase:
    """A device that wants to touch memory.

    Parameters
    ----------
    accessor
        The device that wants to.
    owner
        The device that the memory belongs to.
    kind
        The kind of the memory.
    ptr
        Its address; 0 if there is none to touch.
    pool
        The pool it came from, where it is Allotment's own; 0 otherwise.
    is_ours
        Whether the grants of its kind decide: an allocator of ours made it, and did not map it.
    """

    accessor: Device
    owner: Device
    kind: MemoryKind
    ptr: int
    pool: int
    is_ours: bool

    def __init__(
        self, accessor: Device, owner: Device, kind: MemoryKind, ptr: int, *, pool: int = 0, is_ours: bool = True
    ) -> None:
        self.accessor = accessor
        self.owner = owner
        self.kind = kind
        self.ptr = ptr
        self.pool = pool
        self.is_ours = is_ours

    @property
    def is_empty(self) -> bool:
        """Whether there is no memory to touch."""
        return not self.ptr

    @property
    def is_at_home(self) -> bool:
        """Whether the memory belongs to the device that wants to touch it."""
        return self.accessor is self.owner

    @property
    def is_host_memory(self) -> bool:
        """Whether the memory is the host's, also where it was wrapped as an array of a CUDA device."""
        return self.kind.on_host or (self.owner.is_cpu and self.kind is MemoryKind.UNKNOWN)

    @property
    def by_host(self) -> bool:
        """Whether host code wants to touch it."""
        return self.accessor.is_cpu

    @property
    def pair(self) -> Pair:
        """The two devices as grants know them."""
        return Pair(self.owner, self.accessor)

    @cached_property
    def peer_access(self) -> bool | None:
        """Whether peer access lets the device touch plain memory of the owner; ``None`` if nobody knows."""
        return grants_of(self.owner).peer_access(self.pair)

    @cached_property
    def pool_access(self) -> bool | None:
        """Whether pool access lets the device touch the memory; ``None`` if nobody knows."""
        return grants_of(self.owner).pool_access(self.pool, self.pair) if self.pool else None

    @cached_property
    def seen_by_driver(self) -> bool | None:
        """Whether the driver maps it for the device, where no grants decide; ``None`` for an address it does not know.

        ``devicePointer`` of cudaPointerGetAttributes, which may be asked inside a capture. A device without a context,
        which asking would open, has no peer access, and of pools it can only have been granted access.
        """
        asked = self.accessor if self.accessor.has_context else self.owner
        attributes: PointerAttributes = on_device(asked, asked.platform.pointer_attributes, self.ptr)
        if attributes.kind is MemoryKind.UNKNOWN:
            return None
        if asked is self.accessor:
            return attributes.accessible
        return grants_of(self.owner).pool_access(attributes.pool, self.pair) if attributes.pool else False
