"""What every platform offers: the only door to the hardware.

Names and meanings are those of the CUDA runtime, because that is what every implementation models. A call that fails
raises `PlatformError` with CUDA's own name for the error, except the calls marked *raw*: these are on the hot path, may
raise the binding's own exception, and `Platform.error_from` turns that into a `PlatformError`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np

    from allotment.errors import PlatformError
    from allotment.memory_kind import MemoryKind

HOST_LOCATION = -1
"""The ordinal that stands for the host where a place of memory is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProperties:
    """What a CUDA device is and can do. Each flag is one attribute of the driver; none implies another."""

    name: str
    total_memory: int
    compute_capability: tuple[int, int]
    sm_count: int
    max_shared_memory_per_block: int
    uuid: str
    pci_bus_id: str
    unified_addressing: bool
    """CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING."""
    pageable_memory_access: bool
    """CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS: the GPU may touch any host memory."""
    direct_managed_access_from_host: bool
    """CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST."""
    host_native_atomic: bool
    """CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED."""
    managed_memory: bool
    """CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY."""
    concurrent_managed_access: bool
    """CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS."""
    memory_pools: bool
    """CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED."""
    integrated: bool
    """CU_DEVICE_ATTRIBUTE_INTEGRATED."""
    ipc: bool | None
    """CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED; ``None`` where the driver does not know the attribute."""


@dataclass(frozen=True, slots=True)
class MemoryInfo:
    """A device's memory in bytes."""

    free: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PointerAttributes:
    """What the platform says about an address.

    Parameters
    ----------
    kind
        The kind of memory; `MemoryKind.UNKNOWN` for an address that the platform does not know (pageable host memory,
        freed memory, memory owned by a graph that has not run).
    device
        The ordinal that the memory belongs to; `HOST_LOCATION` for unknown addresses.
    accessible
        Whether the current device may touch it: ``devicePointer`` of cudaPointerGetAttributes is not null.
    base, nbytes
        The allocation around the address, as it was asked for; 0 where unknown.
    pool
        The handle of the pool it came from; 0 if none.
    """

    kind: MemoryKind
    device: int
    accessible: bool
    base: int = 0
    nbytes: int = 0
    pool: int = 0


class PoolAttribute(IntEnum):
    """The attributes of a memory pool, with cudaMemPoolAttr's values."""

    REUSE_FOLLOW_EVENT_DEPENDENCIES = 1
    REUSE_ALLOW_OPPORTUNISTIC = 2
    REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3
    RELEASE_THRESHOLD = 4
    RESERVED_CURRENT = 5
    RESERVED_HIGH = 6
    USED_CURRENT = 7
    USED_HIGH = 8


class MemoryAdvice(IntEnum):
    """Advice about managed memory, with cudaMemoryAdvise's values."""

    SET_READ_MOSTLY = 1
    UNSET_READ_MOSTLY = 2
    SET_PREFERRED_LOCATION = 3
    UNSET_PREFERRED_LOCATION = 4
    SET_ACCESSED_BY = 5
    UNSET_ACCESSED_BY = 6


class PoolAccess(Enum):
    """Who may touch a pool's memory."""

    NONE = 0
    READ_WRITE = 3


@dataclass(frozen=True, slots=True)
class StridedMemory:
    """Elements in memory: what a strided copy or fill works on.

    Parameters
    ----------
    ptr
        The address of the first element.
    shape
        The extent of each dimension.
    strides
        The step of each dimension in bytes.
    dtype
        The element type.
    device
        The ordinal of the device that the memory belongs to, `HOST_LOCATION` for host memory.
    owner
        What keeps the memory alive.
    """

    ptr: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[np.generic]
    device: int
    owner: object


