"""A supply of addresses with nothing behind them, which counts, checks every call, and fails on demand.

It refuses with `MisuseError` what the driver answers with an error or, worse, with silence: memory given back twice,
ranges mapped over others, memory taken away or shared while work still touches it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

from allotment_caching.engine.supply import PAST, UNKNOWN

MIB = 2**20
GIB = 2**30


class MisuseError(AssertionError):
    """A call that no correct engine makes."""


class SupplyError(RuntimeError):
    """A failure that was asked for."""


class SupplyMemoryError(SupplyError):
    """A lack of memory: one that was asked for, or because the device is full."""


@dataclass
class Stream:
    """Work is numbered in the order in which it was queued; what is queued while the stream is held is not done."""

    is_held: bool = False
    queued: int = 0
    done: int = 0


@dataclass(frozen=True)
class Work:
    """Work in flight, and the memory that it touches."""

    stream: int
    number: int
    start: int
    nbytes: int
    memory: tuple[tuple[int, int, int], ...]


@dataclass
class Mapping:
    start: int
    nbytes: int
    handle: int
    is_granted: bool = False

    @property
    def end(self) -> int:
        return self.start + self.nbytes


@dataclass
class Memory:
    """Physical memory of `create`; it is gone once it is released and mapped nowhere."""

    nbytes: int
    is_released: bool = False
    mappings: int = 0


@dataclass
class Segment:
    """Memory of `malloc`, `malloc_managed` or `malloc_async`."""

    start: int
    nbytes: int
    kind: str
    freed_on: int | None = None
    freed_at: int = field(default=0, kw_only=True)


class CountingSupply:
    """All of a device's calls, over addresses that are never used twice.

    Parameters
    ----------
    total
        The bytes of memory of the device; managed memory does not count.
    granule
        The bytes that memory is mapped in; 0 for a device that cannot map.
    base
        The first address: give two supplies different ones.
    tells_idle
        Whether `mark` answers `PAST` for a stream with no work in flight, instead of a mark that is past at once.
    """

    def __init__(
        self, total: int = 64 * GIB, granule: int = 2 * MIB, base: int = 2**44, *, tells_idle: bool = False
    ) -> None:
        self.total, self.granule, self.tells_idle = total, granule, tells_idle
        self.may_ask = True
        """Whether marks and waiting are allowed; not so in a capture."""
        self.address_space: int | None = None
        """The bytes of addresses that can be reserved at once."""
        self.clock = 0.0
        """What `now` answers: a test moves it."""
        self.pool_used_elsewhere = 0
        """What others have reserved of the default pool."""
        self.counts: Counter[str] = Counter()
        self.calls: list[tuple[str, tuple[int, ...]]] = []
        self.failures = 0
        """How many calls failed because it was asked for."""
        self.reservations: dict[int, int] = {}
        self.mappings: dict[int, Mapping] = {}
        self.memories: dict[int, Memory] = {}
        self.segments: dict[int, Segment] = {}
        self.streams: dict[int, Stream] = {}
        self.marks: dict[int, tuple[int, int]] = {}
        self.works: list[Work] = []
        self.readers: set[int] = set()
        self.pool_readers: set[int] = set()
        """The other devices that may touch what is mapped, and what the default pool gives."""
        self.forgotten: list[int] = []
        """The streams that nothing is cached for any more, in the order in which that was said."""
        self.peak = 0
        """The most of the device's memory that was in use."""
        self._sums: Counter[str] = Counter()
        self._freed: list[Segment] = []
        self._starts: list[int] = []
        self._forbidden: list[Any] = []
        self._fail_in: int | None = None
        self._fail_name: str | None = None
        self._fail_error: type[SupplyError] = SupplyError
        self._next_address, self._next_handle, self._next_mark = base, 1, 1
        self._lock = RLock()

    # What a test asks for

    def fail_after(self, calls: int, name: str | None = None, *, lack: bool = False) -> None:
        """Let one call fail, without effect, after that many calls (of that name) that do not."""
        self._fail_in, self._fail_name = calls, name
        self._fail_error = SupplyMemoryError if lack else SupplyError

    def fail_no_more(self) -> None:
        """Forget a failure that was asked for and has not come."""
        self._fail_in = None

    def forbid_under(self, lock: Any) -> None:
        """Refuse calls of a thread that holds this lock."""
        self._forbidden.append(lock)

    def hold(self, stream: int) -> None:
        """Let work that is queued from now on stay in flight."""
        self._stream(stream).is_held = True

    def finish(self, stream: int) -> None:
        """Let a stream's work be done, and hold it no more."""
        self._stream(stream).is_held = False
        self._complete(stream)

    def work(self, stream: int, start: int, nbytes: int) -> None:
        """Queue work that touches addresses.

        Raises
        ------
        MisuseError
            If they cannot be touched, or another stream's work in flight touches the same memory.
        """
        with self._lock:
            memory = self.memory_behind(start, nbytes)
            for other in self.works:
                if other.stream != stream and _share(memory, other.memory):
                    raise MisuseError(f"streams {stream} and {other.stream} work on the same memory: {start:#x}")
            number = self._queue(stream)
            if self._stream(stream).is_held:
                self.works.append(Work(stream, number, start, nbytes, tuple(memory)))

    def memory_behind(self, start: int, nbytes: int) -> list[tuple[int, int, int]]:
        """Return the memory behind addresses that can be touched: pieces of (memory, first byte, end).

        Raises
        ------
        MisuseError
            If a part of them has no memory behind it, or was not granted.
        """
        with self._lock:
            segment = self._segment_around(start, nbytes)
            if segment is not None:
                self._refuse_if(segment.freed_on is not None, f"{start:#x} was freed")
                return [(-segment.start, start - segment.start, start - segment.start + nbytes)]
            pieces = []
            for mapping in self._mappings_over(start, nbytes):
                if not mapping.is_granted:
                    raise MisuseError(f"{mapping.start:#x} was not granted")
                first, end = max(start, mapping.start), min(start + nbytes, mapping.end)
                pieces.append((mapping.handle, first - mapping.start, end - mapping.start))
            if sum(end - first for _, first, end in pieces) != nbytes:
                raise MisuseError(f"{nbytes:,} bytes at {start:#x} are not all mapped")
            return pieces

    @property
    def in_use(self) -> int:
        """The bytes of the device's memory that are in use; those freed in the order of a stream count until then."""
        return self.pool_in_use + self._sums["malloc"] + self.created

    @property
    def created(self) -> int:
        """The bytes of physical memory that is not gone."""
        return self._sums["create"]

    @property
    def pool_in_use(self) -> int:
        """The bytes of `malloc_async`."""
        return self._sums["malloc_async"]

    @property
    def managed(self) -> int:
        """The bytes of managed memory."""
        return self._sums["malloc_managed"]

    @property
    def live(self) -> int:
        """The bytes of all kinds that were not given back, whatever work is in flight."""
        return self.in_use + self.managed - sum(segment.nbytes for segment in self._freed)

    # Virtual memory

    def reserve(self, nbytes: int, /) -> int:
        with self._lock:
            self._call("reserve", nbytes)
            self._require_whole(nbytes)
            if self.address_space is not None and sum(self.reservations.values()) + nbytes > self.address_space:
                raise SupplyMemoryError("the addresses are used up")
            start = self._addresses(nbytes)
            self.reservations[start] = nbytes
            return start

    def unreserve(self, start: int, nbytes: int, /) -> None:
        with self._lock:
            self._call("unreserve", start, nbytes)
            self._refuse_if(self.reservations.get(start) != nbytes, f"{start:#x} was not reserved so")
            self._refuse_if(bool(self._mappings_over(start, nbytes)), f"{start:#x} has memory behind it")
            del self.reservations[start]

    def create(self, nbytes: int, /) -> int:
        with self._lock:
            self._call("create", nbytes)
            self._require_whole(nbytes)
            self._require_room(nbytes)
            handle = self._next_handle
            self._next_handle += 1
            self.memories[handle] = Memory(nbytes)
            self._sums["create"] += nbytes
            self._note_peak()
            return handle

    def release(self, handle: int, /) -> None:
        with self._lock:
            self._call("release", handle)
            memory = self._memory(handle)
            memory.is_released = True
            self._forget_memory(handle)

    def map(self, start: int, nbytes: int, handle: int, /) -> None:
        with self._lock:
            self._call("map", start, nbytes, handle)
            memory = self._memory(handle)
            self._refuse_if(memory.nbytes != nbytes, f"memory of {memory.nbytes:,} bytes is mapped to {nbytes:,}")
            self._refuse_if(bool(self._mappings_over(start, nbytes)), f"{start:#x} is mapped already")
            self._refuse_if(self._reservation(start, nbytes) is None, f"{start:#x} was not reserved")
            self._require_whole(start)
            self.mappings[start] = Mapping(start, nbytes, handle)
            insort(self._starts, start)
            memory.mappings += 1

    def unmap(self, start: int, nbytes: int, /) -> None:
        with self._lock:
            self._call("unmap", start, nbytes)
            mappings = self._whole_mappings(start, nbytes)
            for work in self.works:
                touches = work.start < start + nbytes and start < work.start + work.nbytes
                self._refuse_if(touches, f"{start:#x} is unmapped under the work of stream {work.stream}")
            for mapping in mappings:
                del self.mappings[mapping.start]
                self._starts.remove(mapping.start)
                self.memories[mapping.handle].mappings -= 1
                self._forget_memory(mapping.handle)

    def grant(self, start: int, nbytes: int, /) -> None:
        with self._lock:
            self._call("grant", start, nbytes)
            for mapping in self._whole_mappings(start, nbytes):
                mapping.is_granted = True

    def share(self, ordinal: int, ranges: list[tuple[int, int]], /, *, enable: bool) -> None:
        with self._lock:
            self._call("share", ordinal, int(enable))
            for start, nbytes in ranges:
                self._whole_mappings(start, nbytes)
            self._set_reader(self.readers, ordinal, enable)

    # Segments

    def malloc(self, nbytes: int, /) -> int:
        with self._lock:
            self._call("malloc", nbytes)
            self._require_room(nbytes)
            return self._add_segment(nbytes, "malloc")

    def malloc_managed(self, nbytes: int, /) -> int:
        with self._lock:
            self._call("malloc_managed", nbytes)
            return self._add_segment(nbytes, "malloc_managed")

    def malloc_async(self, nbytes: int, stream: int, /) -> int:
        with self._lock:
            self._call("malloc_async", nbytes, stream)
            self._require_room(nbytes)
            return self._add_segment(nbytes, "malloc_async")

    def free(self, ptr: int, /) -> None:
        with self._lock:
            self._call("free", ptr)
            segment = self._segment(ptr)
            self._refuse_if(segment.kind == "malloc_async", f"{ptr:#x} belongs to a stream's order")
            for stream in self.streams:  # as the driver, it waits for the device's work
                self._complete(stream)
            self._forget_segment(segment)

    def free_async(self, ptr: int, stream: int, /) -> None:
        with self._lock:
            self._call("free_async", ptr, stream)
            segment = self._segment(ptr)
            self._refuse_if(segment.kind != "malloc_async", f"{ptr:#x} does not belong to a stream's order")
            for work in self.works:
                touches = work.start < ptr + segment.nbytes and ptr < work.start + work.nbytes
                self._refuse_if(
                    touches and work.stream != stream, f"{ptr:#x} is freed under the work of stream {work.stream}"
                )
            segment.freed_on, segment.freed_at = stream, self._queue(stream)
            self._freed.append(segment)
            if not self._stream(stream).is_held:
                self._complete(stream)

    def pool_reserved(self) -> int:
        with self._lock:
            self._call("pool_reserved")
            return self.pool_in_use + self.pool_used_elsewhere

    def may_free(self, stream: int, /) -> bool:
        return self.may_ask

    def share_pool(self, ordinal: int, /, *, enable: bool) -> None:
        with self._lock:
            self._call("share_pool", ordinal, int(enable))
            self._set_reader(self.pool_readers, ordinal, enable)

    # Work in flight

    def mark(self, stream: int, /) -> int:
        with self._lock:
            self._call("mark", stream)
            if not self.may_ask:
                return UNKNOWN
            if self.tells_idle and not self._stream(stream).is_held:
                return PAST
            number = self._queue(stream)
            mark = self._next_mark
            self._next_mark += 1
            self.marks[mark] = stream, number
            return mark

    def is_past(self, mark: int, /) -> bool:
        with self._lock:
            self._call("is_past", mark)
            self._refuse_if(mark not in self.marks, f"mark {mark} is not known")
            stream, number = self.marks[mark]
            return self.may_ask and self._stream(stream).done >= number

    def drop(self, mark: int, /) -> None:
        with self._lock:
            self._call("drop", mark)
            self._refuse_if(mark not in self.marks, f"mark {mark} is not known")
            del self.marks[mark]

    def synchronize(self, stream: int, /) -> bool:
        with self._lock:
            self._call("synchronize", stream)
            if self.may_ask:
                self._complete(stream)
            return self.may_ask

    def forget(self, stream: int, /) -> None:
        with self._lock:
            self.counts["forget"] += 1
            self.forgotten.append(stream)

    def watch(self, stream: int, /) -> None:
        self.counts["watch"] += 1

    def now(self) -> float:
        return self.clock

    ordinal = 0

    def driver_functions(self) -> list[int]:
        return []

    def is_out_of_memory(self, error: BaseException, /) -> bool:
        return isinstance(error, SupplyMemoryError)

    # How it is done

    def _call(self, name: str, *values: int) -> None:
        self._refuse_if(any(lock.is_mine() for lock in self._forbidden), f"{name} is called under the lock")
        if self._fail_in is not None and self._fail_name in (None, name):
            self._fail_in -= 1
            if self._fail_in < 0:
                self._fail_in = None
                self.failures += 1
                raise self._fail_error(f"{name}{values} was asked to fail")
        self.counts[name] += 1
        self.calls.append((name, values))

    def _set_reader(self, readers: set[int], ordinal: int, enable: bool) -> None:
        if enable:
            readers.add(ordinal)
        else:
            readers.discard(ordinal)

    def _refuse_if(self, is_wrong: bool, text: str) -> None:
        if is_wrong:
            raise MisuseError(text)

    def _require_whole(self, value: int) -> None:
        self._refuse_if(not self.granule or value % self.granule != 0, f"{value:#x} is not a multiple of the granule")

    def _require_room(self, nbytes: int) -> None:
        self._refuse_if(nbytes <= 0, "nothing is asked for")
        if self.in_use + nbytes > self.total:
            raise SupplyMemoryError(f"{nbytes:,} bytes do not fit beside {self.in_use:,} of {self.total:,}")

    def _note_peak(self) -> None:
        self.peak = max(self.peak, self.in_use)

    def _addresses(self, nbytes: int) -> int:
        step = self.granule or 512
        start = self._next_address
        self._next_address += -(-nbytes // step) * step + step  # a gap, so that neighbours show
        return start

    def _add_segment(self, nbytes: int, kind: str) -> int:
        start = self._addresses(nbytes)
        self.segments[start] = Segment(start, nbytes, kind)
        self._sums[kind] += nbytes
        self._note_peak()
        return start

    def _segment(self, ptr: int) -> Segment:
        segment = self.segments.get(ptr)
        if segment is None or segment.freed_on is not None:
            raise MisuseError(f"{ptr:#x} is freed, and is not live")
        return segment

    def _segment_around(self, start: int, nbytes: int) -> Segment | None:
        whole = self.segments.get(start)
        candidates = [whole] if whole is not None else list(self.segments.values())
        for segment in candidates:
            if segment.start <= start and start + nbytes <= segment.start + segment.nbytes:
                return segment
        return None

    def _forget_segment(self, segment: Segment) -> None:
        del self.segments[segment.start]
        self._sums[segment.kind] -= segment.nbytes

    def _memory(self, handle: int) -> Memory:
        memory = self.memories.get(handle)
        if memory is None or memory.is_released:
            raise MisuseError(f"handle {handle} was released, or never made")
        return memory

    def _forget_memory(self, handle: int) -> None:
        memory = self.memories[handle]
        if memory.is_released and not memory.mappings:
            self._sums["create"] -= memory.nbytes
            del self.memories[handle]

    def _mappings_over(self, start: int, nbytes: int) -> list[Mapping]:
        first = max(0, bisect_right(self._starts, start) - 1)
        last = bisect_left(self._starts, start + nbytes)
        over = [self.mappings[begin] for begin in self._starts[first:last]]
        return [mapping for mapping in over if start < mapping.end]

    def _whole_mappings(self, start: int, nbytes: int) -> list[Mapping]:
        mappings = self._mappings_over(start, nbytes)
        is_whole = bool(mappings) and mappings[0].start == start and mappings[-1].end == start + nbytes
        is_whole = is_whole and sum(mapping.nbytes for mapping in mappings) == nbytes
        self._refuse_if(not is_whole, f"{nbytes:,} bytes at {start:#x} are not whole mappings")
        return mappings

    def _reservation(self, start: int, nbytes: int) -> int | None:
        for first, size in self.reservations.items():
            if first <= start and start + nbytes <= first + size:
                return first
        return None

    def _stream(self, stream: int) -> Stream:
        return self.streams.setdefault(stream, Stream())

    def _queue(self, stream: int) -> int:
        state = self._stream(stream)
        state.queued += 1
        if not state.is_held and state.done == state.queued - 1:
            state.done = state.queued
        return state.queued

    def _complete(self, stream: int) -> None:
        state = self._stream(stream)
        state.done = state.queued
        self.works = [work for work in self.works if work.stream != stream]
        for segment in [segment for segment in self._freed if segment.freed_on == stream]:
            if segment.freed_at <= state.done:
                self._freed.remove(segment)
                self._forget_segment(segment)


def _share(first: list[tuple[int, int, int]], second: tuple[tuple[int, int, int], ...]) -> bool:
    return any(
        a == b and start < other_end and other < end for a, start, end in first for b, other, other_end in second
    )
