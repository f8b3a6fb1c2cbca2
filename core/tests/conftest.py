"""What every test of core begins with: nothing configured, nothing registered, no platform chosen."""

from __future__ import annotations

import pytest

import allotment as al
from allotment.platform.simulated import _host_mapping


@pytest.fixture
def surroundings(surroundings):
    return surroundings._replace(timeout=60)


@pytest.fixture(autouse=True)
def isolated(isolation):
    """Keep the developer's environment and files out, and leave nothing behind."""


class RecordingAllocator:
    """An allocator as a user would write one: plain memory of the current device, and a record of the calls."""

    def __init__(self, simulated):
        self._simulated = simulated
        self.allocated = []
        self.freed = []

    def allocate(self, size_in_bytes):
        ptr = self._simulated.malloc(size_in_bytes)
        self.allocated.append((ptr, size_in_bytes))
        return ptr

    def deallocate(self, ptr, size_in_bytes):
        self.freed.append((ptr, size_in_bytes))
        self._simulated.free(ptr)


class MappingAllocator:
    """An allocator that maps its memory, which follows peer access; also written into scripts that run on GPUs."""

    traits = al.AllocatorTraits(memory_kind=al.MemoryKind.CUDA_DEVICE, mapped=True)

    def __init__(self, device):
        self._platform, self._ordinal = device.platform, device.ordinal
        self._granule = self._platform.mapping_granularity(self._ordinal)
        self._readers = [self._ordinal]
        self._blocks = {}
        self.told = []

    def allocate(self, size_in_bytes):
        nbytes = -(-size_in_bytes // self._granule) * self._granule
        ptr = self._platform.address_range(nbytes)
        handle = self._platform.create_physical(self._ordinal, nbytes)
        self._platform.map_physical(ptr, nbytes, handle)
        self._platform.release_physical(handle)
        for reader in self._readers:
            self._open(ptr, nbytes, reader, enable=True)
        self._blocks[ptr] = nbytes
        return ptr

    def deallocate(self, ptr, size_in_bytes):
        nbytes = self._blocks.pop(ptr)
        self._platform.unmap_physical(ptr, nbytes)
        self._platform.free_address_range(ptr, nbytes)

    def set_peer_access(self, peer, *, enable):
        changed = []
        try:
            for block in self._blocks.items():
                self._open(*block, peer.ordinal, enable=enable)
                changed.append(block)
        except al.PlatformError:
            for block in changed:
                self._open(*block, peer.ordinal, enable=not enable)
            raise
        (self._readers.append if enable else self._readers.remove)(peer.ordinal)
        self.told.append((peer.alias, enable))

    def _open(self, ptr, nbytes, reader, *, enable):
        access = al.PoolAccess.READ_WRITE if enable else al.PoolAccess.NONE
        self._platform.set_mapping_access(ptr, nbytes, reader, access)


@pytest.fixture
def recording(sim):
    """Return a function that makes recording allocators."""
    return lambda: RecordingAllocator(sim)


@pytest.fixture
def mapping():
    """The class of allocators that map their memory; an object of it serves one device."""
    if not _host_mapping.IS_AVAILABLE:
        pytest.skip("the simulation of virtual memory needs Linux")
    return MappingAllocator
