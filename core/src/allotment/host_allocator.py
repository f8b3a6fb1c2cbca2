"""Core's own allocator: pageable memory of the host, for arrays on ``cpu``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from allotment.allocator import API_VERSION, AllocatorTraits, Availability
from allotment.memory_kind import MemoryKind
from allotment.platform import HOST_ALIGNMENT, allocate_host, free_host

if TYPE_CHECKING:
    from allotment.device import Device


class HostAllocator:
    """Pageable memory of the host. Its pages cost nothing until they are touched."""

    api_version: ClassVar = API_VERSION
    traits: ClassVar = AllocatorTraits(
        memory_kind=MemoryKind.HOST, alignment=HOST_ALIGNMENT, host_accessible=True, device_bound=False
    )
    deallocate_requires_context_guard: ClassVar = False

    allocate = staticmethod(allocate_host)

    @staticmethod
    def deallocate(ptr: int, size_in_bytes: int) -> None:  # noqa: ARG004 - the contract gives the size
        """Take back a block."""
        free_host(ptr)

    @classmethod
    def availability(cls, device: Device) -> Availability:
        """Say that it serves ``cpu`` and nothing else."""
        return Availability(device.is_cpu, "" if device.is_cpu else "host memory serves device 'cpu' only")
