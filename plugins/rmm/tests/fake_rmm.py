"""RMM as its documentation has it, on the simulation: what the tests use of it, where RMM would need a driver.

A resource belongs to the device that was current when it was made, and is used with that device current; else the
behaviour of RMM is undefined, and here it is an assertion.
"""

from __future__ import annotations

from types import ModuleType

import allotment as al


class Stream:
    """A thin wrapper around an existing stream."""

    made = 0

    def __init__(self, obj):
        version, self.handle = obj.__cuda_stream__()
        assert version == 0
        Stream.made += 1

    def __cuda_stream__(self):
        return 0, self.handle


class DeviceMemoryResource:
    """A resource of the device that is current."""

    def __init__(self):
        self.platform = al.get_device("cuda").platform
        self.ordinal = self.platform.current_device()
        self.calls = []

    def allocate(self, nbytes, stream):
        self._note("allocate", nbytes, stream)
        try:
            return self._take(nbytes, stream.handle)
        except al.PlatformError as error:
            raise MemoryError(f"std::bad_alloc: out_of_memory: {error}") from None

    def deallocate(self, ptr, nbytes, stream):
        self._note("deallocate", nbytes, stream)
        self._give(ptr, stream.handle)

    def _note(self, name, nbytes, stream):
        assert isinstance(stream, Stream), "a stream is one of RMM's"
        assert self.platform.current_device() == self.ordinal, "another device is current"
        self.calls.append((name, nbytes, stream.handle))

    def _take(self, nbytes, stream):
        return self.platform.malloc(nbytes)

    def _give(self, ptr, stream):
        self.platform.free(ptr)


class CudaMemoryResource(DeviceMemoryResource):
    """``cudaMalloc``; the stream is ignored."""


class ManagedMemoryResource(DeviceMemoryResource):
    """``cudaMallocManaged``; the stream is ignored."""

    def _take(self, nbytes, stream):
        return self.platform.malloc_managed(nbytes)


class CudaAsyncMemoryResource(DeviceMemoryResource):
    """A CUDA memory pool of its own."""

    def __init__(self, initial_pool_size=None, release_threshold=None):
        super().__init__()
        self.sizes = initial_pool_size, release_threshold
        self.pool = self.platform.create_pool(self.ordinal)

    def _take(self, nbytes, stream):
        return self.platform.malloc_from_pool(nbytes, self.pool, stream)

    def _give(self, ptr, stream):
        self.platform.free_async(ptr, stream)


class UpstreamResourceAdaptor(DeviceMemoryResource):
    """A resource that draws from another one."""

    def __init__(self, upstream_mr):
        super().__init__()
        assert isinstance(upstream_mr, DeviceMemoryResource)
        self.upstream = upstream_mr

    def get_upstream(self):
        return self.upstream

    def _take(self, nbytes, stream):
        return self.upstream._take(nbytes, stream)

    def _give(self, ptr, stream):
        self.upstream._give(ptr, stream)


class PoolMemoryResource(UpstreamResourceAdaptor):
    """A pool, whose sizes are multiples of 256."""

    def __init__(self, upstream_mr, initial_pool_size=None, maximum_pool_size=None):
        super().__init__(upstream_mr)
        self.sizes = initial_pool_size, maximum_pool_size
        assert all(size is None or size % 256 == 0 for size in self.sizes), "not a multiple of 256"

    def pool_size(self):
        return self.sizes[0] or 2**30


class ArenaMemoryResource(UpstreamResourceAdaptor):
    """Arenas in one piece of memory."""

    def __init__(self, upstream_mr, arena_size=None):
        super().__init__(upstream_mr)
        self.sizes = (arena_size,)


class BinningMemoryResource(UpstreamResourceAdaptor):
    """Bins of powers of two."""

    def __init__(self, upstream_mr, min_size_exponent=-1, max_size_exponent=-1):
        super().__init__(upstream_mr)
        self.exponents = min_size_exponent, max_size_exponent


class StatisticsResourceAdaptor(UpstreamResourceAdaptor):
    """Counts what it passes on."""


class Registry(dict):
    """The current resource of each device: ``cudaMalloc`` unless another was set."""

    def __missing__(self, ordinal):
        with al.ScopedDevice(f"cuda:{ordinal}"):
            made = self[ordinal] = CudaMemoryResource()
        return made


def modules():
    """Return the modules by name, with nothing set for any device."""
    current = Registry()
    rmm, mr, pylibrmm, stream = (ModuleType(name) for name in ("rmm", "rmm.mr", "rmm.pylibrmm", "rmm.pylibrmm.stream"))
    mr.get_per_device_resource = lambda device: current[device]
    mr.set_per_device_resource = lambda device, resource: current.update({device: resource})
    for kind in _RESOURCES:
        setattr(mr, kind.__name__, kind)
    stream.Stream = Stream
    rmm.mr, rmm.pylibrmm, pylibrmm.stream = mr, pylibrmm, stream
    return {module.__name__: module for module in (rmm, mr, pylibrmm, stream)}


_RESOURCES = (
    CudaMemoryResource,
    ManagedMemoryResource,
    CudaAsyncMemoryResource,
    PoolMemoryResource,
    ArenaMemoryResource,
    BinningMemoryResource,
    StatisticsResourceAdaptor,
)
