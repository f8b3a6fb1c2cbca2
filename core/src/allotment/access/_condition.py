"""What the rows of the access table ask of a case, each with the words for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from allotment.memory_kind import MemoryKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment.access._case import AccessCase


@dataclass(frozen=True, slots=True)
class Condition:
    """A question to a case.

    Parameters
    ----------
    words
        What it asks, for people; empty where it asks nothing.
    holds
        Whether the case meets it.
    """

    words: str
    holds: Callable[[AccessCase], bool]


# Who touches it

ANYBODY: Final = Condition("any", lambda _: True)
HOST: Final = Condition("host", lambda case: case.by_host)
GPU: Final = Condition("CUDA", lambda case: not case.by_host)

# What is touched

NOTHING: Final = Condition("none", lambda case: case.is_empty)
ITS_OWN: Final = Condition("the accessor's own", lambda case: case.is_at_home)
ANYTHING: Final = Condition("any other", lambda _: True)
HOST_MEMORY: Final = Condition("host", lambda case: case.is_host_memory)
PAGE_LOCKED: Final = Condition("page-locked", lambda case: case.kind is MemoryKind.PINNED)
MANAGED: Final = Condition("managed memory", lambda case: case.kind is MemoryKind.CUDA_MANAGED)
DEVICE_MEMORY: Final = Condition(
    "plain or pool", lambda case: case.kind in (MemoryKind.CUDA_DEVICE, MemoryKind.CUDA_MEMPOOL)
)
PLAIN: Final = Condition("plain", lambda case: case.is_ours and case.kind is MemoryKind.CUDA_DEVICE)
POOL: Final = Condition("pool", lambda case: case.is_ours and case.kind is MemoryKind.CUDA_MEMPOOL)
FOREIGN: Final = Condition("of another library, or mapped", lambda case: not case.is_ours)
FOREIGN_POOL: Final = Condition(
    "pool, of another library", lambda case: not case.is_ours and case.kind is MemoryKind.CUDA_MEMPOOL
)

# Under which condition

ALWAYS: Final = Condition("", lambda _: True)
UNIFIED_ADDRESSING: Final = Condition("accessor has unified addressing", lambda case: case.accessor.is_uva)
PAGEABLE_ACCESS: Final = Condition(
    "accessor has pageable access", lambda case: case.accessor.is_cpu_memory_access_from_gpu_supported
)
HOST_MAY_ANYTIME: Final = Condition(
    "owner has concurrent or direct managed access",
    lambda case: (
        case.owner.is_concurrent_managed_access_supported or case.owner.is_gpu_memory_access_from_cpu_supported
    ),
)
BOTH_MANAGED: Final = Condition(
    "both devices support managed memory",
    lambda case: case.accessor.is_managed_memory_supported and case.owner.is_managed_memory_supported,
)
MAPPED: Final = Condition("the driver maps it for the accessor", lambda case: case.seen_by_driver is True)
NOT_MAPPED: Final = Condition("the driver does not", lambda case: case.seen_by_driver is False)
POOL_GRANTED: Final = Condition("pool access granted", lambda case: case.pool_access is True)
POOL_NOT_GRANTED: Final = Condition("not granted", lambda case: case.pool_access is False)
PEER_ENABLED: Final = Condition("peer access enabled", lambda case: case.peer_access is True)
PEER_NOT_ENABLED: Final = Condition("not enabled", lambda case: case.peer_access is False)
NEVER_ASKED: Final = Condition("in a capture, never asked before", lambda case: case.is_ours)