@runtime_checkable
class Platform(Protocol):
    """The narrow seam that everything above uses. Ordinals, handles and addresses are plain integers."""

    name: str
    """What it is called where platforms are chosen: ``cuda``, ``host``, ``sim:2xh200``."""
    description: str
    """What it is, in one line for the startup report."""
    why: str
    """Why it was chosen."""

    def device_count(self) -> int:
        """Return the number of CUDA devices. Opens no context."""
        ...

    def device_properties(self, ordinal: int) -> DeviceProperties:
        """Return what a device is and can do. Opens no context."""
        ...

    def versions(self) -> tuple[int, int]:
        """Return the CUDA versions of runtime and driver, as 1000 × major + 10 × minor; zeros without CUDA."""
        ...

    def has_context(self, ordinal: int) -> bool:
        """Return whether a device's primary context is open. Opens none."""
        ...

    def memory_info(self, ordinal: int) -> MemoryInfo:
        """Return a device's free and total memory. Opens its context."""
        ...

    def current_device(self) -> int:
        """Return the ordinal of the calling thread's current device. *Raw*."""
        ...

    def set_current_device(self, ordinal: int, /) -> None:
        """Make a device current in the calling thread. *Raw*."""
        ...

    def current_context(self) -> object:
        """Return what is current in the calling thread, for `restore_context`. Opens no context. *Raw*."""
        ...

    def restore_context(self, context: object, /) -> None:
        """Make current again what `current_context` returned in the same thread. *Raw*.

        A thread that had no context then has none again: ``cudaSetDevice`` would open that of a device which had only
        been current by default.
        """
        ...

    def synchronize_device(self, ordinal: int) -> None:
        """Wait for all work on a device."""
        ...

    def error_from(self, exception: BaseException) -> PlatformError | None:
        """Return a raw call's exception as an error of ours; ``None`` if it is not from the platform."""
        ...

    # Streams and events

    def create_stream(self, ordinal: int, *, non_blocking: bool, priority: int) -> int:
        """Return a new stream of a device."""
        ...

    def destroy_stream(self, stream: int) -> None:
        """Destroy a stream; work that it holds still runs."""
        ...

    def synchronize_stream(self, stream: int, ordinal: int) -> None:
        """Wait for the work of a stream; 0 is the device's null stream."""
        ...

    def stream_is_done(self, stream: int, ordinal: int) -> bool:
        """Return whether a stream has no unfinished work."""
        ...

    def wait_for_stream(self, waiting: int, awaited: int, waiting_ordinal: int, awaited_ordinal: int) -> None:
        """Make later work of one stream wait for the present work of another, without waiting here."""
        ...

    def create_event(self, ordinal: int) -> int:
        """Return a new event without timing."""
        ...

    def destroy_event(self, event: int) -> None:
        """Destroy an event."""
        ...

    def record_event(self, event: int, stream: int, ordinal: int) -> None:
        """Mark a stream's present end with an event."""
        ...

    def event_is_done(self, event: int) -> bool:
        """Return whether the work before an event's mark is done."""
        ...

    def synchronize_event(self, event: int) -> None:
        """Wait for an event's mark."""
        ...

    # Allocation

    def malloc(self, nbytes: int, /) -> int:
        """Return new memory of the current device. *Raw*."""
        ...

    def free(self, ptr: int, /) -> None:
        """Free memory of malloc or malloc_managed. *Raw*."""
        ...

    def malloc_managed(self, nbytes: int, /) -> int:
        """Return new managed memory, made under the current device. *Raw*."""
        ...

    def host_alloc(self, nbytes: int, /) -> int:
        """Return new page-locked host memory, portable across devices. *Raw*."""
        ...

    def host_free(self, ptr: int, /) -> None:
        """Free memory of host_alloc. *Raw*."""
        ...

    def malloc_from_pool(self, nbytes: int, pool: int, stream: int, /) -> int:
        """Return memory of a pool in the order of a stream. *Raw*."""
        ...

    def free_async(self, ptr: int, stream: int, /) -> None:
        """Free memory in the order of a stream. *Raw*."""
        ...

    # Pools

    def create_pool(self, ordinal: int) -> int:
        """Return a new pool of a device."""
        ...

    def destroy_pool(self, pool: int) -> None:
        """Destroy a pool; memory still live stays valid until it is freed."""
        ...

    def default_pool(self, ordinal: int) -> int:
        """Return the device's default pool, which all libraries of the process share."""
        ...

    def pool_attribute(self, pool: int, attribute: PoolAttribute) -> int:
        """Return an attribute of a pool."""
        ...

    def set_pool_attribute(self, pool: int, attribute: PoolAttribute, value: int) -> None:
        """Set an attribute of a pool."""
        ...

    def trim_pool(self, pool: int, keep_bytes: int) -> None:
        """Give idle memory of a pool back until at most ``keep_bytes`` are reserved."""
        ...

    def pool_access(self, pool: int, ordinal: int) -> PoolAccess:
        """Return whether a device may touch a pool's memory."""
        ...

    def set_pool_access(self, pool: int, ordinal: int, access: PoolAccess) -> None:
        """Let a device touch a pool's memory, or not."""
        ...

    # Peers

    def can_access_peer(self, ordinal: int, peer: int) -> bool:
        """Return whether the hardware lets device ``ordinal`` touch memory of ``peer``. Opens no context."""
        ...

    def enable_peer_access(self, ordinal: int, peer: int) -> None:
        """Let device ``ordinal`` touch cudaMalloc memory of ``peer``."""
        ...

    def disable_peer_access(self, ordinal: int, peer: int) -> None:
        """Undo `enable_peer_access`."""
        ...

    # Contents

    def copy(self, dst: int, src: int, nbytes: int, stream: int, ordinal: int) -> None:
        """Copy bytes between any two kinds of memory in the order of a stream of device ``ordinal``.

        Host memory that is not page-locked is read before the call returns and written when the stream gets there.
        """
        ...

    def copy_peer(self, dst: int, dst_ordinal: int, src: int, src_ordinal: int, nbytes: int, stream: int) -> None:
        """Copy bytes between two devices in the order of a stream, with or without access between them."""
        ...

    def copy_elements(self, dst: StridedMemory, src: StridedMemory, stream: int, ordinal: int) -> None:
        """Copy elements of equal shape and type that device ``ordinal`` can reach, in the order of a stream."""
        ...

    def fill(self, ptr: int, byte: int, nbytes: int, stream: int, ordinal: int) -> None:
        """Set bytes of memory that device ``ordinal`` can reach, in the order of a stream."""
        ...

    def fill_elements(self, dst: StridedMemory, value: np.generic, stream: int, ordinal: int) -> None:
        """Set elements of memory that device ``ordinal`` can reach, in the order of a stream."""
        ...

    # Managed memory

    def advise(self, ptr: int, nbytes: int, advice: MemoryAdvice, location: int) -> None:
        """Give advice about a range of managed memory and a place: an ordinal or `HOST_LOCATION`."""
        ...

    def prefetch(self, ptr: int, nbytes: int, location: int, stream: int, ordinal: int) -> None:
        """Move a range of managed memory to a place in the order of a stream of device ``ordinal``."""
        ...

    # Pointers

    def pointer_attributes(self, ptr: int) -> PointerAttributes:
        """Return what is known about an address, as the current device sees it."""
        ...
