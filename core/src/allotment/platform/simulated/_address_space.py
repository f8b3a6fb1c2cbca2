"""Addresses that cost the host nothing until they are touched."""

from __future__ import annotations

import ctypes
import mmap
import sys
from typing import Final

from allotment.platform.simulated._errors import Refused
from allotment.platform.simulated._free_ranges import FreeRanges

_LAZY: Final = sys.platform == "linux"
"""Whether a mapping of any size is free of charge. Elsewhere it may count against the host's commit limit."""
_REGION: Final = 2**36 if _LAZY else 2**26
"""How much is mapped at a time, if nothing larger is asked for."""

_NO_RESERVE: Final = getattr(mmap, "MAP_NORESERVE", 0x4000 if _LAZY else 0)
"""Keeps a mapping off Linux's commit account; Python has no name for it before 3.13."""


class AddressSpace:
    """A growing range of host addresses, handed out in whole granules.

    Parameters
    ----------
    granule
        The size and alignment in bytes of what is handed out, a power of two and a multiple of the page size.
    region
        The bytes of address space to map at a time.
    """

    def __init__(self, granule: int, region: int = _REGION) -> None:
        self.granule = granule
        self._region = max(region, granule)
        self._regions: list[_Region] = []
        self._free = FreeRanges()

    def reserve(self, nbytes: int, *, lowest: bool = False) -> int:
        """Return the address of ``nbytes``, a whole number of granules: the last released of that size, or the lowest.

        Raises
        ------
        Refused
            ``cudaErrorMemoryAllocation``, if the host maps no more.
        """
        take = self._free.take_lowest if lowest else self._free.take
        start = take(nbytes)
        if start is None:
            self._grow(nbytes)
            start = take(nbytes)
        assert start is not None
        return start

    def reserve_at(self, start: int, nbytes: int) -> bool:
        """Reserve ``nbytes`` from ``start`` if all of it is free; return whether it was."""
        for run_start, run_end in self._free.runs():
            if run_start <= start and start + nbytes <= run_end:
                self._free.remove(start, start + nbytes)
                return True
        return False

    def release(self, start: int, nbytes: int) -> None:
        """Take ``nbytes`` back, and give what the host holds for them back to it."""
        self._region_of(start).discard(start, nbytes)
        self._free.add(start, nbytes)

    def contains(self, ptr: int) -> bool:
        """Return whether an address lies here, handed out or not."""
        return any(region.start <= ptr < region.end for region in self._regions)

    def close(self) -> None:
        """Unmap everything."""
        for region in self._regions:
            region.close()
        self._regions.clear()
        self._free = FreeRanges()

    def _grow(self, nbytes: int) -> None:
        size = max(nbytes, self._region)
        while True:
            try:
                region = _Region(size, self.granule)
                break
            except (OSError, ValueError, OverflowError) as error:
                if size <= nbytes:
                    raise Refused(
                        "cudaErrorMemoryAllocation", f"the host refused {nbytes:,} bytes of address space: {error}"
                    ) from error
                size = max(nbytes, size // 8 // self.granule * self.granule)
        self._regions.append(region)
        self._free.add(region.start, region.end - region.start)

    def _region_of(self, ptr: int) -> _Region:
        return next(region for region in self._regions if region.start <= ptr < region.end)


class _Region:
    """One anonymous mapping."""

    def __init__(self, nbytes: int, alignment: int) -> None:
        self._map = _map(nbytes + alignment)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._origin = address
        self.start = -(-address // alignment) * alignment
        self.end = self.start + nbytes

    def discard(self, start: int, nbytes: int) -> None:
        """Let the host drop the pages: they read as zeros again where it does."""
        if hasattr(self._map, "madvise") and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, start - self._origin, nbytes)

    def close(self) -> None:
        self._map.close()


def _map(nbytes: int) -> mmap.mmap:
    if sys.platform == "win32":
        return mmap.mmap(-1, nbytes)
    return mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
