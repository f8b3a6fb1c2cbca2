"""Stream-ordered memory pools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from allotment.memory_kind import MemoryKind
from allotment.platform._values import HOST_LOCATION, PoolAttribute
from allotment.platform.simulated._address_space import AddressSpace
from allotment.platform.simulated._device_memory import ALIGNMENT, round_up
from allotment.platform.simulated._errors import INVALID_VALUE, OUT_OF_MEMORY, Refused
from allotment.platform.simulated._free_ranges import Condition, FreeRanges

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment.platform.simulated._device_memory import PhysicalMemory
    from allotment.platform.simulated._pointer import Allocation
    from allotment.platform.simulated._stream import Stream, Streams

BLOCK: Final = 32 * 2**20
"""What a pool's memory is mapped in (recorded: pool/accounting)."""
_MAX_THRESHOLD: Final = 2**64 - 1
_REUSE: Final = (
    PoolAttribute.REUSE_FOLLOW_EVENT_DEPENDENCIES,
    PoolAttribute.REUSE_ALLOW_OPPORTUNISTIC,
    PoolAttribute.REUSE_ALLOW_INTERNAL_DEPENDENCIES,
)


class Pool:
    """A pool of one device.

    Parameters
    ----------
    handle
        What calls name it by.
    ordinal
        Its device.
    memory
        What it draws on.
    streams
        Where a wait is queued when memory can only be had behind another stream's work.
    kind
        What its blocks are.
    max_bytes
        What it may map at most; 0 for no limit.
    """

    def __init__(
        self,
        handle: int,
        ordinal: int,
        memory: PhysicalMemory,
        streams: Streams,
        kind: MemoryKind = MemoryKind.CUDA_MEMPOOL,
        max_bytes: int = 0,
    ) -> None:
        self.handle = handle
        self.ordinal = ordinal
        self.kind = kind
        self.readers = _first_readers(kind, ordinal)
        self.destroyed = self.closed = False
        self.space = AddressSpace(BLOCK)
        self._memory = memory
        self._max_bytes = max_bytes
        self._streams = streams
        self._free = FreeRanges()
        self._blocks: set[int] = set()
        self._used = self._used_high = self._reserved_high = 0
        self._threshold = 0
        self._reuse = dict.fromkeys(_REUSE, 1)
        memory.pools.append(self)

    @property
    def reserved(self) -> int:
        """The bytes mapped."""
        return len(self._blocks) * BLOCK

    # Allocation

    def allocate(self, nbytes: int, stream: Stream) -> int:
        """Return the address of a new block of ``nbytes`` > 0, usable by later work of ``stream``."""
        size = round_up(nbytes, ALIGNMENT)
        start = self._free.take(size, lambda condition: self._may_reuse(condition, stream))
        if start is None:
            start = self._take_more(size, stream)
        self._used += nbytes
        self._used_high = max(self._used_high, self._used)
        return start

    def free(self, allocation: Allocation, stream: Stream | None) -> None:
        """Take a block back in the order of ``stream``, or at once."""
        condition = None if stream is None else Condition(stream, self._streams.submit(stream, None))
        self._free.add(allocation.ptr, round_up(allocation.nbytes, ALIGNMENT), condition)
        self._used -= allocation.nbytes
        if self.destroyed and not self._used:
            self._close_when_idle()

    def settle(self, settled: Callable[[Condition], bool]) -> None:
        """Note a synchronise: memory whose free it waited for is free for all, and idle memory goes back."""
        self._free.settle(settled)
        self._shrink(self._threshold, _anyone)

    # Attributes

    def attribute(self, attribute: PoolAttribute) -> int:
        """Return an attribute."""
        match attribute:
            case PoolAttribute.RELEASE_THRESHOLD:
                return self._threshold
            case PoolAttribute.RESERVED_CURRENT:
                return self.reserved
            case PoolAttribute.RESERVED_HIGH:
                return self._reserved_high
            case PoolAttribute.USED_CURRENT:
                return self._used
            case PoolAttribute.USED_HIGH:
                return self._used_high
            case _:
                return self._reuse[attribute]

    def set_attribute(self, attribute: PoolAttribute, value: int) -> None:
        """Set an attribute; a high mark can only be reset, by zero, to the present value."""
        match attribute:
            case PoolAttribute.RELEASE_THRESHOLD if 0 <= value <= _MAX_THRESHOLD:
                self._threshold = value
            case PoolAttribute.RESERVED_HIGH if value == 0:
                self._reserved_high = self.reserved
            case PoolAttribute.USED_HIGH if value == 0:
                self._used_high = self._used
            case _ if attribute in _REUSE:
                self._reuse[attribute] = int(bool(value))
            case _:
                raise Refused(INVALID_VALUE, f"{attribute.name} cannot be set to {value}")

    # Giving back

    def trim(self, keep_bytes: int) -> None:
        """Give idle blocks back while at least ``keep_bytes`` stay mapped."""
        self._shrink(keep_bytes, _is_over)

    def idle_bytes(self) -> int:
        """Return how much `reclaim` could give back."""
        return len(self._idle_blocks(_is_over)) * BLOCK

    def reclaim(self, nbytes: int) -> None:
        """Give at least ``nbytes`` back, or all idle blocks."""
        self._shrink(max(0, self.reserved - round_up(nbytes, BLOCK)), _is_over)

    def destroy(self) -> None:
        """Close the pool once no block is live."""
        self.destroyed = True
        if not self._used:
            self._close_when_idle()

    def close(self) -> None:
        """Give everything back. Called once."""
        self.closed = True
        self._memory.refund(self.reserved)
        self._memory.pools.remove(self)
        self._blocks.clear()
        self.space.close()

    # How it is done

    def _close_when_idle(self) -> None:
        """Close, behind the work that may still touch memory that was freed in its order."""
        if pending := [condition for condition in self._free.conditions() if not _is_over(condition)]:
            self._streams.submit(pending[-1].stream, self.close, *pending)
        else:
            self.close()

    def _may_reuse(self, condition: Condition | None, stream: Stream) -> bool:
        if condition is None:
            return True
        owner, ticket = condition
        if owner is stream:
            return True
        if self._reuse[PoolAttribute.REUSE_ALLOW_OPPORTUNISTIC] and owner.completed >= ticket:
            return True
        return bool(self._reuse[PoolAttribute.REUSE_FOLLOW_EVENT_DEPENDENCIES]) and stream.comes_after(owner, ticket)

    def _take_more(self, size: int, stream: Stream) -> int:
        try:
            start = self._extend(size, stream)
            return self._map(size) if start is None else start
        except Refused:
            start = self._take_behind_others(size, stream)
            if start is None:
                raise
            return start

    def _extend(self, size: int, stream: Stream) -> int | None:
        """Map the blocks that the last usable range lacks to hold ``size`` bytes, if it ends where a block does."""
        tails = list(self._free.runs(lambda condition: self._may_reuse(condition, stream)))
        tail_start, tail_end = tails[-1] if tails else (0, 0)
        missing = round_up(size - (tail_end - tail_start), BLOCK)
        if tail_end % BLOCK or not 0 < missing < round_up(size, BLOCK) or not self._map_at(tail_end, missing):
            return None
        return self._free.take(size, lambda condition: self._may_reuse(condition, stream))

    def _charge(self, nbytes: int) -> None:
        if self._max_bytes and self.reserved + nbytes > self._max_bytes:
            raise Refused(OUT_OF_MEMORY, f"the pool may map {self._max_bytes:,} bytes at most")
        self._memory.charge(nbytes)

    def _map(self, size: int) -> int:
        nbytes = round_up(size, BLOCK)
        self._charge(nbytes)
        try:
            start = self.space.reserve(nbytes, lowest=True)
        except Refused:
            self._memory.refund(nbytes)
            raise
        self._add_blocks(start, nbytes)
        self._free.remove(start, start + size)
        return start

    def _map_at(self, start: int, nbytes: int) -> bool:
        self._charge(nbytes)
        if not self.space.reserve_at(start, nbytes):
            self._memory.refund(nbytes)
            return False
        self._add_blocks(start, nbytes)
        return True

    def _add_blocks(self, start: int, nbytes: int) -> None:
        self._blocks.update(range(start, start + nbytes, BLOCK))
        self._reserved_high = max(self._reserved_high, self.reserved)
        self._free.add(start, nbytes)

    def _take_behind_others(self, size: int, stream: Stream) -> int | None:
        """Take memory that other streams still work on, and make ``stream`` wait for them."""
        if not self._reuse[PoolAttribute.REUSE_ALLOW_INTERNAL_DEPENDENCIES]:
            return None
        owners = {condition.stream for condition in self._free.conditions()}
        start = self._free.take(size, lambda _: True)
        if start is not None:
            for owner in owners - {stream}:
                self._streams.wait(stream, owner)
        return start

    def _idle_blocks(self, usable: Callable[[Condition | None], bool]) -> list[int]:
        blocks: list[int] = []
        for start, end in self._free.runs(usable):
            blocks.extend(range(round_up(start, BLOCK), end - BLOCK + 1, BLOCK))
        return blocks

    def _shrink(self, keep_bytes: int, usable: Callable[[Condition | None], bool]) -> None:
        spare = (self.reserved - keep_bytes) // BLOCK
        if spare <= 0:
            return
        for start in reversed(self._idle_blocks(usable)[-spare:]):
            self._free.remove(start, start + BLOCK)
            self._blocks.remove(start)
            self.space.release(start, BLOCK)
            self._memory.refund(BLOCK)


def _first_readers(kind: MemoryKind, ordinal: int) -> set[int]:
    """Return who may touch a new pool; of managed memory, which all may touch, nobody is said to."""
    if kind is MemoryKind.CUDA_MEMPOOL:
        return {ordinal}
    return {HOST_LOCATION} if kind is MemoryKind.PINNED else set()


def _anyone(condition: Condition | None) -> bool:
    return condition is None


def _is_over(condition: Condition | None) -> bool:
    return condition is None or condition.stream.completed >= condition.ticket
