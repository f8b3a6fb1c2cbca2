"""The values that calls of a platform take and return, with CUDA's own numbers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

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
    virtual_memory: bool
    """CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED."""
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
    """Who may touch memory of a pool or of a mapping."""

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


class CaptureMode(IntEnum):
    """Which calls a capture does not bear, with cudaStreamCaptureMode's values.

    A call that is not safe while a stream is captured (one that allocates or synchronises, say) ends the capture in the
    modes that forbid it.
    """

    GLOBAL = 0
    """Forbidden in every thread that has not relaxed its own mode."""
    THREAD_LOCAL = 1
    """Forbidden in the capturing thread."""
    RELAXED = 2
    """Nothing is forbidden but what waits for the captured work."""


class CaptureStatus(IntEnum):
    """Whether a stream is captured, with cudaStreamCaptureStatus's values."""

    NONE = 0
    ACTIVE = 1
    INVALIDATED = 2
    """It was, and a forbidden call ended that; the capture has still to be ended."""


@dataclass(frozen=True, slots=True)
class GraphMemory:
    """What graphs hold of a device's memory in bytes, apart from its pools.

    Parameters
    ----------
    used, used_high
        The memory of graphs that have run and not freed it, now and at most so far.
    reserved, reserved_high
        What is mapped for graphs, now and at most so far.
    """

    used: int
    used_high: int
    reserved: int
    reserved_high: int
