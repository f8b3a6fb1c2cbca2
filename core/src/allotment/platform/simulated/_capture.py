"""Stream capture: what becomes a graph, what ends a capture, and who may do what meanwhile.

The rules are those that two H200s were recorded to follow (``capture/*``).
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import get_ident
from typing import TYPE_CHECKING, Final

from allotment.platform._values import CaptureMode, CaptureStatus
from allotment.platform.simulated._errors import Refused
from allotment.platform.simulated._owned_memory import OwnedMemory

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NoReturn, Protocol

    from allotment.platform.simulated._pointer import Allocation
    from allotment.platform.simulated._stream import Event, Stream, Work

    class CapturingThread(Protocol):
        """What is known of the calling thread."""

        capture_mode: CaptureMode


NOTHING: Final[frozenset[int]] = frozenset()
CAPTURED_EVENT: Final = "cudaErrorCapturedEvent"
ILLEGAL_STATE: Final = "cudaErrorIllegalState"
IMPLICIT: Final = "cudaErrorStreamCaptureImplicit"
INVALIDATED: Final = "cudaErrorStreamCaptureInvalidated"
ISOLATION: Final = "cudaErrorStreamCaptureIsolation"
MERGE: Final = "cudaErrorStreamCaptureMerge"
UNJOINED: Final = "cudaErrorStreamCaptureUnjoined"
UNMATCHED: Final = "cudaErrorStreamCaptureUnmatched"
UNSUPPORTED: Final = "cudaErrorStreamCaptureUnsupported"
WRONG_THREAD: Final = "cudaErrorStreamCaptureWrongThread"


@dataclass(frozen=True, slots=True)
class Node:
    """A piece of captured work.

    Parameters
    ----------
    work
        What is done.
    after
        The nodes that it comes right after.
    check
        What must hold when it is launched, else it faults.
    """

    work: Work
    after: frozenset[int] = NOTHING
    check: Work | None = None


class Capture:
    """A graph in the making.

    Parameters
    ----------
    origin
        The stream that it began on.
    mode
        Which calls it does not bear.
    """

    def __init__(self, origin: Stream, mode: CaptureMode) -> None:
        self.origin = origin
        self.mode = mode
        self.thread = get_ident()
        self.nodes: list[Node] = []
        self.tips: dict[Stream, frozenset[int]] = {origin: NOTHING}
        self.memory = OwnedMemory()
        self.is_valid = True

    def add(self, stream: Stream, work: Work, check: Work | None = None) -> int:
        """Let work come after all that a stream captured so far; return the number of its node."""
        number = len(self.nodes)
        self.nodes.append(Node(work, self.tips[stream], check))
        self.tips[stream] = frozenset((number,))
        return number

    def join(self, stream: Stream, after: frozenset[int]) -> None:
        """Let later work of a stream come after these nodes too, and capture it from now on."""
        self.tips[stream] = self.tips.get(stream, NOTHING) | after
        stream.capture = self

    def history(self, stream: Stream) -> set[int]:
        """Return the nodes that a stream's next work comes after."""
        seen: set[int] = set()
        waiting = list(self.tips[stream])
        while waiting:
            index = waiting.pop()
            if index not in seen:
                seen.add(index)
                waiting.extend(self.nodes[index].after)
        return seen

    def block_around(self, ptr: int) -> Allocation | None:
        """Return the memory that this graph allocates at an address."""
        block = self.memory.around(ptr)
        return None if block is None else block.allocation

    def close(self) -> None:
        """Release its streams."""
        for stream in self.tips:
            stream.capture = None


