"""Capturing work into graphs: on CUDA devices as CUDA graphs, on the host as a list of steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self, TypeAlias

from allotment.capture._capture import Capture
from allotment.capture._graph import Graph
from allotment.device import find_device
from allotment.errors import CaptureError
from allotment.platform import CaptureMode, CaptureStatus
from allotment.stream import LEGACY_STREAM, Stream, SupportsCudaStream, stream_in_force

if TYPE_CHECKING:
    from types import TracebackType

    from allotment.device import Device, DeviceLike

__all__ = ["CaptureMode", "Graph", "ScopedCapture", "capture_begin", "capture_end", "capture_launch"]

StreamLike: TypeAlias = Stream | SupportsCudaStream | int
"""A stream of this library or another one, or a handle."""


class ScopedCapture:
    """Capture the work of a ``with`` block into a graph.

    Parameters
    ----------
    device
        The device; that of ``stream``, or the default device, if not given.
    stream
        The stream to capture, of this library or another one; the one in force if not given. In place of the null
        stream, which cannot be captured, a stream of its own is captured. It is in force inside the block.
    external
        Another library began the capture of the stream, and ends it.
    capture_mode
        Which calls end the capture. With ``GLOBAL``, calls of all threads count: one that another thread is in the
        middle of when the capture begins may end it.

    Attributes
    ----------
    graph : Graph or None
        The graph, after the block; ``None`` if the block or the capture failed. Of an external capture it stands for
        what arrays have in common with the graph that the other library gets: keep it as long as that graph.

    Raises
    ------
    CaptureError
        On entry if the stream is captured already, on exit if a call ended the capture.

    Notes
    -----
    Inside, work is recorded and not done. Arrays may be made from the memory pool: their address is final, and their
    memory is there once the graph was launched. A stream that waits for a captured one is captured too, and comes back
    at the end by itself. Captures of the host concern the work of the thread that began them.
    """

    def __init__(
        self,
        device: DeviceLike = None,
        stream: StreamLike | None = None,
        *,
        external: bool = False,
        capture_mode: CaptureMode = CaptureMode.THREAD_LOCAL,
    ) -> None:
        self.device = stream.device if isinstance(stream, Stream) and device is None else find_device(device)
        self.external, self.capture_mode = external, capture_mode
        self.graph: Graph | None = None
        self._stream = stream
        self._capture: Capture | None = None

    @property
    def active(self) -> bool:
        """Whether the capture is under way."""
        return self._capture is not None

    def __enter__(self) -> Self:
        if self._capture is not None:
            raise CaptureError(f"this capture on {self.device.alias!r} is under way already")
        self._capture = _begin(self.device, self._stream, self.capture_mode, is_external=self.external)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        capture, self._capture, self.graph = self._capture, None, None
        assert capture is not None
        try:
            self.graph = capture.end(discard=error is not None)
        except CaptureError:
            if error is None:  # otherwise what went wrong in the block is what the user must see
                raise


def capture_begin(
    device: DeviceLike = None,
    stream: StreamLike | None = None,
    *,
    external: bool = False,
    capture_mode: CaptureMode = CaptureMode.THREAD_LOCAL,
) -> None:
    """Begin to capture work; see `ScopedCapture` for the parameters. The stream is in force until `capture_end`.

    Raises
    ------
    CaptureError
        If the stream is captured already.
    """
    _begin(device, stream, capture_mode, is_external=external)


def capture_end(device: DeviceLike = None, stream: StreamLike | None = None) -> Graph:
    """End the capture that `capture_begin` began, and return its graph.

    Parameters
    ----------
    device, stream
        What is captured, as for `capture_begin`.

    Raises
    ------
    CaptureError
        If there is none, or if a call ended the capture before.
    """
    found = stream.device if isinstance(stream, Stream) and device is None else find_device(device)
    capture = _under_way_on(found, stream)
    if capture is None:
        raise CaptureError(f"no capture is under way on this stream of {found.alias!r}")
    graph = capture.end()
    assert graph is not None
    return graph


def capture_launch(graph: Graph, stream: Stream | None = None) -> None:
    """Launch a graph; see `Graph.launch`."""
    graph.launch(stream)


def _under_way_on(device: Device, stream: StreamLike | None) -> Capture | None:
    if device.is_cpu:
        return device.captures.of_host_work()
    chosen = stream_in_force(device) if stream is None else Stream.from_external(stream, device)
    under_way = device.captures.on_devices
    return next((capture for capture in under_way if capture.began_on(chosen)), None)


_NULL_STREAMS: Final = (0, LEGACY_STREAM)


def _begin(device: DeviceLike, stream: StreamLike | None, mode: CaptureMode, *, is_external: bool) -> Capture:
    where = stream.device if isinstance(stream, Stream) and device is None else find_device(device)
    captured = _stream_to_capture(where, stream)
    _require_free(where, captured)
    if is_external and (captured is None or not _is_captured(captured)):
        raise CaptureError("external=True says that another library captures the stream, and it does not")
    capture = Capture(where, captured, CaptureMode(mode), is_external=is_external)
    capture.begin()
    return capture


def _stream_to_capture(device: Device, stream: StreamLike | None) -> Stream | None:
    """Return the stream to capture: the null stream cannot be, so a stream of its own stands in for it."""
    if device.is_cpu:
        return None
    chosen = stream_in_force(device) if stream is None else Stream.from_external(stream, device)
    if chosen.device is not device:
        raise CaptureError(f"{chosen!r} cannot be captured for {device.alias!r}")
    return Stream(device, non_blocking=True) if chosen.cuda_stream in _NULL_STREAMS else chosen


def _require_free(device: Device, stream: Stream | None) -> None:
    captures = device.captures
    if captures.of_host_work() if stream is None else any(each.knows(stream) for each in captures.on_devices):
        raise CaptureError(f"a capture of this stream of {device.alias!r} is under way already")


def _is_captured(stream: Stream) -> bool:
    status = stream.device.platform.capture_status(stream.cuda_stream, stream.device.ordinal)
    return status is CaptureStatus.ACTIVE
