"""The policy "elastic": heaps that split and join blocks, over memory that moves to where it is needed.

Each stream has a heap: a range of addresses much larger than the device's memory, most of it with nothing behind it.
What a request cannot be served from is mapped. Idle memory moves there before new memory is made, so free space that
lies scattered over a heap serves large requests too, and what is held stays near what is used.

There are two locks: `lock`, held while blocks change hands, and the turn, taken before it by whoever changes what
memory is behind. Calls to the supply are made with the turn alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from allotment_caching.engine.block import ALIGNMENT, Block, State, round_up
from allotment_caching.engine.growth import Fresh, Growth, Piece, choose_run
from allotment_caching.engine.heap import Chunk, Heap, Leaving, Region
from allotment_caching.engine.policy import Figures, HeldLock, LimitError, TurnLock
from allotment_caching.engine.supply import PAST, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from allotment_caching.engine.supply import Supply

MIB: Final = 2**20
LARGEST_CHUNK: Final = 32 * MIB
"""Memory is made in chunks of at most this much: making and mapping one costs about 60 us up to here, and 1 ms at
2 GiB (docs/explanation/caching.md)."""
CHUNKS_HELD: Final = 128
"""A chunk is at most this part of what is held, so that what is too large to move stays below 1 %."""
SEGMENTS: Final = ((MIB, 2 * MIB), (10 * MIB, 20 * MIB))
"""Where memory cannot be mapped: up to which request a segment has which size; larger ones get what they asked for."""
SEGMENT_GRANULE: Final = 2 * MIB
LENT_PER_MADE: Final = 2
"""How much memory may move between streams, as a multiple of what was made. On a recorded pipeline of three streams 0
holds 1.32 x what is live at most, 2 holds 1.14 x, and no bound 1.05 x with 750 mappings in each later pass."""
REGIONS_PER_DEVICE: Final = 4
"""A heap's range of addresses, as a multiple of the device's memory."""
RELEASED: Final = -1
"""The pool of heaps whose private pool was released."""


class Effort(IntEnum):
    """What is done for a request."""

    AT_ONCE = 0
    """Move what is idle and past, make what is missing."""
    WAIT = 1
    """Wait for all work first, so that all that is idle is past."""
    GIVE_BACK = 2
    """Give everything idle back first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticSettings:
    """What can be set.

    Parameters
    ----------
    total
        The bytes of memory that the device has.
    limit
        The most bytes to hold.
    cache_limit
        The most bytes to hold that are idle. It is looked at now and then.
    idle_seconds
        How often to give back the memory that was not needed meanwhile; never if ``None``.
    """

    total: int
    limit: int
    cache_limit: int
    idle_seconds: float | None = None


@dataclass(slots=True)
class Pending:
    """A block that was freed, and the marks after which nobody uses it."""

    block: Block
    marks: list[int]


