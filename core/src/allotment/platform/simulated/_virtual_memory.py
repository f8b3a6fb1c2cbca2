"""Virtual memory: reserved addresses, physical memory, and which of it is mapped where.

The rules are those that two H200s were seen to follow, and the CUDA driver's documentation where those were not asked.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from weakref import finalize

from allotment.memory_kind import MemoryKind
from allotment.platform.simulated import _host_mapping as host
from allotment.platform.simulated._device_memory import GRANULE
from allotment.platform.simulated._errors import INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, Refused
from allotment.platform.simulated._pointer import Allocation, Foreign, Reservation
from allotment.units import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allotment.platform.simulated._device_memory import PhysicalMemory
    from allotment.platform.simulated._pointer import Allocations
    from allotment.platform.simulated._profile import Profile
    from allotment.platform.simulated._stream import Handles

GRANULARITY: Final = GRANULE
"""What addresses and sizes are multiples of: cuMemGetAllocationGranularity of an H200."""


@dataclass(slots=True, eq=False)
class Physical(Foreign):
    """Physical memory of a device, and the source of the blocks where it is mapped.

    It is a device's as no cudaMalloc memory is: no free reaches it, and it has no handle for other processes.

    Parameters
    ----------
    ordinal, nbytes
        The device, and the size.
    start
        Where it begins in the file that stands for the device's memory.
    is_held
        Whether its handle was not released yet.
    mappings
        At how many addresses it is mapped.
    """

    ordinal: int
    nbytes: int
    start: int
    is_held: bool = True
    mappings: int = 0


class VirtualMemory:
    """What is reserved, what is made, and what is mapped.

    Parameters
    ----------
    profile
        The devices.
    memories
        Their memory.
    allocations
        All live blocks: each mapping is one.
    handles
        Where handles of physical memory come from.
    """

    def __init__(
        self, profile: Profile, memories: Sequence[PhysicalMemory], allocations: Allocations, handles: Handles
    ) -> None:
        self._profile = profile
        self._memories = memories
        self._allocations = allocations
        self._handles = handles
        self._reservations: dict[int, Reservation] = {}
        self._starts: list[int] = []
        self._physical: dict[int, Physical] = {}
        self._files: dict[int, host.MemoryFile] = {}
        self._finalizer = finalize(self, _give_back, self._reservations, self._files)
        self._finalizer.atexit = False

    def contains(self, ptr: int) -> bool:
        """Return whether an address is reserved, with something behind it or not."""
        return self._reservation_around(ptr) is not None

    def check_supported(self, ordinal: int | None = None) -> None:
        """Refuse a device that has no virtual memory management, or all of them where none has it."""
        devices = self._profile.devices if ordinal is None else (self._profile.devices[ordinal],)
        if not any(device.virtual_memory for device in devices):
            raise Refused(NOT_SUPPORTED, "there is no virtual memory management")

    # Addresses

    def reserve(self, nbytes: int) -> int:
        """Return the address of ``nbytes`` with nothing behind them."""
        _check_multiples(nbytes)
        ptr = host.reserve(nbytes, GRANULARITY)
        self._reservations[ptr] = Reservation(ptr, nbytes)
        insort(self._starts, ptr)
        return ptr

    def free(self, ptr: int, nbytes: int) -> None:
        """Give a whole reservation back, behind which nothing is mapped."""
        reservation = self._reservations.get(ptr)
        if reservation is None or reservation.nbytes != nbytes:
            raise Refused(INVALID_VALUE, f"no reservation of {nbytes:,} bytes begins at {ptr:#x}")
        if self._allocations.starting_in(ptr, ptr + nbytes):
            raise Refused(INVALID_VALUE, f"memory is mapped in the reservation at {ptr:#x}")
        del self._reservations[ptr]
        self._starts.remove(ptr)
        host.release(ptr, nbytes)

    # Physical memory

    def create(self, ordinal: int, nbytes: int) -> int:
        """Return a handle of new physical memory of a device."""
        _check_multiples(nbytes)
        self._memories[ordinal].charge(nbytes)
        try:
            start = self._file(ordinal).take(nbytes)
        except Refused:
            self._memories[ordinal].refund(nbytes)
            raise
        handle = self._handles.take()
        self._physical[handle] = Physical(ordinal, nbytes, start)
        return handle

    def release(self, handle: int) -> None:
        """Release a handle; the memory lives until it is mapped nowhere."""
        physical = self._of(handle)
        del self._physical[handle]
        self._handles.give_back(handle)
        physical.is_held = False
        self._drop_unused(physical)

    # Mappings

    def map(self, ptr: int, nbytes: int, handle: int) -> None:
        """Put the beginning of physical memory behind addresses, without access for any device yet."""
        if nbytes % GRANULARITY:
            raise Refused(NOT_SUPPORTED, f"{nbytes:,} bytes are no multiple of {GRANULARITY:,}")  # as an H200 answers
        _check_multiples(ptr, nbytes)
        physical, reservation = self._of(handle), self._reservation_around(ptr)
        if reservation is None or ptr + nbytes > reservation.end:
            raise Refused(INVALID_VALUE, f"{nbytes:,} bytes from {ptr:#x} are not in one reservation")
        if nbytes > physical.nbytes:
            raise Refused(INVALID_VALUE, f"the physical memory has {physical.nbytes:,} bytes, not {nbytes:,}")
        if self._allocations.around(ptr) is not None or self._allocations.starting_in(ptr, ptr + nbytes):
            raise Refused(INVALID_VALUE, f"memory is mapped in the {nbytes:,} bytes from {ptr:#x}")
        self._file(physical.ordinal).map_at(ptr, physical.start, nbytes)
        physical.mappings += 1
        block = Allocation(ptr, nbytes, MemoryKind.CUDA_DEVICE, physical.ordinal, physical)
        block.readers, block.reservation = frozenset(), reservation
        self._allocations.add(block)

    def unmap(self, ptr: int, nbytes: int) -> None:
        """Take what is mapped in a range away: whole mappings, without a gap."""
        mappings = self.mappings_in(ptr, nbytes)
        host.unmap(ptr, nbytes)
        for mapping in mappings:
            self._allocations.remove(mapping)
            physical = mapping.source
            assert isinstance(physical, Physical)
            physical.mappings -= 1
            self._drop_unused(physical)

    def mappings_in(self, ptr: int, nbytes: int) -> list[Allocation]:
        """Return the mappings that make up a range of one reservation, without a gap."""
        mappings = self.mappings_between(ptr, nbytes)
        ends = [ptr, *(mapping.end for mapping in mappings)]
        starts = [*(mapping.ptr for mapping in mappings), ptr + nbytes]
        if starts != ends:
            raise Refused(INVALID_VALUE, f"{nbytes:,} bytes from {ptr:#x} are not whole mappings without a gap")
        return mappings

    def mappings_between(self, ptr: int, nbytes: int) -> list[Allocation]:
        """Return the mappings from the one that starts a range of one reservation to the one that ends it."""
        _check_multiples(ptr, nbytes)
        reservation = self._reservation_around(ptr)
        mappings = self._allocations.starting_in(ptr, ptr + nbytes)
        is_whole = bool(mappings) and mappings[0].ptr == ptr and mappings[-1].end == ptr + nbytes
        if reservation is None or ptr + nbytes > reservation.end or not is_whole:
            raise Refused(INVALID_VALUE, f"{nbytes:,} bytes from {ptr:#x} do not begin and end as mappings do")
        return mappings

    def close(self) -> None:
        """Give all host memory back."""
        self._finalizer()
        self._starts.clear()

    # How it is done

    def _file(self, ordinal: int) -> host.MemoryFile:
        if ordinal not in self._files:
            self._files[ordinal] = host.MemoryFile(f"allotment-sim-{ordinal}")
        return self._files[ordinal]

    def _of(self, handle: int) -> Physical:
        physical = self._physical.get(handle)
        if physical is None:
            raise Refused(INVALID_VALUE, f"there is no physical memory {handle:#x}")
        return physical

    def _drop_unused(self, physical: Physical) -> None:
        if not physical.is_held and not physical.mappings:
            self._file(physical.ordinal).give_back(physical.start, physical.nbytes)
            self._memories[physical.ordinal].refund(physical.nbytes)

    def _reservation_around(self, ptr: int) -> Reservation | None:
        index = bisect_right(self._starts, ptr)
        found = self._reservations[self._starts[index - 1]] if index else None
        return found if found is not None and ptr < found.end else None


def _check_multiples(*numbers: int) -> None:
    for number in numbers:
        if number <= 0 or number % GRANULARITY:
            raise Refused(INVALID_VALUE, f"{number:,} is not a multiple of the granularity, {GRANULARITY:,}")
        if number > MAX_BYTES:
            raise Refused(OUT_OF_MEMORY, f"{number:,} bytes are more than there are addresses")


def _give_back(reservations: dict[int, Reservation], files: dict[int, host.MemoryFile]) -> None:
    for reservation in reservations.values():
        host.release(reservation.ptr, reservation.nbytes)
    for file in files.values():
        file.close()
    reservations.clear()
    files.clear()