class Captures:
    """The captures under way.

    Parameters
    ----------
    thread
        What is known of the calling thread.
    """

    def __init__(self, thread: CapturingThread) -> None:
        self._thread = thread
        self._active: list[Capture] = []

    def begin(self, stream: Stream, mode: CaptureMode) -> None:
        """Capture what a stream gets from now on."""
        if stream.is_null:
            raise Refused(UNSUPPORTED, "the null stream cannot be captured")
        if stream.capture is not None:
            raise Refused(ILLEGAL_STATE, "the stream is being captured")
        capture = Capture(stream, mode)
        stream.capture = capture
        self._active.append(capture)

    def end(self, stream: Stream) -> Capture:
        """Return what was captured. The capture is over, even if this is refused."""
        capture = stream.capture
        if capture is None:
            raise Refused(ILLEGAL_STATE, "the stream is not being captured")
        if stream is not capture.origin:
            capture.is_valid = False
            raise Refused(UNMATCHED, "the capture began on another stream")
        self._close(capture)
        problem = self._problem_at_end(capture)
        if problem is not None:
            capture.memory.drop()
            raise problem
        return capture

    def status(self, stream: Stream) -> CaptureStatus:
        """Return whether a stream is captured."""
        if stream.is_null and self._blocking_on(stream.ordinal):
            raise Refused(IMPLICIT, "a blocking stream is being captured, which the null stream waits for")
        if stream.capture is None:
            return CaptureStatus.NONE
        return CaptureStatus.ACTIVE if stream.capture.is_valid else CaptureStatus.INVALIDATED

    def forget(self, stream: Stream) -> None:
        """Note that a stream is destroyed: a capture that began on it is over."""
        capture = stream.capture
        if capture is not None and capture.origin is stream:
            self._close(capture)
            capture.memory.drop()

    def wait(self, stream: Stream, event: Event) -> None:
        """Let a stream wait for a mark, where either of them is captured: the stream joins the capture."""
        capture = event.capture
        if capture is None:
            self._end_all([stream.capture], ISOLATION, "a captured stream cannot wait for work that is not captured")
        if capture not in self._active:
            raise Refused(CAPTURED_EVENT, "the event was recorded in a capture that is over")
        if not capture.is_valid:
            raise Refused(INVALIDATED, "the event was recorded in a capture that cannot be used any more")
        if stream.is_null:
            self._end_all([capture], IMPLICIT, "the null stream cannot be captured")
        if stream.capture not in (None, capture):
            self._end_all([stream.capture, capture], MERGE, "the stream and the event are captured apart")
        capture.join(stream, event.tips)

    # What calls do to captures

    def check_work(self, stream: Stream) -> None:
        """Refuse work that a capture rules out: on the null stream behind a captured one, or on one that is lost."""
        if not self._active:
            return
        if stream.is_null and (ended := self._blocking_on(stream.ordinal)):
            self._end_all(ended, IMPLICIT, "a blocking stream is being captured, which the null stream waits for")
        if stream.capture is not None and not stream.capture.is_valid:
            raise Refused(INVALIDATED, "an earlier call ended the capture of the stream")

    def check_unsafe(self) -> None:
        """Refuse a call that is not safe while a capture of this thread, or a global one of any, is under way."""
        if self._active and (ended := self._forbidding()):
            self._end_all(ended, UNSUPPORTED, "the call is not permitted while a stream is captured in this mode")

    def check_wait(self, stream: Stream) -> None:
        """Refuse to wait for, or ask about, work that is captured; other work as an unsafe call."""
        if stream.capture is not None:
            self.refuse_on(stream, "captured work is not done, and cannot be waited for")
        self.check_unsafe()

    def check_wait_for_event(self, event: Event) -> None:
        """Refuse to wait for a mark that is captured; another one as an unsafe call."""
        if event.capture is not None:
            self._end_all([event.capture], CAPTURED_EVENT, "the event was recorded in a capture")
        self.check_unsafe()

    def check_wait_for_device(self, ordinal: int) -> None:
        """Refuse to wait for a device while one of its streams is captured, whoever asks."""
        if not self._active:
            return
        ended = [capture for capture in self._active if any(stream.ordinal == ordinal for stream in capture.tips)]
        if ended:
            self._end_all(ended, UNSUPPORTED, f"a stream of device {ordinal} is being captured")
        self.check_unsafe()

    def refuse_on(self, stream: Stream, why: str) -> None:
        """Refuse what cannot be captured, if the stream is."""
        if stream.capture is not None:
            self._end_all([stream.capture], UNSUPPORTED, why)

    # How it is done

    def _forbidding(self) -> list[Capture]:
        mode, me = self._thread.capture_mode, get_ident()
        if mode is CaptureMode.RELAXED:
            return []
        mine = [capture for capture in self._active if capture.thread == me and capture.mode is not CaptureMode.RELAXED]
        if mode is CaptureMode.THREAD_LOCAL:
            return mine
        return mine + [c for c in self._active if c.thread != me and c.mode is CaptureMode.GLOBAL]

    def _blocking_on(self, ordinal: int) -> list[Capture]:
        return [
            capture
            for capture in self._active
            if any(stream.ordinal == ordinal and not stream.non_blocking for stream in capture.tips)
        ]

    def _end_all(self, captures: Iterable[Capture | None], code: str, why: str) -> NoReturn:
        for capture in captures:
            if capture is not None:
                capture.is_valid = False
        raise Refused(code, why)

    def _problem_at_end(self, capture: Capture) -> Refused | None:
        if capture.mode is not CaptureMode.RELAXED and capture.thread != get_ident():
            return Refused(WRONG_THREAD, "the capture began in another thread")
        if not capture.is_valid:
            return Refused(INVALIDATED, "an earlier call ended the capture")
        if len(capture.history(capture.origin)) < len(capture.nodes):
            return Refused(
                UNJOINED, "a stream that joined the capture has work that the first stream does not wait for"
            )
        return None

    def _close(self, capture: Capture) -> None:
        self._active.remove(capture)
        capture.close()
