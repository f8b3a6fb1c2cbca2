"""Streams: sequences of work that a device does in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable
from warnings import warn

from allotment._scope import ScopeStack
from allotment.device import Device, find_device
from allotment.errors import AllotmentWarning, ClosedError, UnsupportedError

if TYPE_CHECKING:
    from types import TracebackType

    from allotment.device import DeviceLike

LEGACY_STREAM = 1
"""How the null stream is written where 0 could be taken for "none" (CUDA array interface, DLPack)."""


@runtime_checkable
class SupportsCudaStream(Protocol):
    """A stream of any library that follows the ``__cuda_stream__`` protocol."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the protocol's version, 0, and the stream's handle."""
        ...


class Stream:
    """A stream of a CUDA device.

    Parameters
    ----------
    device
        The device; the default CUDA device if not given.
    non_blocking
        Whether the stream runs free of the null stream. By default it keeps order with it.
    priority
        Lower numbers run earlier.

    Attributes
    ----------
    device : Device
        The device.
    handle : int
        The ``cudaStream_t``; 0 is the null stream.

    Notes
    -----
    Memory that was allocated on a stream is freed in its order and keeps the stream object alive until then.
    """

    __slots__ = ("__weakref__", "_is_open", "_owner", "_owns_handle", "device", "handle")

    def __init__(self, device: DeviceLike = None, *, non_blocking: bool = False, priority: int = 0) -> None:
        self._is_open = self._owns_handle = False
        self.device = _cuda_device(device)
        self.handle = self.device.platform.create_stream(
            self.device.ordinal, non_blocking=non_blocking, priority=priority
        )
        self._owner: object = None
        self._is_open = self._owns_handle = True

    @classmethod
    def _of_handle(cls, device: Device, handle: int, owner: object) -> Stream:
        stream = cls.__new__(cls)
        stream.device, stream.handle, stream._owner = device, handle, owner
        stream._is_open, stream._owns_handle = True, False
        return stream

    @classmethod
    def from_external(cls, stream: SupportsCudaStream | int, device: DeviceLike = None) -> Stream:
        """Wrap a stream that another library owns.

        Parameters
        ----------
        stream
            An object with ``__cuda_stream__`` (CuPy, cuda.core, Numba, Warp, this library), one with a ``cuda_stream``
            (PyTorch) or ``ptr`` attribute, or a handle. The object is kept alive.
        device
            The stream's device; the default CUDA device if not given.

        Raises
        ------
        TypeError
            If ``stream`` is none of these.
        """
        if isinstance(stream, Stream):
            return stream
        return cls._of_handle(_cuda_device(device), _handle_of(stream), stream)

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return version 0 of the protocol and the handle."""
        return 0, self._open_handle()

    def __repr__(self) -> str:
        state = f"{self.handle:#x}" if self._is_open else "closed"
        return f"<Stream {state} of {self.device.alias!r}>"

    def _open_handle(self) -> int:
        if not self._is_open:
            raise ClosedError(f"this stream of {self.device.alias!r} was closed")
        return self.handle

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return not self._is_open

    @property
    def cuda_stream(self) -> int:
        """The handle, under the name that PyTorch and Warp use."""
        return self._open_handle()

    @property
    def is_done(self) -> bool:
        """Whether all work queued so far is done.

        Raises
        ------
        CaptureError
            While a graph is captured that such a question would end.
        """
        self.device.captures.refuse_stream_wait(self)
        return self.device.platform.stream_is_done(self._open_handle(), self.device.ordinal)

    def synchronize(self) -> None:
        """Wait for the work queued so far.

        Raises
        ------
        CaptureError
            While a graph is captured that such a wait would end.
        """
        self.device.captures.refuse_stream_wait(self)
        self.device.platform.synchronize_stream(self._open_handle(), self.device.ordinal)

    def wait_for(self, other: Stream) -> None:
        """Let later work of this stream wait for the present work of another one, without waiting here.

        A stream that waits for a captured one becomes part of the same capture.

        Raises
        ------
        CaptureError
            If that would end a capture: a captured stream cannot wait for one that is not.
        """
        if self.device.captures.on_devices:
            self.device.captures.check_order(self, other)
        self.device.platform.wait_for_stream(
            self._open_handle(), other._open_handle(), self.device.ordinal, other.device.ordinal
        )

    def close(self) -> None:
        """Wait for the work queued so far and destroy the stream; closing it again does nothing.

        Memory allocated on it may live on; it is then freed on the device's null stream. If it was the stream of
        `set_stream`, work goes to the null stream again.

        Raises
        ------
        UnsupportedError
            In a `ScopedStream` that sends work to it.
        """
        if self._is_open and self._owns_handle:
            self._require_no_scope()
            self.synchronize()
            self._destroy()
        self._is_open = False
        if self.device.stream_in_place is self:
            self.device.stream_in_place = None

    def _require_no_scope(self) -> None:
        if any(stream is self for _, (_, stream) in stream_scope_stack.get()):
            raise UnsupportedError(f"{self!r} cannot be closed while a ScopedStream sends work to it")

    def _destroy(self) -> None:
        handle, self.handle = self.handle, 0
        self._is_open = self._owns_handle = False
        self.device.platform.destroy_stream(handle)

    def __del__(self) -> None:
        # Asks the device, not the process: at the very end of the interpreter a module may have lost its names.
        if self._owns_handle and not self.device.is_retired:
            try:
                self._destroy()
            except Exception as error:  # noqa: BLE001 - nothing leaves a finaliser
                warn(f"a stream of {self.device.alias!r} was not destroyed: {error}", AllotmentWarning, stacklevel=2)


def _handle_of(stream: object) -> int:
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    if isinstance(stream, SupportsCudaStream):
        return int(stream.__cuda_stream__()[1])
    for attribute in ("cuda_stream", "ptr"):
        if isinstance(handle := getattr(stream, attribute, None), int):
            return handle
    raise TypeError(f"not a CUDA stream: {stream!r} has no __cuda_stream__, cuda_stream or ptr, and is not a handle")


def _cuda_device(device: DeviceLike) -> Device:
    found = find_device(device)
    if found.is_cpu:
        raise UnsupportedError("streams belong to CUDA devices; work on 'cpu' is done at once")
    return found


stream_scope_stack: Final[ScopeStack[tuple[Device, Stream]]] = ScopeStack("allotment_streams")
"""The streams that the running thread or task has put in scope."""
stream_scopes: Final = stream_scope_stack.variable
"""The context variable of the streams in scope, for the compiled ledger: where it holds none, a device's own counts."""


