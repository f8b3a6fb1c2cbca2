"""The graph captures under way on a platform, as everything that they forbid or change meets them."""

from __future__ import annotations

from functools import cached_property
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

from allotment import _beside_captures
from allotment._beside_captures import BesideCaptures
from allotment._locks import RenewedLock
from allotment._twins import preferred
from allotment.errors import CaptureError, PlatformError
from allotment.platform import driver_functions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from allotment.capture._capture import Capture
    from allotment.device import Device
    from allotment.layers.accounting import AccountedAllocator
    from allotment.platform import Platform
    from allotment.stream import Stream

_NULL_STREAMS: Final = (0, 1)
"""The handles of the null stream; the second is ``cudaStreamLegacy``."""


class Captures:
    """The captures under way. All devices of a platform share one such object.

    Parameters
    ----------
    platform
        The platform.

    Attributes
    ----------
    on_devices
        Those of CUDA devices, newest first.
    on_host
        Those of the host, newest first.
    lock
        Held while they change.
    """

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self.lock = RenewedLock()  # reentrant: a collection may free within a free
        self._postponed: list[Callable[[], object]] = []
        self.on_devices: tuple[Capture, ...] = ()
        self.on_host: tuple[Capture, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.on_devices or self.on_host)

    def __iter__(self) -> Iterator[Capture]:
        return iter((*self.on_devices, *self.on_host))

    # Beginning and end

    def enter(self, capture: Capture) -> None:
        """Note a capture that begins."""
        with self.lock():
            if capture.stream is None:
                self.on_host = (capture, *self.on_host)
            else:
                self.on_devices = (capture, *self.on_devices)

    def leave(self, capture: Capture) -> list[Callable[[], object]]:
        """Note that a capture has ended; return what was postponed, if nothing is in its way any more."""
        with self.lock():
            self.on_host = tuple(other for other in self.on_host if other is not capture)
            self.on_devices = tuple(other for other in self.on_devices if other is not capture)
            if self.on_devices:
                return []
            due, self._postponed = self._postponed, []
            return due

    def forget_devices(self) -> None:
        """Forget the captures of CUDA devices: they belong to the parent of this process."""
        self._postponed, self.on_devices = [], ()

    def postpone(self, work: Callable[[], object]) -> None:
        """Do something when no device is captured any more: at once, if none is."""
        with self.lock():
            if self.on_devices:
                self._postponed.append(work)
                return
        work()

    def settle(self, account: AccountedAllocator) -> None:
        """Let the calls of an allocator go as the captures under way want it."""
        for capture in self:
            capture.settle(account)
            return

    # Questions

    def covering(self, stream: Stream) -> Capture | None:
        """Return the capture that work on a stream becomes part of."""
        if not self.on_devices:
            return None
        known = next((capture for capture in self.on_devices if capture.knows(stream)), None)
        return known or next((capture for capture in self.on_devices if capture.covers(stream)), None)

    def of_host_work(self) -> Capture | None:
        """Return the capture that the calling thread's work on the host becomes part of."""
        if not self.on_host:
            return None
        return next((capture for capture in self.on_host if capture.thread == get_ident()), None)

    @property
    def _strict(self) -> Capture | None:
        """A capture that calls of this thread can end, though they have nothing to do with it."""
        return next((capture for capture in self.on_devices if capture.is_strict), None)

    # What is not allowed, refused before the driver is asked

    def refuse_unsafe(self, what: str, remedy: str = "Do it before the capture begins or after it.") -> None:
        """Raise for a call that would end a capture."""
        if (capture := self._strict) is not None:
            capture.refuse(f"{what} would end the graph capture on {capture.device.alias!r}.", remedy)

    def refuse_allocator(self, name: str, device: Device) -> None:
        """Raise for an allocator that cannot be captured."""
        self.refuse_unsafe(
            f"allocator {name!r} cannot allocate on {device.alias!r} while a graph is captured: it",
            _how_to_allocate(device),
        )

    def refuse_device_wait(self, device: Device) -> None:
        """Raise for a wait for a device that is captured, which ends the capture from any thread."""
        for capture in self.on_devices:
            if capture.concerns(device) or capture.is_strict:
                capture.refuse_wait(device.alias)

    def refuse_stream_wait(self, stream: Stream) -> None:
        """Raise for a wait for a captured stream, or a question about it, and for others where they are unsafe."""
        capture = self.covering(stream) or self._strict
        if capture is not None:
            capture.refuse_wait(repr(stream))

    def check_order(self, waiting: Stream, awaited: Stream) -> None:
        """Let a stream join the capture of one that it waits for; raise if the wait would end the capture."""
        own, other = self.covering(waiting), self.covering(awaited)
        if own is other:
            return
        if other is None:
            assert own is not None
            own.refuse(
                f"{waiting!r} is captured and cannot wait for work outside of the capture, on {awaited!r}.",
                "Let it wait before the capture begins.",
            )
        if own is not None:
            own.refuse(f"{waiting!r} and {awaited!r} are captured into two graphs.", "Capture the work into one.")
        if waiting.handle in _NULL_STREAMS:
            other.refuse("the null stream cannot wait for captured work.", "Use a stream of its own.")
        other.join(waiting)

    def check_work(self, stream: Stream) -> None:
        """Raise for work on the null stream while a stream that keeps order with it is captured."""
        if stream.handle not in _NULL_STREAMS:
            return
        for capture in self.on_devices:
            if capture.concerns(stream.device):
                _check_null_stream(capture, stream.device)

    def relaxed(self, call: Callable[..., Any], *arguments: object) -> Any:
        """Make a call that has nothing to do with captured work, as CUDA allows it in every mode."""
        return self.beside.call(call, *arguments) if self.on_devices else call(*arguments)

    @cached_property
    def beside(self) -> BesideCaptures:
        """What is asked of captures, and done beside them, also of those that nobody tells of."""
        return _beside_captures_on(self._platform)


_DRIVER_FUNCTIONS: Final = (
    "cuThreadExchangeStreamCaptureMode",
    "cuStreamIsCapturing",
    "cuCtxGetDevice",
    "cuEventRecord",
)
"""What the compiled twin of `BesideCaptures` calls, in the order in which it takes the addresses."""


def _beside_captures_on(platform: Platform) -> BesideCaptures:
    in_python, twin = BesideCaptures(platform), preferred(_beside_captures)
    addresses = () if twin is _beside_captures else driver_functions(platform, *_DRIVER_FUNCTIONS)
    found: BesideCaptures = twin.BesideCaptures(in_python, *addresses) if addresses else in_python
    return found


def _how_to_allocate(device: Device) -> str:
    if not device.is_mempool_supported:
        return f"Allocate before the capture: {device.alias!r} does not support memory pools, which can be captured."
    return (
        f"Use the memory pool (call set_mempool_enabled({device.alias!r}, True) before the capture begins), "
        "or allocate before it."
    )


def _check_null_stream(capture: Capture, device: Device) -> None:
    try:
        device.platform.capture_status(0, device.ordinal)
    except PlatformError as error:
        raise CaptureError(
            f"work on the null stream would end the graph capture on {capture.device.alias!r}, whose stream keeps "
            "order with it. Capture a stream that was made with non_blocking=True, or work on another stream."
        ) from error
