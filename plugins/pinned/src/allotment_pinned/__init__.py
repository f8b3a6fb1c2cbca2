"""Page-locked host memory for Allotment."""

from allotment_pinned._allocator import PinnedAllocator
from allotment_pinned._options import PinnedOptions

__all__ = ["PinnedAllocator", "PinnedOptions"]
