"""The addresses of one stream: which blocks are free, and where memory is behind them."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from allotment_caching.engine.block import Block, State
from allotment_caching.engine.supply import PAST

if TYPE_CHECKING:
    from collections.abc import Iterator


ORDERS = 65
"""How many bit lengths a size can have."""


@dataclass(slots=True)
class Leaving:
    """Memory that leaves addresses, once the work before a mark is done.

    Parameters
    ----------
    mark
        The mark on the heap's stream.
    block
        The addresses; ``None`` if it is mapped nowhere.
    nbytes, handle
        The memory, to be given back then; a handle of 0 if it serves elsewhere.
    """

    mark: int
    block: Block | None
    nbytes: int = 0
    handle: int = 0


class Chunk(NamedTuple):
    """Memory that is mapped as a whole: its size, whose it is, and where it starts."""

    nbytes: int
    heap: Heap
    start: int


@dataclass(slots=True, eq=False)
class Region:
    """A range of addresses of a heap: its first block, and its size."""

    first: Block
    nbytes: int

    @property
    def start(self) -> int:
        """The first address."""
        return self.first.start


class Heap:
    """The blocks that belong to the order of one stream.

    A block that was freed is reused by the same stream at once, because the stream's own order keeps later work behind
    earlier work. Freed blocks are kept as they are for requests of just their size; when none fits, all of them are
    joined with their free neighbours, and the lowest free block that is large enough is split.

    Parameters
    ----------
    stream
        The handle of the stream.
    pool
        The private pool that the heap belongs to; 0 for none.
    """

    def __init__(self, stream: int, pool: int = 0) -> None:
        self.stream, self.pool = stream, pool
        self.regions: list[Region] = []
        self.chunks: dict[int, tuple[int, int]] = {}
        """What is mapped: size and handle by start."""
        self.leaving: list[Leaving] = []
        self.used = 0
        """How many blocks are handed out or pending."""
        self.stale = 0
        """How many blocks of addresses wait until what is still behind them leaves."""
        self.frees = 0
        self.quiet = 0
        """Frees up to this count are past: the work before them is done."""
        self.mark, self.marked = PAST, 0
        """A mark on the stream, and the count of frees when it was set."""
        self._recent: dict[int, list[Block]] = {}
        self._free: list[list[tuple[int, Block]]] = [[] for _ in range(ORDERS)]
        """Free blocks by address, those with sizes of one bit length together."""
        self._holes: dict[int, Block] = {}
        self._starts: list[int] = []

    # Taking and giving

    def take_recent(self, nbytes: int) -> Block | None:
        """Return the latest freed block of just this size."""
        blocks = self._recent.get(nbytes)
        return blocks.pop() if blocks else None

    def take_fitting(self, nbytes: int) -> Block | None:
        """Return ``nbytes`` of the free block at the lowest address that is large enough.

        Blocks of one binary order of magnitude stand together by address: those of the request's own are looked
        through, of larger ones the first will do.
        """
        order = nbytes.bit_length()
        fitting = next(((start, block) for start, block in self._free[order] if block.nbytes >= nbytes), None)
        firsts = [blocks[0] for blocks in self._free[order + 1 :] if blocks]
        found = min(([fitting] if fitting else []) + firsts, default=None, key=itemgetter(0))
        if found is None:
            return None
        block = found[1]
        self._remove(block)
        block.state = State.USED
        self.cut(block, nbytes, State.FREE)
        return block

    def keep_recent(self, block: Block) -> None:
        """Keep a block that was freed for the next request of its size."""
        self.frees += 1
        block.state, block.serial = State.RECENT, self.frees
        self._recent.setdefault(block.nbytes, []).append(block)

    def join_recent(self) -> None:
        """Join all blocks that were freed lately with their free neighbours."""
        if not self._recent:
            return
        for blocks in self._recent.values():
            for block in blocks:
                self.put(block, State.FREE)
        self._recent.clear()

    # Blocks

    def put(self, block: Block, state: State) -> Block:
        """Make a block free or a hole, joined with neighbours of the same state; return what it became."""
        block.state = state
        if block.before is not None and block.before.state is state:
            self._remove(block.before)
            block = self.absorb(block.before, block)
        if block.after is not None and block.after.state is state:
            self._remove(block.after)
            self.absorb(block, block.after)
        self._add(block)
        return block

    def cut(self, block: Block, nbytes: int, state: State) -> None:
        """Cut a block that is in no index to ``nbytes``; what is left of it gets a state."""
        if block.nbytes > nbytes:
            self.put(self._split(block, nbytes), state)

    def carve(self, block: Block, start: int, nbytes: int) -> Block:
        """Return the part of a free block or hole from ``start``, out of the index; what is around it stays."""
        self._remove(block)
        state = block.state
        if start > block.start:
            part = self._split(block, start - block.start)
            self._add(block)
            block = part
        block.state = State.USED
        self.cut(block, nbytes, state)
        return block

    def absorb(self, block: Block, after: Block) -> Block:
        """Join a block with the one after it; neither is in an index."""
        block.nbytes += after.nbytes
        block.serial = max(block.serial, after.serial)
        block.after = after.after
        if block.after is not None:
            block.after.before = block
        return block

    def leave(self, block: Block) -> None:
        """Let a block that is in no index wait until what is behind it has left."""
        block.state = State.STALE
        self.stale += 1

    def put_back(self, block: Block, state: State) -> None:
        """Make a block that waited a hole, or free as it was."""
        self.stale -= 1
        self.put(block, state)

    def add_region(self, start: int, nbytes: int) -> Block:
        """Add a range of addresses; return its block, which is in no index."""
        block = Block(start, nbytes, State.USED, self)
        self.regions.append(Region(block, nbytes))
        return block

    def take_idle_region(self) -> Region | None:
        """Take out a range of addresses that is one free block whose frees are past."""
        for region in self.regions:
            first = region.first
            is_whole = first.state is State.FREE and first.nbytes == region.nbytes
            if is_whole and first.serial <= self.quiet:
                self._remove(first)
                first.state = State.USED
                self.regions.remove(region)
                return region
        return None

    def put_back_region(self, region: Region) -> None:
        """Undo `take_idle_region`."""
        self.regions.append(region)
        self.put(region.first, State.FREE)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is handed out, pending, mapped or waiting."""
        has_memory = self.chunks or self.leaving or self._recent or any(self._free)
        return not (self.used or self.stale or has_memory)

    def holes(self) -> list[Block]:
        """Return the holes in the order of addresses."""
        return [self._holes[start] for start in sorted(self._holes)]

    @property
    def largest_free(self) -> int:
        """The bytes of the largest free block; those freed lately must have been joined."""
        return max((block.nbytes for block in self._free_blocks()), default=0)

    # What is mapped

    def add_chunk(self, start: int, nbytes: int, handle: int) -> None:
        """Note memory that is mapped."""
        self.chunks[start] = nbytes, handle
        insort(self._starts, start)

    def idle_chunks(self, past: int) -> list[Chunk]:
        """Return what is mapped inside free blocks whose frees, up to a count, are past."""
        return [
            Chunk(self.chunks[start][0], self, start)
            for block in self._free_blocks()
            if block.serial <= past
            for start in self._chunks_inside(block)
        ]

    def take_chunks(self, starts: set[int]) -> dict[int, tuple[Block, int]]:
        """Take chunks out of free blocks; return the addresses they leave and their handles, by start."""
        taken = {}
        for block in list(self._free_blocks()):
            rest = block
            for start in [start for start in self._chunks_inside(block) if start in starts]:
                nbytes, handle = self.chunks.pop(start)
                del self._starts[bisect_left(self._starts, start)]
                part = self.carve(rest, start, nbytes)
                self.leave(part)
                taken[start] = part, handle
                if part.after is not None:
                    rest = part.after
        return taken

    def _chunks_inside(self, block: Block) -> Iterator[int]:
        for index in range(bisect_left(self._starts, block.start), len(self._starts)):
            start = self._starts[index]
            if start + self.chunks[start][0] > block.end:
                return
            yield start

    # How it is done

    def _free_blocks(self) -> Iterator[Block]:
        return (block for blocks in self._free for _, block in blocks)

    def _add(self, block: Block) -> None:
        if block.state is State.FREE:
            insort(self._free[block.nbytes.bit_length()], (block.start, block))
        else:
            self._holes[block.start] = block

    def _remove(self, block: Block) -> None:
        if block.state is State.FREE:
            blocks = self._free[block.nbytes.bit_length()]
            del blocks[bisect_left(blocks, (block.start,))]
        else:
            del self._holes[block.start]

    def _split(self, block: Block, nbytes: int) -> Block:
        """Cut a block in two, and return the second part; neither is in an index then."""
        rest = Block(
            block.start + nbytes, block.nbytes - nbytes, block.state, self, block, block.after, serial=block.serial
        )
        if block.after is not None:
            block.after.before = rest
        block.after, block.nbytes = rest, nbytes
        return rest