def stream_in_force(device: Device) -> Stream:
    """Return the stream of a CUDA device that work goes to; the hot path behind `get_stream`."""
    for _, (scoped_device, stream) in reversed(stream_scope_stack.get()):
        if scoped_device is device:
            return stream
    return device.stream_in_place or set_stream(Stream._of_handle(device, 0, None), device)


def null_stream(device: Device) -> Stream:
    """Return the null stream of a CUDA device."""
    return Stream._of_handle(device, 0, None)


def get_stream(device: DeviceLike = None) -> Stream:
    """Return the stream that work on a device goes to.

    It is that of the innermost `ScopedStream` of the running thread or task, or that of `set_stream`, or the null
    stream.

    Parameters
    ----------
    device
        The device; if not given, the CUDA device that is current in the calling thread, which in a call of an
        allocator is the device of the array.

    Raises
    ------
    DeviceNotFoundError
        If no device is given and there is no CUDA device.
    UnsupportedError
        For the host, which has no streams.
    """
    return stream_in_force(_cuda_device("cuda" if device is None else device))


def set_stream(stream: Stream | SupportsCudaStream | int, device: DeviceLike = None) -> Stream:
    """Make a stream the one that work on its device goes to, in the whole process; return it.

    Parameters
    ----------
    stream
        A `Stream`, or one of another library, which is wrapped.
    device
        The device of a stream of another library.

    Raises
    ------
    ClosedError
        If the stream was closed.
    """
    wrapped = Stream.from_external(stream, device)
    wrapped._open_handle()
    wrapped.device.stream_in_place = wrapped
    return wrapped


class ScopedStream:
    """Send the work of a device to a stream for the length of a ``with`` block.

    Parameters
    ----------
    stream
        A `Stream`, or one of another library, which is wrapped.
    device
        The device of a stream of another library.
    sync_enter
        Let the stream wait for the present work of the stream in force before it.
    sync_exit
        Let the stream in force before it wait for the stream's work at the end.

    Raises
    ------
    ClosedError
        On entry, if the stream was closed.
    """

    def __init__(
        self,
        stream: Stream | SupportsCudaStream | int,
        device: DeviceLike = None,
        *,
        sync_enter: bool = True,
        sync_exit: bool = False,
    ) -> None:
        self.stream = Stream.from_external(stream, device)
        self.sync_enter, self.sync_exit = sync_enter, sync_exit

    def __enter__(self) -> Stream:
        self.stream._open_handle()
        device = self.stream.device
        before = stream_in_force(device)
        if self.sync_enter and before is not self.stream:
            self.stream.wait_for(before)
        stream_scope_stack.push(self, (device, self.stream))
        return self.stream

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if stream_scope_stack.pop(self) is None:
            return
        before = stream_in_force(self.stream.device)
        if self.sync_exit and before is not self.stream:
            before.wait_for(self.stream)


def synchronize_stream(stream: Stream | DeviceLike = None) -> None:
    """Wait for a stream's work; given a device, for the stream in force on it."""
    (stream if isinstance(stream, Stream) else get_stream(stream)).synchronize()
