"""Memory that belongs to graphs: its addresses are fixed when it is captured, it lives from a launch to its free."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from allotment.memory_kind import MemoryKind
from allotment.platform._values import GraphMemory
from allotment.platform.simulated._address_space import AddressSpace
from allotment.platform.simulated._device_memory import ALIGNMENT, round_up
from allotment.platform.simulated._errors import INVALID_VALUE, OUT_OF_MEMORY, Refused
from allotment.platform.simulated._pointer import Allocation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from allotment.platform.simulated._device_memory import PhysicalMemory
    from allotment.platform.simulated._pointer import Allocations
    from allotment.platform.simulated._stream import Stream, Streams

BLOCK: Final = 32 * 2**20
"""What memory of graphs is mapped in (recorded: graph/accounting)."""


class GraphHeap:
    """The memory of one device that graphs hold. What a graph gave up stays mapped for the next one until a trim.

    Parameters
    ----------
    ordinal
        The device.
    memory
        What it draws on.
    allocations
        All live blocks.
    streams
        Where frees are ordered.
    """

    def __init__(self, ordinal: int, memory: PhysicalMemory, allocations: Allocations, streams: Streams) -> None:
        self.ordinal = ordinal
        self.allocations = allocations
        self.streams = streams
        self.space = AddressSpace(BLOCK)
        self._memory = memory
        self._bound: Counter[int] = Counter()
        self._idle = 0
        self._high = 0

    def accounts(self) -> GraphMemory:
        """Return what is held; CUDA counts what is mapped as used too (recorded: graph/with-free)."""
        reserved = self._reserved
        return GraphMemory(reserved, self._high, reserved, self._high)

    def reset_high(self) -> None:
        """Lower the high marks to what is held now."""
        self._high = self._reserved

    def trim(self) -> None:
        """Give back what no live block is mapped to."""
        self._memory.refund(self._idle * BLOCK)
        self._idle = 0

    def reserve(self, nbytes: int) -> int:
        """Return the address of ``nbytes``, a whole number of `BLOCK`, with nothing behind them yet."""
        if nbytes > self._memory.total:
            raise Refused(OUT_OF_MEMORY, f"{nbytes:,} bytes are more than {self._memory.name} has")
        return self.space.reserve(nbytes, lowest=True)

    def bind(self, start: int, end: int) -> None:
        """Map memory behind a range."""
        missing = [block for block in _blocks(start, end) if not self._bound[block]]
        reused = min(self._idle, len(missing))
        self._memory.charge((len(missing) - reused) * BLOCK)
        self._idle -= reused
        self._bound.update(_blocks(start, end))
        self._high = max(self._high, self._reserved)

    def unbind(self, start: int, end: int) -> None:
        """Let the memory behind a range be mapped elsewhere."""
        for block in _blocks(start, end):
            self._bound[block] -= 1
            if not self._bound[block]:
                del self._bound[block]
                self._idle += 1

    @property
    def _reserved(self) -> int:
        return (len(self._bound) + self._idle) * BLOCK


@dataclass(slots=True, eq=False)
class OwnedBlock:
    """A block that a graph allocates; the source that its memory goes back to.

    Parameters
    ----------
    memory
        All that the graph owns.
    heap
        What maps it.
    ptr, nbytes
        The block as it is while it lives.
    readers
        The devices that may touch it.
    """

    memory: OwnedMemory
    heap: GraphHeap
    ptr: int
    nbytes: int
    readers: frozenset[int]
    allocation: Allocation = field(init=False)
    is_passing: bool = False
    """Whether the graph frees it too."""

    def __post_init__(self) -> None:
        self.allocation = Allocation(
            self.ptr, self.nbytes, MemoryKind.CUDA_DEVICE, self.heap.ordinal, self, readers=self.readers
        )

    @property
    def is_live(self) -> bool:
        """Whether the latest launch allocated it and nothing freed it since."""
        return self.heap.allocations.at(self.ptr) is self.allocation

    def appear(self) -> None:
        """Let its address be known."""
        if self.heap.allocations.at(self.ptr) is None:
            self.heap.allocations.add(self.allocation)

    def pass_in(self) -> None:
        """Let its address be known while the graph runs, if it is freed there."""
        if self.is_passing:
            self.appear()

    def pass_out(self) -> None:
        """Let its address be unknown again."""
        if self.is_live:
            self.heap.allocations.remove(self.allocation)

    def bind(self) -> None:
        """Map memory behind it, for one launch."""
        self.heap.bind(self.ptr, self.ptr + self.nbytes)
        self.memory.hold()

    def unbind(self) -> None:
        """Undo `bind`."""
        self.heap.unbind(self.ptr, self.ptr + self.nbytes)
        self.memory.drop()

    def free(self, allocation: Allocation, stream: Stream | None) -> None:
        """Take the block back once ``stream`` gets there, or at once."""
        assert allocation is self.allocation
        if stream is None:
            self.unbind()
        else:
            self.heap.streams.submit(stream, self.unbind)


@dataclass(slots=True, eq=False)
class OwnedMemory:
    """All that one graph owns. Its addresses stay reserved while the graph, an executable or a block lives."""

    blocks: list[OwnedBlock] = field(default_factory=list)
    released_elsewhere: list[OwnedBlock] = field(default_factory=list)
    _regions: list[tuple[GraphHeap, int, int]] = field(default_factory=list)
    _spare: dict[GraphHeap, list[tuple[int, int]]] = field(default_factory=dict)
    _reusable: list[tuple[OwnedBlock, int]] = field(default_factory=list)
    _holders: int = 1

    def __bool__(self) -> bool:
        return bool(self.blocks or self.released_elsewhere)

    def allocate(self, heap: GraphHeap, nbytes: int, readers: Iterable[int], before: set[int]) -> OwnedBlock:
        """Return a new block: an address freed by one of the nodes ``before``, or a new one.

        Who may touch it is settled here, by the grants of its pool (recorded: graph/access).
        """
        size = round_up(nbytes, ALIGNMENT)
        ptr = self._reuse(heap, size, before) or self._take(heap, size)
        block = OwnedBlock(self, heap, ptr, nbytes, frozenset(readers))
        self.blocks.append(block)
        return block

    def free(self, block: OwnedBlock, node: int) -> None:
        """Note that a node frees a block."""
        block.is_passing = True
        self._reusable.append((block, node))

    def around(self, ptr: int) -> OwnedBlock | None:
        """Return the latest block, freed or not, that an address lies in."""
        for block in reversed(self.blocks):
            if block.ptr <= ptr < block.ptr + block.nbytes:
                return block
        return None

    def hold(self) -> None:
        """Keep the addresses reserved until one more `drop`."""
        self._holders += 1

    def drop(self) -> None:
        """Release the addresses if nothing holds them any more."""
        self._holders -= 1
        if self._holders == 0:
            for heap, start, nbytes in self._regions:
                heap.space.release(start, nbytes)
            self._regions.clear()

    def _reuse(self, heap: GraphHeap, size: int, before: set[int]) -> int | None:
        for index, (block, node) in enumerate(self._reusable):
            fits = block.heap is heap and round_up(block.nbytes, ALIGNMENT) == size
            if fits and node in before:
                del self._reusable[index]
                return block.ptr
        return None

    def _take(self, heap: GraphHeap, size: int) -> int:
        spare = self._spare.setdefault(heap, [])
        for index, (start, end) in enumerate(spare):
            if end - start >= size:
                spare[index] = (start + size, end)
                return start
        nbytes = round_up(size, BLOCK)
        start = heap.reserve(nbytes)
        self._regions.append((heap, start, nbytes))
        spare.append((start + size, start + nbytes))
        return start


def check_live(blocks: Iterable[OwnedBlock]) -> None:
    """Refuse to free blocks of other graphs that are not live."""
    for block in blocks:
        if not block.is_live:
            raise Refused(INVALID_VALUE, f"the graph frees {block.ptr:#x}, where nothing is live")


def _blocks(start: int, end: int) -> range:
    return range(start // BLOCK * BLOCK, end, BLOCK)
