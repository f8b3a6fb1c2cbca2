"""All memory of the simulated machine: heaps, pools and live blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allotment.memory_kind import MemoryKind
from allotment.platform.simulated._device_memory import Heap, PhysicalMemory
from allotment.platform.simulated._errors import INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, Refused
from allotment.platform.simulated._owned_memory import GraphHeap
from allotment.platform.simulated._pointer import Allocation, Allocations, Foreign, ManagedState
from allotment.platform.simulated._pool import Pool
from allotment.platform.simulated._virtual_memory import VirtualMemory
from allotment.units import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment.platform.simulated._free_ranges import Condition
    from allotment.platform.simulated._profile import Profile
    from allotment.platform.simulated._stream import Handles, Stream, Streams

_DEVICE, _POOLED, _MANAGED, _PINNED = (
    MemoryKind.CUDA_DEVICE,
    MemoryKind.CUDA_MEMPOOL,
    MemoryKind.CUDA_MANAGED,
    MemoryKind.PINNED,
)


class Memory:
    """What can be allocated, and what is.

    Parameters
    ----------
    profile
        The devices and the host.
    streams
        What frees are ordered in.
    handles
        Where handles of pools come from.
    """

    def __init__(self, profile: Profile, streams: Streams, handles: Handles) -> None:
        self.allocations = Allocations()
        self.on_release: list[Callable[[Allocation], None]] = []
        self.host = PhysicalMemory("the host", profile.host_memory)
        self.devices = [
            PhysicalMemory(f"device {ordinal}", device.total_memory) for ordinal, device in enumerate(profile.devices)
        ]
        self._profile = profile
        self._streams = streams
        self._handles = handles
        self._heaps = [Heap(memory, streams) for memory in self.devices]
        self._pinned = [Heap(self._behind_pinned(ordinal), streams) for ordinal in range(len(self.devices))]
        self._managed = [Heap(self._behind_managed(ordinal), streams) for ordinal in range(len(self.devices))]
        self.graph_heaps = [
            GraphHeap(ordinal, memory, self.allocations, streams) for ordinal, memory in enumerate(self.devices)
        ]
        self.virtual = VirtualMemory(profile, self.devices, self.allocations, handles)
        self._pools: dict[int, Pool] = {}
        self._default_pools: dict[int, Pool] = {}
        self._current_pools: dict[int, Pool] = {}
        self._every_pool: list[Pool] = []

    def contains(self, ptr: int) -> bool:
        """Return whether an address is one that is handed out here, live or not."""
        spaces = [heap.space for heap in (*self._heaps, *self._pinned, *self._managed)]
        spaces += [heap.space for heap in self.graph_heaps]
        spaces += [pool.space for pool in self._every_pool]
        return any(space.contains(ptr) for space in spaces) or self.virtual.contains(ptr)

    # Blocks outside pools

    def malloc(self, nbytes: int, ordinal: int) -> int:
        """Return the address of new memory of a device; 0 for no bytes."""
        return self._new(nbytes, self._heaps[ordinal], _DEVICE, ordinal)

    def malloc_managed(self, nbytes: int, ordinal: int) -> int:
        """Return the address of new managed memory made under a device; 0 for no bytes."""
        if not self._profile.devices[ordinal].managed_memory:
            raise Refused(NOT_SUPPORTED, f"device {ordinal} has no managed memory")
        return self._new(nbytes, self._managed[ordinal], _MANAGED, ordinal)

    def host_alloc(self, nbytes: int, ordinal: int) -> int:
        """Return the address of new page-locked memory made under a device; 0 for no bytes."""
        return self._new(nbytes, self._pinned[ordinal], _PINNED, ordinal)

    def free(self, ptr: int) -> None:
        """Free device or managed memory at once."""
        block = self._to_free(ptr, _DEVICE, _MANAGED)
        if block is not None:
            self._streams.synchronize_device(None if block.kind is _MANAGED else block.device)
            self.release(block, None)

    def host_free(self, ptr: int) -> None:
        """Free page-locked memory at once."""
        block = self._to_free(ptr, _PINNED)
        if block is not None and block.pool is not None:
            raise Refused(INVALID_VALUE, f"{ptr:#x} comes from a pool")
        if block is not None:
            self._streams.synchronize_device()
            self.release(block, None)

    def host_register(self, ptr: int, nbytes: int, ordinal: int) -> None:
        """Page-lock host memory of others."""
        block = self.allocations.at(ptr)
        if block is not None and isinstance(block.source, Registration):
            raise Refused("cudaErrorHostMemoryAlreadyRegistered", f"{ptr:#x} is registered already")
        if nbytes <= 0 or self.contains(ptr):
            raise Refused(INVALID_VALUE, f"{nbytes:,} bytes at {ptr:#x} are not host memory of others")
        self.allocations.add(Allocation(ptr, nbytes, _PINNED, ordinal, Registration()))

    def host_unregister(self, ptr: int) -> None:
        """Undo `host_register`."""
        block = self.allocations.at(ptr)
        if block is None or not isinstance(block.source, Registration):
            raise Refused("cudaErrorHostMemoryNotRegistered", f"{ptr:#x} is not registered")
        self._streams.synchronize_device()
        self.release(block, None)

    def free_async(self, ptr: int, stream: Stream) -> None:
        """Free device memory in the order of a stream."""
        block = self.allocations.at(ptr)
        if block is not None and block.kind is _MANAGED and block.pool is None:
            raise Refused(NOT_SUPPORTED, f"managed memory at {ptr:#x} cannot be freed in the order of a stream")
        block = self._to_free(ptr, _DEVICE)
        if block is not None:
            self.release(block, stream)

    # Pools

    def malloc_from_pool(self, nbytes: int, handle: int, stream: Stream) -> int:
        """Return the address of new memory of a pool, for later work of a stream; 0 for no bytes."""
        pool = self.pool(handle)
        if nbytes == 0:
            return 0
        _check_size(nbytes)
        ptr = pool.allocate(nbytes, stream)
        managed = ManagedState() if pool.kind is _MANAGED else None
        self.allocations.add(Allocation(ptr, nbytes, pool.kind, pool.ordinal, pool, pool, managed))
        return ptr

    def create_pool(self, ordinal: int) -> Pool:
        """Return a new pool of a device."""
        if not self._profile.devices[ordinal].memory_pools:
            raise Refused(NOT_SUPPORTED, f"device {ordinal} has no memory pools")
        return self._add_pool(Pool(self._handles.take(), ordinal, self.devices[ordinal], self._streams))

    def create_pool_of(self, kind: MemoryKind, max_bytes: int) -> Pool:
        """Return a new pool of device memory, of managed memory, which anything may touch, or of pinned memory.

        Both other kinds are pools of the host here: where managed pages begin changes nothing else.
        """
        memory = self.devices[0] if kind is _POOLED else self.host
        return self._add_pool(Pool(self._handles.take(), 0, memory, self._streams, kind, max_bytes))

    def default_pool(self, ordinal: int) -> Pool:
        """Return the pool that all libraries share on a device."""
        if ordinal not in self._default_pools:
            self._default_pools[ordinal] = self.create_pool(ordinal)
        return self._default_pools[ordinal]

    def current_pool(self, ordinal: int) -> Pool:
        """Return the pool that a device's allocations without a pool come from."""
        pool = self._current_pools.get(ordinal)
        return self.default_pool(ordinal) if pool is None or pool.destroyed else pool

    def set_current_pool(self, ordinal: int, pool: Pool) -> None:
        """Choose the pool that a device's allocations without a pool come from."""
        if pool.ordinal != ordinal:
            raise Refused(INVALID_VALUE, f"the pool is one of device {pool.ordinal}")
        self._current_pools[ordinal] = pool

    def pool(self, handle: int) -> Pool:
        """Return the pool of a handle."""
        pool = self._pools.get(handle)
        if pool is None:
            raise Refused(INVALID_VALUE, f"there is no pool {handle:#x}")
        return pool

    def destroy_pool(self, handle: int) -> None:
        """Destroy a pool that was created."""
        pool = self.pool(handle)
        if self._default_pools.get(pool.ordinal) is pool:
            raise Refused(INVALID_VALUE, f"the default pool of device {pool.ordinal} cannot be destroyed")
        del self._pools[handle]
        pool.destroy()
        self._every_pool = [pool for pool in self._every_pool if not pool.closed]
        if pool.closed:
            self._handles.give_back(handle)

    def release(self, block: Allocation, stream: Stream | None) -> None:
        """Forget a live block, and give it back in the order of a stream, or at once."""
        self.allocations.remove(block)
        for forget in self.on_release:
            forget(block)
        block.source.free(block, stream)

    def reset_device(self, ordinal: int) -> None:
        """Free what a device's context holds outside pools; what is mapped is not of a context."""
        for block in self.allocations.of_kinds((_DEVICE, _MANAGED, _PINNED)):
            if block.device == ordinal and block.pool is None and block.reservation is None:
                self.release(block, None)

    def settle(self, settled: Callable[[Condition], bool]) -> None:
        """Tell all pools that a synchronise waited for what ``settled`` says."""
        for pool in self._every_pool:
            if not pool.closed:
                pool.settle(settled)

    def close(self) -> None:
        """Give all host memory back."""
        for heap in (*self._heaps, *self._pinned, *self._managed):
            heap.space.close()
        for graph_heap in self.graph_heaps:
            graph_heap.space.close()
        for pool in self._every_pool:
            pool.space.close()
        self.virtual.close()

    # How it is done

    def _new(self, nbytes: int, heap: Heap, kind: MemoryKind, ordinal: int) -> int:
        if nbytes == 0:
            return 0
        _check_size(nbytes)
        ptr = heap.allocate(nbytes)
        managed = ManagedState() if kind is _MANAGED else None
        self.allocations.add(Allocation(ptr, nbytes, kind, ordinal, heap, None, managed))
        return ptr

    def _to_free(self, ptr: int, *kinds: MemoryKind) -> Allocation | None:
        """Return the live block at ``ptr``, which is of a pool or one of ``kinds``; null is nothing to free."""
        if ptr == 0:
            return None
        block = self.allocations.at(ptr)
        if block is None:
            raise Refused(INVALID_VALUE, f"no block begins at {ptr:#x}")
        if isinstance(block.source, Foreign):
            raise Refused(INVALID_VALUE, f"the memory at {ptr:#x} was allocated elsewhere")
        if block.pool is None and block.kind not in kinds:
            raise Refused(INVALID_VALUE, f"{ptr:#x} is {block.kind.name} memory, which is freed by another call")
        return block

    def _add_pool(self, pool: Pool) -> Pool:
        self._pools[pool.handle] = pool
        self._every_pool.append(pool)
        return pool

    def _behind_pinned(self, ordinal: int) -> PhysicalMemory:
        return self.devices[ordinal] if self._profile.devices[ordinal].integrated else self.host

    def _behind_managed(self, ordinal: int) -> PhysicalMemory:
        # A device that migrates pages on demand may be oversubscribed; elsewhere managed memory has to fit.
        device = self._profile.devices[ordinal]
        return self.host if device.concurrent_managed_access and not device.integrated else self.devices[ordinal]


class Registration(Foreign):
    """The source of host memory of others that is page-locked here."""


def _check_size(nbytes: int) -> None:
    if not 0 <= nbytes <= MAX_BYTES:
        raise Refused(OUT_OF_MEMORY, f"{nbytes:,} bytes are more than any device has")
