"""What class of memory a pointer denotes."""

from enum import IntEnum


class MemoryKind(IntEnum):
    """The class of memory behind a pointer, as its allocator declares it or the platform reports it.

    A kind says which access rules apply. It does not say where managed pages reside at the moment, that a device may
    touch them, or that work on them has finished.

    Notes
    -----
    The values are those of Warp's ``MemoryKind``, so that numbers written by either can be read by the other.
    """

    UNKNOWN = 0
    """Nobody could say."""
    HOST = 1
    """Pageable host memory."""
    PINNED = 2
    """Page-locked host memory."""
    CUDA_DEVICE = 3
    """Device memory that belongs to no pool, as from ``cudaMalloc``."""
    CUDA_MEMPOOL = 4
    """Device memory from a stream-ordered memory pool."""
    CUDA_MANAGED = 5
    """Managed (unified) memory, whose pages may migrate."""

    def __str__(self) -> str:
        return self.name

    @property
    def on_host(self) -> bool:
        """Whether host code reaches this kind on every system."""
        return self in (MemoryKind.HOST, MemoryKind.PINNED)
