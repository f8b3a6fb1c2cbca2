"""A growth: a block that needs memory behind addresses of its heap, and the memory on its way there."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from allotment_caching.engine.block import Block, State, round_up
from allotment_caching.engine.heap import Leaving
from allotment_caching.engine.supply import PAST

if TYPE_CHECKING:
    from allotment_caching.engine.heap import Chunk, Heap


def choose_run(heap: Heap, nbytes: int, granule: int) -> list[Block] | None:
    """Return neighbours, free or holes, that hold ``nbytes`` together and need the least memory behind them.

    The lowest of equal ones; ``None`` if the heap has no such run.
    """
    best: tuple[int, int] | None = None
    chosen: list[Block] | None = None
    for hole in heap.holes():
        before = hole.before
        first = before if before is not None and before.state is State.FREE else hole
        run, missing = _run_from(first, nbytes, granule)
        if run and (best is None or (missing, first.start) < best):
            best, chosen = (missing, first.start), run
    return chosen


def _run_from(first: Block, nbytes: int, granule: int) -> tuple[list[Block], int]:
    """Return the neighbours from a block on that hold ``nbytes``, and the bytes missing behind them."""
    run: list[Block] = []
    found = missing = 0
    block: Block | None = first
    while found < nbytes:
        if block is None or block.state not in (State.FREE, State.HOLE):
            return [], 0
        if block.state is State.HOLE:
            missing += min(block.nbytes, round_up(nbytes - found, granule))
        run.append(block)
        found += block.nbytes
        block = block.after
    return run, missing


class Fresh(NamedTuple):
    """Memory that was made: the index of the hole that it is for, its size and handle."""

    hole: int
    nbytes: int
    handle: int


class Piece(NamedTuple):
    """Memory and where it goes."""

    hole: int
    start: int
    nbytes: int
    handle: int
    is_new: bool


class Growth:
    """Takes its addresses and the memory that moves there out of the heaps, until it is committed or undone.

    Parameters
    ----------
    heap
        Where the block will be.
    nbytes
        Its size.
    run
        The neighbours that it will be made of.
    granule
        What memory is mapped in.
    """

    def __init__(self, heap: Heap, nbytes: int, run: list[Block], granule: int) -> None:
        self.heap, self.nbytes = heap, nbytes
        self.holes: list[Block] = []
        self.moved: list[tuple[int, Chunk]] = []
        """Chunks that move, by the index of the hole that they go to."""
        self.left: list[Leaving] = []
        """The addresses that they leave."""
        self._handles: dict[int, int] = {}
        self._parts: list[tuple[Block, State]] = []
        for block in run:
            self._take(block, round_up(nbytes, granule))
            nbytes -= block.nbytes
        self._room = [hole.nbytes for hole in self.holes]

    def _take(self, block: Block, at_most: int) -> None:
        state = block.state
        self.heap.carve(block, block.start, block.nbytes if state is State.FREE else min(block.nbytes, at_most))
        self._parts.append((block, state))
        if state is State.HOLE:
            self.holes.append(block)
        block.state = State.USED

    @property
    def missing(self) -> int:
        """The bytes that no moved memory covers."""
        return sum(self._room)

    def move_from(self, heap: Heap, past: int) -> None:
        """Take idle chunks of a heap whose frees are past, largest first, as long as they fit."""
        if not self.missing:
            return
        chosen: dict[int, Chunk] = {}
        for chunk in sorted(heap.idle_chunks(past), key=lambda chunk: -chunk.nbytes):
            hole = next((index for index, room in enumerate(self._room) if room >= chunk.nbytes), None)
            if hole is not None:
                self._room[hole] -= chunk.nbytes
                self.moved.append((hole, chunk))
                chosen[chunk.start] = chunk
        for start, (block, handle) in heap.take_chunks(set(chosen)).items():
            self._handles[start] = handle
            self.left.append(Leaving(PAST, block))

    def fresh_sizes(self, most: int) -> list[tuple[int, int]]:
        """Return which memory is to be made: the index of its hole, and its size, at most ``most``."""
        sizes = []
        for hole, room in enumerate(self._room):
            whole, rest = divmod(room, most)
            sizes += [(hole, most)] * whole + ([(hole, rest)] if rest else [])
        return sizes

    def pieces(self, fresh: list[Fresh]) -> list[Piece]:
        """Return where each piece of memory goes, in an order in which each hole fills from its start."""
        ends = [hole.start for hole in self.holes]
        pieces = []
        moved = [(hole, chunk.nbytes, self._handles[chunk.start], False) for hole, chunk in self.moved]
        for hole, nbytes, handle, is_new in moved + [(*piece, True) for piece in fresh]:
            pieces.append(Piece(hole, ends[hole], nbytes, handle, is_new))
            ends[hole] += nbytes
        return pieces

    def commit(self, pieces: list[Piece]) -> Block:
        """Join the parts, now that memory is behind them, and return the block; what is left of them is free."""
        for piece in pieces:
            self.heap.add_chunk(piece.start, piece.nbytes, piece.handle)
        block = self._parts[0][0]
        for part, _ in self._parts[1:]:
            self.heap.absorb(block, part)
        block.serial = self.heap.frees  # work queued so far may still use what moved here
        self.heap.cut(block, self.nbytes, State.FREE)
        return block

    def undo(self, fresh: list[Fresh], mapped: list[Piece]) -> None:
        """Put back what was taken. What was made or mapped already is left to be unmapped and given back."""
        for (_, chunk), leaving in zip(self._by_start(), self.left, strict=True):
            assert leaving.block is not None
            chunk.heap.add_chunk(chunk.start, chunk.nbytes, self._handles[chunk.start])
            chunk.heap.put_back(leaving.block, State.FREE)
        filled = [sum(piece.nbytes for piece in mapped if piece.hole == hole) for hole in range(len(self.holes))]
        for hole, nbytes in zip(self.holes, filled, strict=True):
            if nbytes:
                self.heap.cut(hole, nbytes, State.HOLE)
                self.heap.leave(hole)
                self.heap.leaving.append(Leaving(PAST, hole))
        self.heap.leaving += [Leaving(PAST, None, nbytes, handle) for _, nbytes, handle in fresh]
        for part, state in self._parts:
            if part.state is State.USED:
                self.heap.put(part, state)

    def _by_start(self) -> list[tuple[int, Chunk]]:
        """Return the chunks in the order of `left`."""
        by_start = {chunk.start: (hole, chunk) for hole, chunk in self.moved}
        return [by_start[leaving.block.start] for leaving in self.left if leaving.block is not None]
