"""The simulated platform: each call of `Platform`, delegated to the part that models it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from allotment.errors import PlatformError
from allotment.memory_kind import MemoryKind
from allotment.platform._values import (
    HOST_LOCATION,
    DeviceProperties,
    MemoryAdvice,
    MemoryInfo,
    PointerAttributes,
    PoolAccess,
    PoolAttribute,
    StridedMemory,
)
from allotment.platform.simulated._calls import call
from allotment.platform.simulated._errors import INVALID_VALUE, Refused
from allotment.platform.simulated._further_calls import FurtherCalls
from allotment.platform.simulated._graph_calls import GraphCalls
from allotment.platform.simulated._profile import Profile, load_profile
from allotment.platform.simulated._stream_calls import StreamCalls
from allotment.platform.simulated._virtual_memory_calls import VirtualMemoryCalls

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np


class SimulatedPlatform(StreamCalls, GraphCalls, VirtualMemoryCalls, FurtherCalls):
    """A model of the CUDA memory API on host memory, for devices that a profile describes.

    It answers as two H200s were recorded to answer. Its memory costs the host nothing until it is touched, and holds
    real data for as long as the platform is referenced. Work on a stream is done at once unless a test holds it.

    Parameters
    ----------
    profile
        What to simulate.
    name
        What the platform is called where platforms are chosen.
    """

    def __init__(self, profile: Profile, name: str = "sim") -> None:
        super().__init__(profile)
        self.name = name
        self.description = f"simulated: {profile.description}"
        self.why = "asked for by name"

    @classmethod
    def from_profile(cls, name_or_path: str | Path) -> SimulatedPlatform:
        """Return a platform for a profile: its name, or the path of a TOML file.

        Raises
        ------
        PlatformUnavailableError
            If there is no such profile.
        ConfigError
            If the file does not say what a profile says.
        """
        return cls(load_profile(name_or_path), f"sim:{name_or_path}")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    # Devices

    @call("cudaGetDeviceCount", after_fault=True)
    def device_count(self) -> int:
        """Return the number of devices."""
        return len(self.profile.devices)

    @call("cudaGetDeviceProperties", after_fault=True)
    def device_properties(self, ordinal: int) -> DeviceProperties:
        """Return what a device is and can do."""
        self._access.check_ordinal(ordinal)
        return self.profile.devices[ordinal]

    @call("cudaRuntimeGetVersion", after_fault=True)
    def versions(self) -> tuple[int, int]:
        """Return the versions of runtime and driver."""
        return self.profile.runtime_version, self.profile.driver_version

    @call("cuDevicePrimaryCtxGetState", after_fault=True)
    def has_context(self, ordinal: int) -> bool:
        """Return whether a device has a context."""
        self._access.check_ordinal(ordinal)
        return ordinal in self._contexts

    @call("cudaMemGetInfo")
    def memory_info(self, ordinal: int) -> MemoryInfo:
        """Return a device's free and total memory."""
        self._open(ordinal)
        memory = self._memory.devices[ordinal]
        return MemoryInfo(memory.free, memory.total)

    @call("cudaGetDevice", after_fault=True)
    def current_device(self) -> int:
        """Return the current device of the thread."""
        return self._journal.thread.device

    @call("cudaSetDevice", after_fault=True)
    def set_current_device(self, ordinal: int) -> None:
        """Make a device current in the thread."""
        self._open(ordinal)
        self._journal.thread.device = ordinal

    @call("cuCtxSetCurrent", after_fault=True)
    def switch_device(self, ordinal: int) -> int:
        """Make a device current in the thread; return the one that was."""
        self._open(ordinal)
        before, self._journal.thread.device = self._journal.thread.device, ordinal
        return before

    @call("cuCtxSetCurrent", after_fault=True)
    def restore_context(self, before: int) -> None:
        """Make current what was current before; it may be a device without a context, current by default."""
        self._journal.thread.device = before

    @call("cudaDeviceSynchronize")
    def synchronize_device(self, ordinal: int) -> None:
        """Do all work of a device."""
        self._open(ordinal)
        self._captures.check_wait_for_device(ordinal)
        self._streams.synchronize_device(ordinal)
        self._settle(lambda condition: condition.stream.ordinal == ordinal)

    def error_from(self, exception: BaseException) -> PlatformError | None:
        """Return the exception itself, if it is ours."""
        return exception if isinstance(exception, PlatformError) else None

    # Allocation

    @call("cudaMalloc")
    def malloc(self, nbytes: int) -> int:
        """Return new memory of the current device."""
        self._captures.check_unsafe()
        return self._memory.malloc(nbytes, self._current())

    @call("cudaFree", can_wait=True)
    def free(self, ptr: int) -> None:
        """Free memory of malloc, malloc_managed or a pool, after the work of its device."""
        self._captures.check_unsafe()
        self._memory.free(ptr)

    @call("cudaMallocManaged")
    def malloc_managed(self, nbytes: int) -> int:
        """Return new managed memory."""
        self._captures.check_unsafe()
        return self._memory.malloc_managed(nbytes, self._current())

    @call("cudaHostAlloc")
    def host_alloc(self, nbytes: int) -> int:
        """Return new page-locked host memory."""
        self._captures.check_unsafe()
        return self._memory.host_alloc(nbytes, self._current())

    @call("cudaFreeHost", can_wait=True)
    def host_free(self, ptr: int) -> None:
        """Free memory of host_alloc."""
        self._captures.check_unsafe()
        self._memory.host_free(ptr)

    @call("cudaMallocFromPoolAsync")
    def malloc_from_pool(self, nbytes: int, pool: int, stream: int) -> int:
        """Return memory of a pool in the order of a stream, or of the graph that the stream captures."""
        queue = self._work_stream(stream, None)
        if queue.capture is not None:
            return self._graphs.allocate(nbytes, pool, queue)
        self._captures.check_unsafe()
        return self._memory.malloc_from_pool(nbytes, pool, queue)

    @call("cudaFreeAsync", can_wait=True)
    def free_async(self, ptr: int, stream: int) -> None:
        """Free memory in the order of a stream, or in the graph that the stream captures."""
        queue = self._work_stream(stream, None)
        if queue.capture is not None:
            self._graphs.free(ptr, queue)
            return
        self._captures.check_unsafe()
        self._memory.free_async(ptr, queue)

    # Pools

    @call("cudaMemPoolCreate")
    def create_pool(self, ordinal: int) -> int:
        """Return a new pool of a device."""
        self._captures.check_unsafe()
        self._open(ordinal)
        return self._memory.create_pool(ordinal).handle

    @call("cudaMemPoolDestroy", can_wait=True)
    def destroy_pool(self, pool: int) -> None:
        """Destroy a pool; memory still live stays valid until it is freed."""
        self._captures.check_unsafe()
        self._memory.destroy_pool(pool)

    @call("cudaDeviceGetDefaultMemPool", after_fault=True)
    def default_pool(self, ordinal: int) -> int:
        """Return the device's default pool."""
        self._access.check_ordinal(ordinal)
        return self._memory.default_pool(ordinal).handle

    @call("cudaMemPoolGetAttribute", after_fault=True)
    def pool_attribute(self, pool: int, attribute: PoolAttribute) -> int:
        """Return an attribute of a pool."""
        self._captures.check_unsafe()
        return self._memory.pool(pool).attribute(attribute)

    @call("cudaMemPoolSetAttribute", after_fault=True)
    def set_pool_attribute(self, pool: int, attribute: PoolAttribute, value: int) -> None:
        """Set an attribute of a pool."""
        self._captures.check_unsafe()
        self._memory.pool(pool).set_attribute(attribute, value)

    @call("cudaMemPoolTrimTo", after_fault=True)
    def trim_pool(self, pool: int, keep_bytes: int) -> None:
        """Give idle memory of a pool back."""
        self._captures.check_unsafe()
        self._memory.pool(pool).trim(keep_bytes)

    @call("cudaMemPoolGetAccess", after_fault=True)
    def pool_access(self, pool: int, ordinal: int) -> PoolAccess:
        """Return whether a device may touch a pool's memory."""
        self._captures.check_unsafe()
        readers = self._memory.pool(pool).readers
        if ordinal != HOST_LOCATION and not 0 <= ordinal < len(self.profile.devices):
            raise Refused(INVALID_VALUE, f"there is no device {ordinal}")
        return PoolAccess.READ_WRITE if ordinal in readers else PoolAccess.NONE

    @call("cudaMemPoolSetAccess")
    def set_pool_access(self, pool: int, ordinal: int, access: PoolAccess) -> None:
        """Let a device touch a pool's memory, or not."""
        self._captures.check_unsafe()
        self._access.grant_pool(self._memory.pool(pool), ordinal, granted=access is PoolAccess.READ_WRITE)

    # Peers

    @call("cudaDeviceCanAccessPeer", after_fault=True)
    def can_access_peer(self, ordinal: int, peer: int) -> bool:
        """Return whether the hardware lets a device touch memory of another; never of its own."""
        self._access.check_ordinal(ordinal)
        self._access.check_ordinal(peer)
        return self._access.can_peer(ordinal, peer)

    @call("cudaDeviceEnablePeerAccess")
    def enable_peer_access(self, ordinal: int, peer: int) -> None:
        """Let a device touch cudaMalloc memory of another; opens the contexts of both."""
        self._captures.check_unsafe()
        self._access.check_ordinal(peer)
        self._open(ordinal)
        self._access.enable_peer(ordinal, peer)
        self._open(peer)

    @call("cudaDeviceDisablePeerAccess")
    def disable_peer_access(self, ordinal: int, peer: int) -> None:
        """Undo `enable_peer_access`."""
        self._captures.check_unsafe()
        self._access.check_ordinal(peer)
        self._access.check_ordinal(ordinal)
        self._access.disable_peer(ordinal, peer)

    # Contents

    @call("cudaMemcpyAsync")
    def copy(self, dst: int, src: int, nbytes: int, stream: int, ordinal: int) -> None:
        """Copy bytes in the order of a stream."""
        self._transfers.copy(dst, src, nbytes, self._work_stream(stream, ordinal))

    @call("cudaMemcpyPeerAsync")
    def copy_peer(self, dst: int, dst_ordinal: int, src: int, src_ordinal: int, nbytes: int, stream: int) -> None:
        """Copy bytes between two devices in the order of a stream; 0 is the current device's null stream."""
        self._access.check_ordinal(dst_ordinal)
        self._access.check_ordinal(src_ordinal)
        queue = self._work_stream(stream, None)
        self._captures.refuse_on(queue, "a copy between peers cannot be captured")
        self._transfers.copy_peer((dst, dst_ordinal), (src, src_ordinal), nbytes, queue)

    @call("kernel", takes_arrays=True)
    def copy_elements(self, dst: StridedMemory, src: StridedMemory, stream: int, ordinal: int) -> None:
        """Copy elements as a kernel does; a fault shows in the next call."""
        queue = self._kernel_stream(stream, ordinal)
        if queue.capture is not None:  # a graph keeps no memory alive
            dst, src = replace(dst, owner=None), replace(src, owner=None)
        work, check = self._transfers.copy_elements(dst, src, queue)
        self._launch(work, queue, check)

    @call("cudaMemsetAsync")
    def fill(self, ptr: int, byte: int, nbytes: int, stream: int, ordinal: int) -> None:
        """Set bytes in the order of a stream."""
        self._transfers.fill(ptr, byte, nbytes, self._work_stream(stream, ordinal))

    @call("kernel", takes_arrays=True)
    def fill_elements(self, dst: StridedMemory, value: np.generic, stream: int, ordinal: int) -> None:
        """Set elements as a kernel does; a fault shows in the next call."""
        queue = self._kernel_stream(stream, ordinal)
        if queue.capture is not None:  # a graph keeps no memory alive
            dst = replace(dst, owner=None)
        work, check = self._transfers.fill_elements(dst, value, queue)
        self._launch(work, queue, check)

    # Managed memory

    @call("cudaMemAdvise")
    def advise(self, ptr: int, nbytes: int, advice: MemoryAdvice, location: int) -> None:
        """Give advice about managed memory."""
        self._captures.check_unsafe()
        self._transfers.advise(ptr, nbytes, advice, location)

    @call("cudaMemPrefetchAsync")
    def prefetch(self, ptr: int, nbytes: int, location: int, stream: int, ordinal: int) -> None:
        """Move managed memory in the order of a stream."""
        queue = self._work_stream(stream, ordinal)
        self._captures.refuse_on(queue, "a prefetch cannot be captured")
        self._transfers.prefetch(ptr, nbytes, location, queue)

    # Pointers

    @call("cudaPointerGetAttributes", after_fault=True)
    def pointer_attributes(self, ptr: int) -> PointerAttributes:
        """Return what is known about an address, as the current device sees it."""
        block = self._memory.allocations.around(ptr)
        if block is None:
            return PointerAttributes(kind=MemoryKind.UNKNOWN, device=HOST_LOCATION, accessible=False)
        whole = block.reservation or block
        return PointerAttributes(
            kind=block.kind,
            device=block.device,
            accessible=self._access.can_touch(self._journal.thread.device, block),
            base=whole.ptr,
            nbytes=whole.nbytes,
            pool=0 if block.pool is None else block.pool.handle,
        )
