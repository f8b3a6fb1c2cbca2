"""A plugin as it should be."""

from __future__ import annotations

from dataclasses import dataclass

from allotment.allocator import API_VERSION, AllocatorTraits, Availability
from allotment.memory_kind import MemoryKind


class GoodAllocator:
    """Everything that a plugin may offer."""

    api_version = API_VERSION
    traits = AllocatorTraits(memory_kind=MemoryKind.HOST)

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """What config may say."""

        start: int = 4096

    def __init__(self, *, options, device):
        self.options = options
        self.device = device
        self.next = options.start

    def allocate(self, size_in_bytes):
        ptr, self.next = self.next, self.next + size_in_bytes
        return ptr

    def deallocate(self, ptr, size_in_bytes):
        pass

    @classmethod
    def availability(cls, device):
        return Availability(device == "cuda:0", "" if device == "cuda:0" else f"{device} has no fake memory")


class PlainAllocator:
    """The two methods of the guides, and no more."""

    def allocate(self, size_in_bytes):
        return 4096

    def deallocate(self, ptr, size_in_bytes):
        pass
