"""Streams as queues of work, and events."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from threading import get_ident
from typing import TYPE_CHECKING

from allotment.platform.simulated._errors import INVALID_HANDLE, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeAlias

    from allotment.platform.simulated._capture import Capture

    Work: TypeAlias = Callable[[], None]

LEGACY_NULL_STREAM = 1
"""CUDA's second name for the null stream, cudaStreamLegacy."""
PER_THREAD_STREAM = 2
"""CUDA's name for the calling thread's own default stream, cudaStreamPerThread."""
_HANDLE_STEP = 0x100
_FIRST_HANDLE = 0x5EED_0000


@dataclass(slots=True, eq=False)
class Stream:
    """A queue of work on a device. Work has tickets, counted from 1, and is done in their order.

    ``seen`` holds, by serial number, the ticket of each other stream up to which this stream's next work waits.
    """

    serial: int
    handle: int
    ordinal: int
    non_blocking: bool = False
    priority: int = 0
    is_null: bool = False
    held: bool = False
    destroyed: bool = False
    submitted: int = 0
    completed: int = 0
    queue: deque[_Item] = field(default_factory=deque)
    seen: dict[int, int] = field(default_factory=dict)
    capture: Capture | None = None

    @property
    def is_done(self) -> bool:
        """Whether all work is done."""
        return self.completed == self.submitted

    def has_awaited(self, stream: Stream, ticket: int) -> bool:
        """Return whether a synchronise of this stream waited for another's work up to a ticket."""
        ordered = self.is_null and not stream.non_blocking and stream.ordinal == self.ordinal
        return self.comes_after(stream, ticket) or (ordered and stream.completed >= ticket)

    def comes_after(self, stream: Stream, ticket: int) -> bool:
        """Return whether this stream's next work waits for another's work up to a ticket."""
        return stream is self or self.seen.get(stream.serial, 0) >= ticket


@dataclass(frozen=True, slots=True)
class _Item:
    ticket: int
    work: Work | None
    waits: tuple[tuple[Stream, int], ...]

    @property
    def is_ready(self) -> bool:
        return all(stream.completed >= ticket for stream, ticket in self.waits)


@dataclass(slots=True, eq=False)
class Event:
    """A mark in a stream, or in a capture where it was recorded in one; in neither until it is recorded."""

    handle: int
    ordinal: int
    stream: Stream | None = None
    ticket: int = 0
    seen: dict[int, int] = field(default_factory=dict)
    capture: Capture | None = None
    tips: frozenset[int] = frozenset()

    @property
    def is_recorded(self) -> bool:
        """Whether it marks anything."""
        return self.stream is not None or self.capture is not None

    @property
    def is_done(self) -> bool:
        """Whether the work before the mark is done."""
        return self.stream is None or self.stream.completed >= self.ticket


class Handles:
    """Gives out handles that look like CUDA's, the last one given back first."""

    def __init__(self) -> None:
        self._next = _FIRST_HANDLE
        self._free: list[int] = []

    def take(self) -> int:
        """Return a handle that nobody holds."""
        if self._free:
            return self._free.pop()
        self._next += _HANDLE_STEP
        return self._next

    def give_back(self, handle: int) -> None:
        """Let a handle be given out again."""
        self._free.append(handle)


