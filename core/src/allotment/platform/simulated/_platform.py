"""The simulated platform: each call of `Platform`, delegated to the part that models it."""

from __future__ import annotations

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
from allotment.platform.simulated._profile import Profile, load_profile
from allotment.platform.simulated._simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np

    from allotment.platform.simulated._free_ranges import Condition


class SimulatedPlatform(Simulation):
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
        self._streams.synchronize_device(ordinal)
        self._settle(lambda condition: condition.stream.ordinal == ordinal)

    def error_from(self, exception: BaseException) -> PlatformError | None:
        """Return the exception itself, if it is ours."""
        return exception if isinstance(exception, PlatformError) else None

    # Streams and events

    @call("cudaStreamCreateWithPriority")
    def create_stream(self, ordinal: int, *, non_blocking: bool, priority: int) -> int:
        """Return a new stream."""
        self._open(ordinal)
        return self._streams.create(ordinal, non_blocking=non_blocking, priority=priority).handle

    @call("cudaStreamDestroy", can_wait=True)
    def destroy_stream(self, stream: int) -> None:
        """Destroy a stream."""
        self._streams.destroy(stream)

    @call("cudaStreamSynchronize")
    def synchronize_stream(self, stream: int, ordinal: int) -> None:
        """Do the work of a stream."""
        awaited = self._stream(stream, ordinal)
        self._streams.synchronize(awaited)
        self._settle(lambda condition: awaited.has_awaited(condition.stream, condition.ticket))

    @call("cudaStreamQuery")
    def stream_is_done(self, stream: int, ordinal: int) -> bool:
        """Return whether a stream has no unfinished work."""
        return self._streams.is_done(self._stream(stream, ordinal))

    @call("cudaStreamWaitEvent")
    def wait_for_stream(self, waiting: int, awaited: int, waiting_ordinal: int, awaited_ordinal: int) -> None:
        """Make later work of one stream wait for the present work of another."""
        self._streams.wait(self._stream(waiting, waiting_ordinal), self._stream(awaited, awaited_ordinal))

    @call("cudaEventCreateWithFlags")
    def create_event(self, ordinal: int) -> int:
        """Return a new event."""
        self._open(ordinal)
        return self._streams.create_event(ordinal).handle

    @call("cudaEventDestroy", can_wait=True)
    def destroy_event(self, event: int) -> None:
        """Destroy an event."""
        self._streams.destroy_event(event)

    @call("cudaEventRecord")
    def record_event(self, event: int, stream: int, ordinal: int) -> None:
        """Mark a stream's present end."""
        self._streams.record(self._streams.event(event), self._stream(stream, ordinal))

    @call("cudaEventQuery")
    def event_is_done(self, event: int) -> bool:
        """Return whether the work before an event's mark is done."""
        return self._streams.event(event).is_done

    @call("cudaEventSynchronize")
    def synchronize_event(self, event: int) -> None:
        """Do the work before an event's mark."""
        mark = self._streams.event(event)
        if mark.stream is not None:
            awaited, ticket = mark.stream, mark.ticket
            self._streams.synchronize(awaited, ticket)
            self._settle(lambda condition: condition.stream is awaited and condition.ticket <= ticket)

    # Allocation

    @call("cudaMalloc")
    def malloc(self, nbytes: int) -> int:
        """Return new memory of the current device."""
        return self._memory.malloc(nbytes, self._current())

    @call("cudaFree", can_wait=True)
    def free(self, ptr: int) -> None:
        """Free memory of malloc, malloc_managed or a pool, after the work of its device."""
        self._memory.free(ptr)

    @call("cudaMallocManaged")
    def malloc_managed(self, nbytes: int) -> int:
        """Return new managed memory."""
        return self._memory.malloc_managed(nbytes, self._current())

    @call("cudaHostAlloc")
    def host_alloc(self, nbytes: int) -> int:
        """Return new page-locked host memory."""
        return self._memory.host_alloc(nbytes, self._current())

    @call("cudaFreeHost", can_wait=True)
    def host_free(self, ptr: int) -> None:
        """Free memory of host_alloc."""
        self._memory.host_free(ptr)

    @call("cudaMallocFromPoolAsync")
    def malloc_from_pool(self, nbytes: int, pool: int, stream: int) -> int:
        """Return memory of a pool in the order of a stream."""
        return self._memory.malloc_from_pool(nbytes, pool, self._stream(stream, None))

    @call("cudaFreeAsync", can_wait=True)
    def free_async(self, ptr: int, stream: int) -> None:
        """Free memory in the order of a stream."""
        self._memory.free_async(ptr, self._stream(stream, None))

    # Pools

    @call("cudaMemPoolCreate")
    def create_pool(self, ordinal: int) -> int:
        """Return a new pool of a device."""
        self._open(ordinal)
        return self._memory.create_pool(ordinal).handle

    @call("cudaMemPoolDestroy", can_wait=True)
    def destroy_pool(self, pool: int) -> None:
        """Destroy a pool; memory still live stays valid until it is freed."""
        self._memory.destroy_pool(pool)

    @call("cudaDeviceGetDefaultMemPool", after_fault=True)
    def default_pool(self, ordinal: int) -> int:
        """Return the device's default pool."""
        self._access.check_ordinal(ordinal)
        return self._memory.default_pool(ordinal).handle

    @call("cudaMemPoolGetAttribute", after_fault=True)
    def pool_attribute(self, pool: int, attribute: PoolAttribute) -> int:
        """Return an attribute of a pool."""
        return self._memory.pool(pool).attribute(attribute)

    @call("cudaMemPoolSetAttribute", after_fault=True)
    def set_pool_attribute(self, pool: int, attribute: PoolAttribute, value: int) -> None:
        """Set an attribute of a pool."""
        self._memory.pool(pool).set_attribute(attribute, value)

    @call("cudaMemPoolTrimTo", after_fault=True)
    def trim_pool(self, pool: int, keep_bytes: int) -> None:
        """Give idle memory of a pool back."""
        self._memory.pool(pool).trim(keep_bytes)

    @call("cudaMemPoolGetAccess", after_fault=True)
    def pool_access(self, pool: int, ordinal: int) -> PoolAccess:
        """Return whether a device may touch a pool's memory."""
        readers = self._memory.pool(pool).readers
        if ordinal != HOST_LOCATION and not 0 <= ordinal < len(self.profile.devices):
            raise Refused(INVALID_VALUE, f"there is no device {ordinal}")
        return PoolAccess.READ_WRITE if ordinal in readers else PoolAccess.NONE

    @call("cudaMemPoolSetAccess")
    def set_pool_access(self, pool: int, ordinal: int, access: PoolAccess) -> None:
        """Let a device touch a pool's memory, or not."""
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
        self._access.check_ordinal(peer)
        self._open(ordinal)
        self._access.enable_peer(ordinal, peer)
        self._open(peer)

    @call("cudaDeviceDisablePeerAccess")
    def disable_peer_access(self, ordinal: int, peer: int) -> None:
        """Undo `enable_peer_access`."""
        self._access.check_ordinal(peer)
        self._access.check_ordinal(ordinal)
        self._access.disable_peer(ordinal, peer)

    # Contents

    @call("cudaMemcpyAsync")
    def copy(self, dst: int, src: int, nbytes: int, stream: int, ordinal: int) -> None:
        """Copy bytes in the order of a stream."""
        self._transfers.copy(dst, src, nbytes, self._stream(stream, ordinal))

    @call("cudaMemcpyPeerAsync")
    def copy_peer(self, dst: int, dst_ordinal: int, src: int, src_ordinal: int, nbytes: int, stream: int) -> None:
        """Copy bytes between two devices in the order of a stream; 0 is the current device's null stream."""
        self._access.check_ordinal(dst_ordinal)
        self._access.check_ordinal(src_ordinal)
        self._transfers.copy_peer(dst, src, nbytes, self._stream(stream, None))

    @call("kernel", takes_arrays=True)
    def copy_elements(self, dst: StridedMemory, src: StridedMemory, stream: int, ordinal: int) -> None:
        """Copy elements as a kernel does; a fault shows in the next call."""
        queue = self._kernel_stream(stream, ordinal)
        self._launch(self._transfers.copy_elements(dst, src, queue), queue)

    @call("cudaMemsetAsync")
    def fill(self, ptr: int, byte: int, nbytes: int, stream: int, ordinal: int) -> None:
        """Set bytes in the order of a stream."""
        self._transfers.fill(ptr, byte, nbytes, self._stream(stream, ordinal))

    @call("kernel", takes_arrays=True)
    def fill_elements(self, dst: StridedMemory, value: np.generic, stream: int, ordinal: int) -> None:
        """Set elements as a kernel does; a fault shows in the next call."""
        queue = self._kernel_stream(stream, ordinal)
        self._launch(self._transfers.fill_elements(dst, value, queue), queue)

    # Managed memory

    @call("cudaMemAdvise")
    def advise(self, ptr: int, nbytes: int, advice: MemoryAdvice, location: int) -> None:
        """Give advice about managed memory."""
        self._transfers.advise(ptr, nbytes, advice, location)

    @call("cudaMemPrefetchAsync")
    def prefetch(self, ptr: int, nbytes: int, location: int, stream: int, ordinal: int) -> None:
        """Move managed memory in the order of a stream."""
        self._transfers.prefetch(ptr, nbytes, location, self._stream(stream, ordinal))

    # Pointers

    @call("cudaPointerGetAttributes", after_fault=True)
    def pointer_attributes(self, ptr: int) -> PointerAttributes:
        """Return what is known about an address, as the current device sees it."""
        block = self._memory.allocations.around(ptr)
        if block is None:
            return PointerAttributes(kind=MemoryKind.UNKNOWN, device=HOST_LOCATION, accessible=False)
        return PointerAttributes(
            kind=block.kind,
            device=block.device,
            accessible=self._access.can_touch(self._journal.thread.device, block),
            base=block.ptr,
            nbytes=block.nbytes,
            pool=0 if block.pool is None else block.pool.handle,
        )

    # How it is done

    def _settle(self, settled: Callable[[Condition], bool]) -> None:
        if self._journal.fault is not None:
            raise Refused(self._journal.fault, "a kernel faulted in the work that was waited for")
        self._memory.settle(settled)
