"""A ``cuda.core`` memory resource whose memory is the simulator's, and the allocator where there is no GPU.

To ``cuda.core`` its memory is the host's, as it is in truth: ``cuda.core`` then asks no driver for a stream.
"""

from __future__ import annotations

from dataclasses import dataclass

from acme_cuda_core_memory import CudaCoreAllocator, CudaCoreOptions
from cuda.core import Buffer, MemoryResource

from allotment import Availability, get_device


class SimulatedResource(MemoryResource):
    """Memory of a simulated device."""

    def __init__(self, ordinal):
        self.platform = get_device(f"cuda:{ordinal}").platform

    def allocate(self, size, *, stream):
        return Buffer.from_handle(self.platform.malloc(size), size, mr=self)

    def deallocate(self, ptr, size, *, stream):
        self.platform.free(int(ptr))

    @property
    def is_device_accessible(self):
        return False

    @property
    def is_host_accessible(self):
        return True

    @property
    def device_id(self):
        return -1


def make_nothing(ordinal):
    return ordinal


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedOptions(CudaCoreOptions):
    resource: str = "simulated_resource:SimulatedResource"


class OnSimulator(CudaCoreAllocator):
    """The allocator over that resource, which is available on simulated devices."""

    traits = CudaCoreAllocator.traits_for(SimulatedOptions())
    Options = SimulatedOptions

    @classmethod
    def availability(cls, device):
        return Availability(device.is_cuda, "" if device.is_cuda else "it serves CUDA devices")
