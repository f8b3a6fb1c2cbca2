"""Streams and events."""

from __future__ import annotations

from typing import Final

from allotment.platform.cuda._calls import Calls
from allotment.platform.cuda._errors import reports

_BLOCKING: Final = 0
_NON_BLOCKING: Final = 1
_WITHOUT_TIMING: Final = 2


class Streams(Calls):
    """The calls about streams and events."""

    @reports("cudaStreamCreateWithPriority")
    def create_stream(self, ordinal: int, *, non_blocking: bool, priority: int) -> int:
        """Return a new stream of a device."""
        flags = _NON_BLOCKING if non_blocking else _BLOCKING
        with self._on(ordinal):
            if priority == 0:
                return int(self._runtime.streamCreateWithFlags(flags))
            return self._bindings.create_stream(flags, priority)  # CuPy has it since version 14 only

    @reports("cudaStreamDestroy")
    def destroy_stream(self, stream: int) -> None:
        """Destroy a stream; work that it holds still runs."""
        self._runtime.streamDestroy(stream)

    @reports("cudaStreamSynchronize")
    def synchronize_stream(self, stream: int, ordinal: int) -> None:
        """Wait for the work of a stream; 0 is the device's null stream."""
        with self._on(ordinal):
            self._runtime.streamSynchronize(stream)

    def stream_is_done(self, stream: int, ordinal: int) -> bool:
        """Return whether a stream has no unfinished work."""
        with self._on(ordinal):
            return self._is_done(self._runtime.streamQuery(stream), "cudaStreamQuery")

    @reports("cudaStreamWaitEvent")
    def wait_for_stream(self, waiting: int, awaited: int, waiting_ordinal: int, awaited_ordinal: int) -> None:
        """Make later work of one stream wait for the present work of another, without waiting here."""
        event = self.create_event(awaited_ordinal)
        try:
            self.record_event(event, awaited, awaited_ordinal)
            with self._on(waiting_ordinal):
                self._runtime.streamWaitEvent(waiting, event)
        finally:
            self.destroy_event(event)  # CUDA keeps it until the wait is over

    @reports("cudaStreamWaitEvent")
    def wait_for_event(self, event: int, stream: int, ordinal: int) -> None:
        """Make later work of a stream wait for an event's mark, without waiting here."""
        with self._on(ordinal):
            self._runtime.streamWaitEvent(stream, event)

    @reports("cudaEventCreateWithFlags")
    def create_event(self, ordinal: int) -> int:
        """Return a new event without timing."""
        with self._on(ordinal):
            return int(self._runtime.eventCreateWithFlags(_WITHOUT_TIMING))

    @reports("cudaEventDestroy")
    def destroy_event(self, event: int) -> None:
        """Destroy an event."""
        self._runtime.eventDestroy(event)

    @reports("cudaEventRecord")
    def record_event(self, event: int, stream: int, ordinal: int) -> None:
        """Mark a stream's present end with an event."""
        with self._on(ordinal):
            self._runtime.eventRecord(event, stream)

    def event_is_done(self, event: int) -> bool:
        """Return whether the work before an event's mark is done."""
        return self._is_done(self._runtime.eventQuery(event), "cudaEventQuery")

    @reports("cudaEventSynchronize")
    def synchronize_event(self, event: int) -> None:
        """Wait for an event's mark."""
        self._runtime.eventSynchronize(event)