class ElasticPolicy:
    """Heaps that split and join blocks, over memory that moves to where it is needed.

    Parameters
    ----------
    supply
        Where memory comes from.
    settings
        What can be set.
    """

    def __init__(self, supply: Supply, settings: ElasticSettings) -> None:
        self.lock, self._turn = HeldLock(), TurnLock()
        self._supply, self._settings = supply, settings
        self.limit, self.cache_limit = settings.limit, settings.cache_limit
        self._heaps: dict[tuple[int, int], Heap] = {}
        self._pending: list[Pending] = []
        self._unwanted: list[int] = []
        """Marks to be dropped."""
        self._unused: list[Region] = []
        """Addresses to be given back."""
        self._reserved = self._peak = self._allocated = 0
        self._made = self._lent = 0
        """Memory that was made, and that moved from one stream's heap to another's, in all."""
        self._least_idle = 0
        """The least memory that was idle at any time since the last look."""
        self._next_look = supply.now() + (settings.idle_seconds or 0)

    # Blocks that are at hand

    def take_cached(self, size: int, stream: int, pool: int) -> Block | None:
        """Return the block of this size that the stream freed last."""
        heap = self._heaps.get((stream, pool))
        block = heap.take_recent(-(-size // ALIGNMENT) * ALIGNMENT) if heap is not None else None
        return None if block is None else self._hand_out(block)

    is_due = False
    """Whether a free left something to do, which `look_around` does."""

    def give(self, block: Block) -> None:
        """Take a block back for the next request of its size."""
        self._allocated -= block.nbytes
        self._recycle(block)

    def _hand_out(self, block: Block) -> Block:
        block.state = State.USED
        block.heap.used += 1
        self._allocated += block.nbytes
        self._least_idle = min(self._least_idle, self._reserved - self._allocated)
        return block

    def _recycle(self, block: Block) -> None:
        block.heap.used -= 1
        block.heap.keep_recent(block)

    # Blocks that other streams use

    def give_after(self, block: Block, users: tuple[int, ...]) -> None:
        """Take a block back once its users are done."""
        marks: list[int] = []
        try:
            marks += (self._supply.mark(stream) for stream in users)
        except BaseException:
            self._forget_marks(marks)
            raise
        with self.lock:
            self._allocated -= block.nbytes
            block.state = State.PENDING
            block.users = tuple(stream for stream, mark in zip(users, marks, strict=True) if mark == UNKNOWN)
            self._pending.append(Pending(block, marks))

    def _settle(self) -> None:
        """Take back the pending blocks that nobody uses any more."""
        self._drop_marks()
        with self.lock:
            pending, self._pending = self._pending, []
        looked_at: list[Pending] = []
        try:
            for one in pending:
                self._look_at(one)
                looked_at.append(one)
        finally:
            with self.lock:
                self._pending[:0] = [one for one in looked_at if one.marks] + pending[len(looked_at) :]
                for one in looked_at:
                    if not one.marks:
                        self._recycle(one.block)

    def _look_at(self, pending: Pending) -> None:
        """Leave those marks of a pending block that are not past; those that could not be set are set now."""
        marks, block = pending.marks, pending.block
        if block.users:
            marks[:] = [mark for mark in marks if mark != UNKNOWN]
            marks += (self._supply.mark(stream) for stream in block.users)
            block.users = block.users if UNKNOWN in marks else ()
        while marks and self._is_past(marks[-1]):
            marks.pop()

    def _is_past(self, mark: int) -> bool:
        """Return whether a mark is past, and forget it then."""
        if mark == PAST:
            return True
        if mark == UNKNOWN or not self._supply.is_past(mark):
            return False
        self._forget_marks([mark])
        return True

    def _forget_marks(self, marks: Iterable[int]) -> None:
        """Let marks be dropped at the next turn."""
        with self.lock:
            self._unwanted += (mark for mark in marks if mark not in (PAST, UNKNOWN))

    def _drop_marks(self) -> None:
        while self._unwanted:
            with self.lock:
                mark = self._unwanted.pop()
            try:
                self._supply.drop(mark)
            except BaseException:
                self._forget_marks([mark])
                raise

    # Blocks that are not at hand

    def take(self, size: int, stream: int, pool: int) -> Block:
        """Return a block of free space, or of memory that is moved or made for it."""
        nbytes = round_up(size, ALIGNMENT)
        with self._turn:
            self._settle()
            self._let_leave()
            with self.lock:
                heap = self._heap(stream, pool)
                heap.join_recent()
                block = heap.take_fitting(nbytes)
                if block is not None:
                    return self._hand_out(block)
            return self._take_grown(heap, nbytes)

    def _heap(self, stream: int, pool: int) -> Heap:
        key = stream, pool
        if key not in self._heaps:
            self._heaps[key] = Heap(stream, pool)
        return self._heaps[key]

    def _take_grown(self, heap: Heap, nbytes: int) -> Block:
        for effort in Effort:
            self._prepare(effort, heap)
            try:
                return self._grow(heap, nbytes, effort)
            except Exception as error:
                if effort is Effort.GIVE_BACK or not self._is_lack(error):
                    raise
        raise AssertionError("the last effort returns or raises")

    def _is_lack(self, error: Exception) -> bool:
        return isinstance(error, LimitError) or self._supply.is_out_of_memory(error)

    def _prepare(self, effort: Effort, heap: Heap) -> None:
        if effort is Effort.WAIT:
            self._wait()
        elif effort is Effort.GIVE_BACK:
            self._give_back(0)
            self._drop_empty_heaps(heap)  # of streams that are gone: even addresses can be used up

    def _grow(self, heap: Heap, nbytes: int, effort: Effort) -> Block:
        """Return a block of ``nbytes``, with memory moved or made for it."""
        with self.lock:
            heap.join_recent()
            block = heap.take_fitting(nbytes)  # what waiting or other threads have freed
            if block is not None:
                return self._hand_out(block)
        if not self._supply.granule:
            return self._take_segment(heap, nbytes)
        return self._back(self._plan(heap, nbytes, effort))

    # Memory that moves

    def _plan(self, heap: Heap, nbytes: int, effort: Effort) -> Growth:
        """Choose where a block will be, and which memory goes there."""
        granule = self._supply.granule
        others = [other for other in self._heaps.values() if other is not heap and other.pool <= 0]
        self._look_for_quiet(others)
        with self.lock:
            run = choose_run(heap, nbytes, granule)
        if run is None:
            self._add_region(heap, nbytes)
        with self.lock:
            run = choose_run(heap, nbytes, granule)
            assert run is not None
            growth = Growth(heap, nbytes, run, granule)
            if heap.pool == 0:  # a graph may use the addresses of a private one for ever
                growth.move_from(heap, heap.frees)
                if self._may_lend(growth.missing, effort):
                    self._lend(growth, others)
        return growth

    def _may_lend(self, nbytes: int, effort: Effort) -> bool:
        """Return whether memory may move from one stream's heap to another's.

        Streams that take memory from each other in turn would move it for ever. What was made pays for what moves, so
        that in the end each has what it needs.
        """
        return effort is not Effort.AT_ONCE or self._lent + nbytes <= LENT_PER_MADE * self._made

    def _lend(self, growth: Growth, others: list[Heap]) -> None:
        missing = growth.missing
        for other in others:
            other.join_recent()
            growth.move_from(other, other.quiet)
        self._lent += missing - growth.missing

    def _look_for_quiet(self, heaps: Iterable[Heap]) -> None:
        """Find out which frees of heaps are past."""
        for heap in heaps:
            if heap.quiet == heap.frees:
                continue
            if heap.mark == PAST:
                heap.marked = heap.frees
                heap.mark = self._supply.mark(heap.stream)
            if heap.mark == UNKNOWN:
                heap.mark = PAST
            elif self._is_past(heap.mark):
                heap.mark, heap.quiet = PAST, heap.marked

    def _back(self, growth: Growth) -> Block:
        """Put memory behind the addresses of a growth, and return its block."""
        fresh: list[Fresh] = []
        mapped: list[Piece] = []
        try:
            self._require(growth.missing)
            for index, nbytes in growth.fresh_sizes(self._chunk_size()):
                fresh.append(Fresh(index, nbytes, self._create(nbytes)))
            pieces = growth.pieces(fresh)
            for piece in pieces:
                self._supply.map(piece.start, piece.nbytes, piece.handle)
                mapped.append(piece)
            for hole in growth.holes:
                self._supply.grant(hole.start, hole.nbytes)
            if growth.left:
                growth.left[0].mark = self._supply.mark(growth.heap.stream)  # the others leave after it
        except BaseException:
            with self.lock:
                growth.undo(fresh, mapped)
            raise
        with self.lock:
            growth.heap.leaving += growth.left
            return self._hand_out(growth.commit(pieces))

    def _create(self, nbytes: int) -> int:
        handle = self._supply.create(nbytes)
        self._made += nbytes
        self._hold(nbytes)
        return handle

    def _chunk_size(self) -> int:
        granule = self._supply.granule
        share = self._reserved // CHUNKS_HELD // granule
        return max(granule, min(LARGEST_CHUNK, granule << max(0, share.bit_length() - 1)))

    def _require(self, missing: int) -> None:
        if self._reserved + missing > self.limit:
            raise LimitError.of(missing, self._reserved, self.limit)

    def _hold(self, nbytes: int) -> None:
        self._reserved += nbytes
        self._peak = max(self._peak, self._reserved)

    # Memory that leaves its addresses

    def _let_leave(self) -> None:
        """Unmap and give back what is to leave, where no work can use it any more."""
        for heap in list(self._heaps.values()):
            while heap.leaving and self._may_leave(heap, heap.leaving[0]):
                self._let_go(heap.leaving[0])
                heap.leaving.pop(0)

    def _may_leave(self, heap: Heap, leaving: Leaving) -> bool:
        if leaving.mark == UNKNOWN:
            leaving.mark = self._supply.mark(heap.stream)
        if not self._is_past(leaving.mark):
            return False
        leaving.mark = PAST
        return True

    def _let_go(self, leaving: Leaving) -> None:
        block = leaving.block
        if block is not None:
            self._supply.unmap(block.start, block.nbytes)
            with self.lock:
                block.heap.put_back(block, State.HOLE)
            leaving.block = None
        if leaving.handle:
            self._supply.release(leaving.handle)
            self._hold(-leaving.nbytes)
            leaving.handle = 0

    # Giving back

    def trim(self, keep: int) -> None:
        """Wait for all work, and give idle memory back until at most ``keep`` bytes are held."""
        with self._turn:
            self._wait()
            self._give_back(keep)
            self._drop_empty_heaps()
            self._drop_marks()

    def look_around(self) -> None:
        """Give back what is idle above its limit, and, if it is time, what was not needed since the last look."""
        now, idle_seconds = self._supply.now(), self._settings.idle_seconds
        is_time = idle_seconds is not None and now >= self._next_look
        excess = self._reserved - self._allocated - self.cache_limit
        if self._turn.is_taken or not (is_time or excess > 0):
            return
        with self._turn:
            self._settle()
            self._look_for_quiet(self._heaps.values())
            self._give_back(self._reserved - max(self._least_idle if is_time else 0, excess))
            if is_time:
                self._next_look = now + (idle_seconds or 0)
                self._drop_empty_heaps()
                self._least_idle = self._reserved - self._allocated

    def _wait(self) -> None:
        """Wait for the work of all streams, where waiting is allowed, so that all that is idle is past."""
        frees = {heap: heap.frees for heap in self._heaps.values()}
        users = {stream for pending in self._pending for stream in pending.block.users}
        done = {stream for stream in users | {heap.stream for heap in frees} if self._supply.synchronize(stream)}
        for heap, count in frees.items():
            if heap.stream in done:
                heap.quiet = count
        self._settle()

    def _give_back(self, keep: int) -> None:
        """Give back memory that is idle and past until at most ``keep`` bytes are held."""
        with self.lock:
            heaps = [heap for heap in self._heaps.values() if heap.pool <= 0]
            for heap in heaps:
                heap.join_recent()
            if self._supply.granule:
                self._choose_leaving(heaps, self._reserved - keep)
        self._let_leave()
        if not self._supply.granule:
            self._free_segments(heaps, keep)

    def _choose_leaving(self, heaps: list[Heap], excess: int) -> None:
        chunks = [chunk for heap in heaps for chunk in heap.idle_chunks(heap.quiet)]
        for heap, chosen in _take_until(excess, sorted(chunks, key=lambda chunk: -chunk.nbytes)).items():
            for block, handle in heap.take_chunks(chosen).values():
                heap.leaving.append(Leaving(PAST, block, block.nbytes, handle))

    def _free_segments(self, heaps: list[Heap], keep: int) -> None:
        for heap in heaps:
            while self._reserved > keep:
                with self.lock:
                    region = heap.take_idle_region()
                if region is None:
                    break
                try:
                    self._supply.free(region.start)
                except BaseException:
                    with self.lock:
                        heap.put_back_region(region)
                    raise
                self._hold(-region.nbytes)

    def _drop_empty_heaps(self, needed: Heap | None = None) -> None:
        """Forget heaps that hold nothing, but for one that is needed, and give their addresses back."""
        with self.lock:
            empty = {key: heap for key, heap in self._heaps.items() if heap.is_empty and heap is not needed}
            for key in empty:
                del self._heaps[key]
            if self._supply.granule:
                self._unused += (region for heap in empty.values() for region in heap.regions)
            streams = {stream for stream, _ in empty} - {stream for stream, _ in self._heaps}
        self._forget_marks(heap.mark for heap in empty.values())
        for stream in sorted(streams):
            self._supply.forget(stream)
        while self._unused:
            self._supply.unreserve(self._unused[-1].start, self._unused[-1].nbytes)
            self._unused.pop()

    # Addresses, and memory that cannot move

    def _add_region(self, heap: Heap, nbytes: int) -> None:
        """Give a heap more addresses."""
        size = round_up(max(nbytes, self._settings.total * REGIONS_PER_DEVICE), self._supply.granule)
        start = self._supply.reserve(size)
        with self.lock:
            heap.put(heap.add_region(start, size), State.HOLE)

    def _take_segment(self, heap: Heap, nbytes: int) -> Block:
        size = next((size for most, size in SEGMENTS if nbytes <= most), round_up(nbytes, SEGMENT_GRANULE))
        self._require(size)
        start = self._supply.malloc(size)
        self._hold(size)
        with self.lock:
            block = heap.add_region(start, size)
            heap.cut(block, nbytes, State.FREE)
            return self._hand_out(block)

    # Pools, other devices, figures

    def share(self, ordinal: int, *, enable: bool) -> None:
        """Let another device touch all memory, present and future, or not."""
        with self._turn:
            mapped = [(start, nbytes) for heap in self._heaps.values() for start, (nbytes, _) in heap.chunks.items()]
            self._supply.share(ordinal, mapped, enable=enable)

    def release_pool(self, pool: int) -> None:
        """Let the idle memory of a private pool serve others."""
        with self.lock:
            for heap in self._heaps.values():
                if heap.pool == pool:
                    heap.pool = RELEASED

    def figures(self) -> Figures:
        """Return how the heaps stand."""
        with self.lock:
            for heap in self._heaps.values():
                heap.join_recent()
            largest = max((heap.largest_free for heap in self._heaps.values()), default=0)
            return Figures(self._reserved, self._peak, self._allocated, largest)

    def reset_peak(self) -> None:
        """Set the high-water mark to what is held now."""
        with self.lock:
            self._peak = self._reserved


def _take_until(excess: int, chunks: Iterable[Chunk]) -> dict[Heap, set[int]]:
    """Return the starts of the first chunks that come to at least ``excess`` bytes, by heap."""
    chosen: dict[Heap, set[int]] = {}
    for chunk in chunks:
        if excess <= 0:
            break
        chosen.setdefault(chunk.heap, set()).add(chunk.start)
        excess -= chunk.nbytes
    return chosen
