"""Which addresses are live, and what they belong to."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from allotment.memory_kind import MemoryKind

if TYPE_CHECKING:
    from allotment.platform.simulated._pool import Pool
    from allotment.platform.simulated._stream import Stream

NOWHERE = -2
"""What CUDA answers for a place that was never named, cudaInvalidDeviceId."""


class Source(Protocol):
    """What a block came from and goes back to."""

    def free(self, allocation: Allocation, stream: Stream | None) -> None:
        """Take a block back in the order of ``stream``, or at once."""
        ...


class Foreign:
    """The source of memory that others own: there is nothing to give back."""

    def free(self, allocation: Allocation, stream: Stream | None) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """Addresses that memory can be mapped behind."""

    ptr: int
    nbytes: int

    @property
    def end(self) -> int:
        """The first address past it."""
        return self.ptr + self.nbytes


@dataclass(slots=True)
class ManagedState:
    """What was advised about a managed block, with CUDA's values: -1 is the host, -2 nowhere."""

    read_mostly: bool = False
    preferred_location: int = NOWHERE
    accessed_by: set[int] = field(default_factory=set)
    last_prefetch: int = NOWHERE


@dataclass(slots=True, eq=False)
class Allocation:
    """A live block.

    Parameters
    ----------
    ptr, nbytes
        Its address, and its size as it was asked for.
    kind
        Its kind of memory.
    device
        The ordinal that it belongs to.
    source
        Where it goes back to.
    pool
        The pool it came from.
    managed
        What was advised about it, if it is managed memory.
    readers
        The devices that may touch it, where that was settled when it was allocated, or is said of a mapping.
    reservation
        The addresses that it is mapped in, if it is a mapping.
    """

    ptr: int
    nbytes: int
    kind: MemoryKind
    device: int
    source: Source
    pool: Pool | None = None
    managed: ManagedState | None = None
    readers: frozenset[int] | None = None
    reservation: Reservation | None = None

    @property
    def granted(self) -> frozenset[int] | set[int] | None:
        """The devices that may touch it, where that is a matter of grants to a pool or a mapping."""
        return self.readers if self.pool is None else self.pool.readers

    @property
    def end(self) -> int:
        """The first address past it."""
        return self.ptr + self.nbytes

    @property
    def on_device(self) -> bool:
        """Whether it lies in a device's own memory."""
        return self.kind in (MemoryKind.CUDA_DEVICE, MemoryKind.CUDA_MEMPOOL)


class Allocations:
    """All live blocks, by address."""

    def __init__(self) -> None:
        self._blocks: dict[int, Allocation] = {}
        self._starts: list[int] = []

    def __len__(self) -> int:
        return len(self._blocks)

    def add(self, allocation: Allocation) -> None:
        """Note a new block."""
        assert allocation.ptr not in self._blocks
        self._blocks[allocation.ptr] = allocation
        insort(self._starts, allocation.ptr)

    def at(self, ptr: int) -> Allocation | None:
        """Return the block that starts at an address."""
        return self._blocks.get(ptr)

    def around(self, ptr: int) -> Allocation | None:
        """Return the block that an address lies in."""
        block = self._blocks.get(ptr)
        if block is None and (index := bisect_right(self._starts, ptr)):
            block = self._blocks[self._starts[index - 1]]
        return block if block is not None and block.ptr <= ptr < block.end else None

    def spanning(self, ptr: int, nbytes: int) -> Allocation | None:
        """Return the block that a range lies in, which for mapped memory may be several neighbours taken together.

        Where the range runs past it, the block is the one that it begins in, with its neighbours up to the first gap.
        """
        block = self.around(ptr)
        if block is None or block.reservation is None or ptr + nbytes <= block.end:
            return block
        joined, readers = block, block.readers or frozenset()
        while joined.end < ptr + nbytes:
            after = self._blocks.get(joined.end)
            if after is None or after.reservation is not block.reservation:
                break
            readers &= after.readers or frozenset()
            joined = after
        return replace(block, nbytes=joined.end - block.ptr, readers=readers)

    def starting_in(self, start: int, end: int) -> list[Allocation]:
        """Return the blocks that begin in a range, by address."""
        found = self._starts[bisect_left(self._starts, start) : bisect_left(self._starts, end)]
        return [self._blocks[ptr] for ptr in found]

    def of_kinds(self, kinds: tuple[MemoryKind, ...]) -> list[Allocation]:
        """Return the blocks of some kinds, by address."""
        return [block for block in map(self._blocks.__getitem__, self._starts) if block.kind in kinds]

    def remove(self, allocation: Allocation) -> None:
        """Forget a block that was freed."""
        del self._blocks[allocation.ptr]
        del self._starts[bisect_left(self._starts, allocation.ptr)]
