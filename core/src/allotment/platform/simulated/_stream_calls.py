"""The calls about streams and events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allotment.platform.simulated._calls import call
from allotment.platform.simulated._errors import Refused
from allotment.platform.simulated._simulation import Simulation
from allotment.platform.simulated._stream import Event

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment.platform.simulated._free_ranges import Condition
    from allotment.platform.simulated._stream import Stream


class StreamCalls(Simulation):
    """Streams and events."""

    @call("cudaStreamCreateWithPriority")
    def create_stream(self, ordinal: int, *, non_blocking: bool, priority: int) -> int:
        """Return a new stream."""
        self._open(ordinal)
        return self._streams.create(ordinal, non_blocking=non_blocking, priority=priority).handle

    @call("cudaStreamDestroy", can_wait=True)
    def destroy_stream(self, stream: int) -> None:
        """Destroy a stream. A capture that began on it is over."""
        destroyed = self._streams.destroy(stream)
        self._captures.forget(destroyed)

    @call("cudaStreamSynchronize")
    def synchronize_stream(self, stream: int, ordinal: int) -> None:
        """Do the work of a stream."""
        awaited = self._work_stream(stream, ordinal)
        self._captures.check_wait(awaited)
        self._streams.synchronize(awaited)
        self._settle(lambda condition: awaited.has_awaited(condition.stream, condition.ticket))

    @call("cudaStreamQuery")
    def stream_is_done(self, stream: int, ordinal: int) -> bool:
        """Return whether a stream has no unfinished work."""
        queue = self._work_stream(stream, ordinal)
        self._captures.check_wait(queue)
        return self._streams.is_done(queue)

    @call("cudaStreamWaitEvent")
    def wait_for_stream(self, waiting: int, awaited: int, waiting_ordinal: int, awaited_ordinal: int) -> None:
        """Make later work of one stream wait for the present work of another."""
        queue = self._work_stream(awaited, awaited_ordinal)
        mark = Event(0, queue.ordinal)
        self._streams.record(mark, queue)
        self._wait(self._work_stream(waiting, waiting_ordinal), mark)

    @call("cudaStreamWaitEvent")
    def wait_for_event(self, event: int, stream: int, ordinal: int) -> None:
        """Make later work of a stream wait for an event's mark."""
        self._wait(self._work_stream(stream, ordinal), self._streams.event(event))

    @call("cudaEventCreateWithFlags")
    def create_event(self, ordinal: int) -> int:
        """Return a new event."""
        self._open(ordinal)
        return self._streams.create_event(ordinal).handle

    @call("cudaEventDestroy", can_wait=True)
    def destroy_event(self, event: int) -> None:
        """Destroy an event."""
        self._streams.destroy_event(event)

    @call("cudaEventRecord")
    def record_event(self, event: int, stream: int, ordinal: int) -> None:
        """Mark a stream's present end."""
        self._streams.record(self._streams.event(event), self._work_stream(stream, ordinal))

    @call("cudaEventQuery")
    def event_is_done(self, event: int) -> bool:
        """Return whether the work before an event's mark is done."""
        mark = self._streams.event(event)
        self._captures.check_wait_for_event(mark)
        return mark.is_done

    @call("cudaEventSynchronize")
    def synchronize_event(self, event: int) -> None:
        """Do the work before an event's mark."""
        mark = self._streams.event(event)
        self._captures.check_wait_for_event(mark)
        if mark.stream is not None:
            awaited, ticket = mark.stream, mark.ticket
            self._streams.synchronize(awaited, ticket)
            self._settle(lambda condition: condition.stream is awaited and condition.ticket <= ticket)

    # How it is done

    def _wait(self, stream: Stream, mark: Event) -> None:
        if not mark.is_recorded:
            return
        if stream.capture is not None or mark.capture is not None:
            self._captures.wait(stream, mark)
        else:
            self._streams.wait_for_event(stream, mark)

    def _settle(self, settled: Callable[[Condition], bool]) -> None:
        if self._journal.fault is not None:
            raise Refused(self._journal.fault, "a kernel faulted in the work that was waited for")
        self._memory.settle(settled)
