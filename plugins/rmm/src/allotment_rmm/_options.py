"""What can be configured about RMM."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import Final

from allotment import AllocatorTraits, IpcKind, MemoryAmount, MemoryKind


class Resource(Enum):
    """A memory resource of RMM."""

    CURRENT = "current"
    """The one that is the device's in RMM when the allocator is made, which other users of RMM draw from too."""
    CUDA = "cuda"
    """``cudaMalloc``."""
    ASYNC = "async"
    """A CUDA memory pool."""
    MANAGED = "managed"
    """``cudaMallocManaged``."""
    POOL = "pool"
    """RMM's pool, which fits requests as closely as it can and joins what is free."""
    ARENA = "arena"
    """RMM's arenas, one for each stream, in one piece of memory that never grows."""
    BINNING = "binning"
    """Bins of fixed sizes, over a pool for what is larger."""


class Upstream(Enum):
    """What a pool, arenas or bins are made of."""

    CUDA = "cuda"
    """Device memory."""
    MANAGED = "managed"
    """Managed memory."""


_CONCERNS: Final = {
    "upstream": (Resource.POOL, Resource.ARENA, Resource.BINNING),
    "initial_size": (Resource.POOL, Resource.ARENA, Resource.BINNING, Resource.ASYNC),
    "maximum_size": (Resource.POOL, Resource.BINNING),
    "release_threshold": (Resource.ASYNC,),
    "smallest_bin": (Resource.BINNING,),
    "largest_bin": (Resource.BINNING,),
}
"""The resources that each option is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RmmOptions:
    """Options of the ``rmm`` allocator. Amounts are a fraction of the device's memory up to 1, bytes, or text.

    Parameters
    ----------
    resource
        The resource of RMM that memory comes from: by default the one that is current for the device when the allocator
        is made.
    upstream
        What a pool, arenas or bins are made of: ``"cuda"``, the default, or ``"managed"``.
    initial_size
        What a pool begins with, by RMM's own default half of the memory that is free; what the arenas have in all; what
        a CUDA memory pool begins with, by default nothing.
    maximum_size
        The most that a pool may grow to, by default all there is.
    release_threshold
        How much idle memory a CUDA memory pool keeps when the device is synchronised; by default all of it.
    smallest_bin, largest_bin
        The sizes of bins: powers of two from the one to the other, 64 KiB to 1 MiB by default. RMM makes 128 blocks for
        each at once.
    """

    resource: Resource = Resource.CURRENT
    upstream: Upstream | None = None
    initial_size: MemoryAmount | None = None
    maximum_size: MemoryAmount | None = None
    release_threshold: MemoryAmount | None = None
    smallest_bin: MemoryAmount | None = None
    largest_bin: MemoryAmount | None = None

    def __post_init__(self) -> None:
        said = [option.name for option in fields(self) if getattr(self, option.name) is not None]
        for name in said:
            concerned = _CONCERNS.get(name)
            if concerned is not None and self.resource not in concerned:
                kinds = ", ".join(repr(resource.value) for resource in concerned)
                raise ValueError(f"{name} concerns the resources {kinds}, and the resource is {self.resource.value!r}")

    @property
    def kind(self) -> MemoryKind:
        """The kind of memory; `MemoryKind.UNKNOWN` of the current resource, which may be any."""
        if self.resource is Resource.CURRENT:
            return MemoryKind.UNKNOWN
        if self.resource is Resource.ASYNC:
            return MemoryKind.CUDA_MEMPOOL
        is_managed = self.resource is Resource.MANAGED or self.upstream is Upstream.MANAGED
        return MemoryKind.CUDA_MANAGED if is_managed else MemoryKind.CUDA_DEVICE

    @property
    def traits(self) -> AllocatorTraits:
        """What holds of memory of the resource. RMM promises 256 bytes of alignment for every one."""
        return AllocatorTraits(
            memory_kind=self.kind,
            alignment=256,
            # Of the current resource nobody knows: it may hand a block out again before other streams are done.
            stream_ordered=self.resource not in (Resource.CUDA, Resource.MANAGED),
            capturable=self.resource is Resource.ASYNC,
            ipc=IpcKind.LEGACY if self.resource is Resource.CUDA else IpcKind.NONE,
        )
