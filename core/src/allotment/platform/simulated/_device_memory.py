"""Physical memory and the heaps that draw on it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from allotment.platform.simulated._address_space import AddressSpace
from allotment.platform.simulated._errors import OUT_OF_MEMORY, Refused
from allotment.platform.simulated._free_ranges import FreeRanges
from allotment.units import format_bytes

if TYPE_CHECKING:
    from allotment.platform.simulated._pointer import Allocation
    from allotment.platform.simulated._stream import Stream, Streams

ALIGNMENT: Final = 512
"""What every address is a multiple of (recorded: size/alignment)."""
GRANULE: Final = 2 * 2**20
"""What memory outside pools is mapped in (recorded: MAPPING_SIZE in pointer/malloc)."""


def round_up(nbytes: int, multiple: int) -> int:
    """Return the least multiple that is no less than ``nbytes``."""
    return -(-nbytes // multiple) * multiple


class Reclaimable(Protocol):
    """Holds physical memory that it can give up."""

    def idle_bytes(self) -> int:
        """Return how much `reclaim` could give back."""
        ...

    def reclaim(self, nbytes: int) -> None:
        """Give at least ``nbytes`` back, or all that can be."""
        ...


class PhysicalMemory:
    """The memory of one device, or of the host.

    Parameters
    ----------
    name
        What it is called in errors.
    total
        Its size in bytes.
    """

    def __init__(self, name: str, total: int) -> None:
        self.name = name
        self.total = total
        self.used = 0
        self.pools: list[Reclaimable] = []

    @property
    def free(self) -> int:
        """The bytes that nothing holds."""
        return self.total - self.used

    def charge(self, nbytes: int) -> None:
        """Take ``nbytes``, from what pools hold idle if need be.

        Raises
        ------
        Refused
            ``cudaErrorMemoryAllocation``; nothing has changed then.
        """
        if nbytes > self.free:
            self._reclaim(nbytes)
        self.used += nbytes

    def refund(self, nbytes: int) -> None:
        """Give ``nbytes`` back."""
        self.used -= nbytes

    def _reclaim(self, nbytes: int) -> None:
        idle = sum(pool.idle_bytes() for pool in self.pools)
        if nbytes > self.free + idle:
            raise Refused(
                OUT_OF_MEMORY,
                f"{self.name} has {format_bytes(self.free)} free and {format_bytes(idle)} idle in pools "
                f"of {format_bytes(self.total)}; {format_bytes(nbytes)} were needed",
            )
        for pool in self.pools:
            if nbytes > self.free:
                pool.reclaim(nbytes - self.free)


class Heap:
    """Memory outside pools: small blocks share a granule, larger ones have granules of their own.

    Parameters
    ----------
    memory
        What it draws on.
    streams
        Where a free that is ordered behind a stream's work is queued.
    """

    def __init__(self, memory: PhysicalMemory, streams: Streams) -> None:
        self.memory = memory
        self._streams = streams
        self.space = AddressSpace(GRANULE)
        self._small = FreeRanges()
        self._live: dict[int, int] = {}

    def allocate(self, nbytes: int) -> int:
        """Return the address of a new block of ``nbytes`` > 0."""
        if nbytes >= GRANULE:
            return self._map(round_up(nbytes, GRANULE))
        size = round_up(nbytes, ALIGNMENT)
        start = self._small.take(size)
        if start is None:
            start = self._map(GRANULE)
            if size < GRANULE:
                self._small.add(start + size, GRANULE - size)
        for granule in _granules(start, size):
            self._live[granule] = self._live.get(granule, 0) + 1
        return start

    def free(self, allocation: Allocation, stream: Stream | None) -> None:
        """Take a block back once ``stream`` gets there, or at once."""
        if stream is None:
            self._release(allocation.ptr, allocation.nbytes)
        else:
            self._streams.submit(stream, partial(self._release, allocation.ptr, allocation.nbytes))

    def _release(self, start: int, nbytes: int) -> None:
        if nbytes >= GRANULE:
            self._unmap(start, round_up(nbytes, GRANULE))
            return
        size = round_up(nbytes, ALIGNMENT)
        self._small.add(start, size)
        for granule in _granules(start, size):
            self._live[granule] -= 1
            if not self._live[granule]:
                del self._live[granule]
                self._small.remove(granule, granule + GRANULE)
                self._unmap(granule, GRANULE)

    def _map(self, nbytes: int) -> int:
        self.memory.charge(nbytes)
        try:
            return self.space.reserve(nbytes)
        except Refused:
            self.memory.refund(nbytes)
            raise

    def _unmap(self, start: int, nbytes: int) -> None:
        self.space.release(start, nbytes)
        self.memory.refund(nbytes)


def _granules(start: int, size: int) -> range:
    """Return the addresses of the granules that a small block lies in: one, or two that are neighbours."""
    return range(start // GRANULE * GRANULE, start + size, GRANULE)
