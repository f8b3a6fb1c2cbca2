"""What can be configured about page-locked memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from allotment import MemoryAmount

_DEFAULT_CACHE: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedOptions:
    """Options of the ``pinned`` allocator.

    Parameters
    ----------
    cache_limit
        How much idle memory is kept for reuse, in bytes or as text such as ``"2 GiB"``; 0 keeps none. Memory above
        it goes back to the system, the longest idle first. Page-locking costs about a millisecond a block.
    """

    cache_limit: MemoryAmount = MemoryAmount(nbytes=_DEFAULT_CACHE)

    def __post_init__(self) -> None:
        if self.cache_limit.nbytes is None:
            raise ValueError(f"a size in bytes is expected, not {self.cache_limit}: host memory has no device")
