"""What configuration may say about the allocator."""

from __future__ import annotations

from dataclasses import dataclass

from allotment import MemoryAmount


@dataclass(frozen=True, slots=True, kw_only=True)
class YourPoolOptions:
    """Options of the ``your-pool`` allocator.

    Unknown names and values of another type are refused before they come here; what else cannot be is refused here.

    Parameters
    ----------
    granularity
        Sizes are rounded up to a multiple of it, in bytes or as text such as ``"2 MiB"``.
    """

    granularity: MemoryAmount = MemoryAmount(nbytes=512)

    def __post_init__(self) -> None:
        if not self.granularity.nbytes:
            raise ValueError(f"granularity is an amount above 0 in bytes, not {self.granularity}")

    def rounded(self, size_in_bytes: int) -> int:
        """Return a size in bytes, rounded up."""
        granularity = self.granularity.nbytes or 1
        return -(-size_in_bytes // granularity) * granularity
