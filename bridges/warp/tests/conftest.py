"""What the tests of the bridge to Warp begin with."""

from __future__ import annotations

import pytest

import allotment as al
from allotment_warp_bridge import AllotmentWarpAllocator


@pytest.fixture
def surroundings(surroundings):
    return surroundings._replace(timeout=120)


@pytest.fixture(autouse=True)
def isolated(isolation_of_bridges):
    """Keep the developer's environment and files out, and leave no bridge behind."""


class WarpStream:
    """A stream of Warp's, as far as an allocator uses it, on a stream of the simulation."""

    def __init__(self, device, stream=None):
        self.device, self.stream = device, stream

    @property
    def cuda_stream(self):
        return self.stream.handle if self.stream else None

    def __cuda_stream__(self):
        return 0, self.cuda_stream or 0


class WarpDevice:
    """A CUDA device of Warp's, as far as an allocator uses it."""

    def __init__(self, simulated, ordinal=0):
        self.simulated, self.ordinal = simulated, ordinal
        self.is_primary = True
        self.captures = {}
        self.null_stream = WarpStream(self)
        self.stream = WarpStream(self, al.Stream(f"cuda:{ordinal}"))
        self.current_allocator = WarpPool()

    def __str__(self):
        return f"cuda:{self.ordinal}"


class WarpPool:
    """Warp's own allocator of the device, which makes memory that belongs to graphs."""

    memory_kind = al.MemoryKind.CUDA_MEMPOOL

    def __init__(self):
        self.live = {}

    def allocate(self, size):
        self.live[0x1000 + len(self.live)] = size
        return 0x0FFF + len(self.live)

    def deallocate(self, ptr, size):
        assert self.live.pop(ptr) == size


@pytest.fixture
def device(sim):
    """A device of Warp's on the simulated platform."""
    return WarpDevice(sim)


@pytest.fixture
def make(device):
    """Return a function that makes the allocator of Warp's device."""
    return lambda allocator=None: AllotmentWarpAllocator(device, al.Delivery("warp", allocator), al.MemoryKind)