class Streams:
    """The streams and events of all devices.

    Work runs when it is submitted, unless its stream is held or waits for one that is. A synchronise runs what it waits
    for, held or not, as a device would have by then.
    """

    def __init__(self, device_count: int, handles: Handles) -> None:
        self._handles = handles
        self._serial = 0
        self._streams: dict[int, Stream] = {}
        self._events: dict[int, Event] = {}
        self._null = [self._new(0, ordinal, is_null=True) for ordinal in range(device_count)]
        self._per_thread: dict[tuple[int, int], Stream] = {}
        self._pending: dict[Stream, None] = {}

    def create(self, ordinal: int, *, non_blocking: bool, priority: int) -> Stream:
        """Return a new stream."""
        stream = self._new(self._handles.take(), ordinal, non_blocking=non_blocking, priority=priority)
        self._streams[stream.handle] = stream
        return stream

    def destroy(self, handle: int) -> Stream:
        """Destroy a stream, and return it. What it holds runs as soon as what it waits for is done."""
        stream = self._streams.pop(handle, None)
        if stream is None:
            raise Refused(INVALID_HANDLE, f"there is no stream {handle:#x} to destroy")
        stream.destroyed, stream.held = True, False
        self._handles.give_back(handle)
        self.progress()
        return stream

    def get(self, handle: int, ordinal: int) -> Stream:
        """Return the stream of a handle; 0 to 2 are the default streams of device ``ordinal``."""
        stream = self._streams.get(handle)
        if stream is not None:
            return stream
        if handle in (0, LEGACY_NULL_STREAM):
            return self._null[ordinal]
        if handle != PER_THREAD_STREAM:
            raise Refused(INVALID_HANDLE, f"there is no stream {handle:#x}")
        key = (get_ident(), ordinal)
        if key not in self._per_thread:
            self._per_thread[key] = self._new(handle, ordinal)
        return self._per_thread[key]

    def submit(self, stream: Stream, work: Work | None, *waits: tuple[Stream, int]) -> int:
        """Queue work, or a mark where ``work`` is ``None``; return its ticket."""
        stream.submitted += 1
        ticket = stream.submitted
        if self.is_idle(stream):
            self._do(stream, ticket, work)
            return ticket
        open_waits = (wait for wait in (*waits, *self._implicit_waits(stream)) if wait[0].completed < wait[1])
        stream.queue.append(_Item(ticket, work, tuple(open_waits)))
        self._pending[stream] = None
        self.progress()
        return ticket

    def wait(self, waiting: Stream, awaited: Stream) -> None:
        """Make later work of one stream wait for the present work of another."""
        ticket = self.mark(awaited)
        self.submit(waiting, None, (awaited, ticket))
        for serial, seen in (*awaited.seen.items(), (awaited.serial, ticket)):
            waiting.seen[serial] = max(waiting.seen.get(serial, 0), seen)

    def mark(self, stream: Stream) -> int:
        """Return the ticket that stands for all work submitted so far that a stream's next work comes after."""
        return stream.submitted if self.is_idle(stream) else self.submit(stream, None)

    def synchronize(self, stream: Stream, ticket: int | None = None) -> None:
        """Do the work of a stream up to a ticket, or all of it."""
        self._drain(stream, self.mark(stream) if ticket is None else ticket)
        self.progress()

    def synchronize_device(self, ordinal: int | None = None) -> None:
        """Do all work of a device, or of all devices."""
        if not self._pending:
            return
        for stream in list(self._pending):
            if ordinal is None or stream.ordinal == ordinal:
                self._drain(stream, stream.submitted)
        self.progress()

    def hold(self, stream: Stream) -> None:
        """Keep later work of a stream in its queue."""
        stream.held = True

    def release(self, stream: Stream) -> None:
        """Stop keeping work of a stream in its queue, and do it."""
        stream.held = False
        self.progress()

    def abandon(self) -> None:
        """Drop all work: what happens to it when a device has faulted."""
        for stream in self._pending:
            stream.queue.clear()
            stream.completed = stream.submitted
        self._pending.clear()

    def is_done(self, stream: Stream) -> bool:
        """Return whether a stream has no unfinished work, nor anything that it implicitly waits for."""
        return stream.is_done and not (stream.is_null and any(self._implicit_waits(stream)))

    def is_idle(self, stream: Stream) -> bool:
        """Return whether work submitted to a stream now would be done at once."""
        return not stream.held and not self._pending

    @property
    def has_work(self) -> bool:
        """Whether any device has unfinished work."""
        return bool(self._pending)

    def progress(self) -> None:
        """Do all work that nothing holds back."""
        moved = bool(self._pending)
        while moved:
            moved = False
            for stream in list(self._pending):
                while not stream.held and stream.queue and stream.queue[0].is_ready:
                    self._run_next(stream)
                    moved = True

    # Events

    def create_event(self, ordinal: int) -> Event:
        """Return a new event."""
        event = Event(self._handles.take(), ordinal)
        self._events[event.handle] = event
        return event

    def destroy_event(self, handle: int) -> None:
        """Destroy an event."""
        self.event(handle)
        del self._events[handle]
        self._handles.give_back(handle)

    def event(self, handle: int) -> Event:
        """Return the event of a handle."""
        event = self._events.get(handle)
        if event is None:
            raise Refused(INVALID_HANDLE, f"there is no event {handle:#x}")
        return event

    def record(self, event: Event, stream: Stream) -> None:
        """Mark a stream's present end."""
        if event.ordinal != stream.ordinal:
            raise Refused(
                INVALID_HANDLE,
                f"an event of device {event.ordinal} cannot be recorded on a stream of device {stream.ordinal}",
            )
        event.capture = stream.capture
        if stream.capture is not None:
            event.tips = stream.capture.tips[stream]
        else:
            event.stream, event.ticket = stream, self.mark(stream)
            event.seen = stream.seen | {stream.serial: event.ticket}

    def wait_for_event(self, waiting: Stream, event: Event) -> None:
        """Make later work of a stream wait for a mark in another one."""
        if event.stream is not None:
            self.submit(waiting, None, (event.stream, event.ticket))
            for serial, seen in event.seen.items():
                waiting.seen[serial] = max(waiting.seen.get(serial, 0), seen)

    def _new(
        self, handle: int, ordinal: int, *, non_blocking: bool = False, priority: int = 0, is_null: bool = False
    ) -> Stream:
        self._serial += 1
        return Stream(self._serial, handle, ordinal, non_blocking, priority, is_null)

    def _implicit_waits(self, stream: Stream) -> Iterable[tuple[Stream, int]]:
        """Yield what the null stream and blocking streams of a device wait for among each other."""
        if stream.non_blocking:
            return
        for other in self._pending:
            ordered = other.is_null != stream.is_null and not other.non_blocking
            if ordered and other.ordinal == stream.ordinal:
                yield other, other.submitted

    def _drain(self, stream: Stream, ticket: int) -> None:
        while stream.completed < ticket and stream.queue:
            head = stream.queue[0]
            for awaited, awaited_ticket in head.waits:
                self._drain(awaited, awaited_ticket)
            if not stream.queue or stream.queue[0] is not head:
                continue
            if not head.is_ready:  # it waits for the very work that synchronises
                return
            self._run_next(stream)

    def _run_next(self, stream: Stream) -> None:
        item = stream.queue.popleft()
        if not stream.queue:
            self._pending.pop(stream, None)
        self._do(stream, item.ticket, item.work)

    @staticmethod
    def _do(stream: Stream, ticket: int, work: Work | None) -> None:
        try:
            if work is not None:
                work()
        finally:
            stream.completed = max(stream.completed, ticket)
