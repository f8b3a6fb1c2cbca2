"""A capture under way: which work it covers, what it owns, and what it gives in the end."""

from __future__ import annotations

import warnings
from contextlib import suppress
from threading import get_ident
from typing import TYPE_CHECKING, Any, NoReturn

from allotment._graph_blocks import BlockState, GraphBlock
from allotment._locks import RenewedLock
from allotment.capture._graph import Graph, drop_blocks
from allotment.capture._interposition import blocks_of, settle
from allotment.errors import AllotmentError, CaptureError, FreeFailedWarning, PlatformError, PluginError
from allotment.platform import CaptureMode, CaptureStatus
from allotment.selection import allocator_in_force
from allotment.stream import ScopedStream, Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment.allocator import PrivatePool, SupportsPrivatePools
    from allotment.device import Device
    from allotment.layers.accounting import AccountedAllocator


class Capture:
    """A capture of a device's work, from its beginning to its end.

    Meanwhile the calls of all allocators of the platform are interposed: memory of a pool on a captured stream becomes
    part of the graph, allocators that cannot be captured refuse before the driver is asked, and frees of anything else
    wait for the end, whichever thread they come from.

    Parameters
    ----------
    device
        The device.
    stream
        The stream to capture, which is in force until the end; ``None`` on the host.
    mode
        Which calls end the capture.
    is_external
        Another library began the capture and will end it.

    Attributes
    ----------
    device, stream, mode, is_external
        As given.
    thread : int
        The thread that began it.
    """

    def __init__(self, device: Device, stream: Stream | None, mode: CaptureMode, *, is_external: bool) -> None:
        self.device, self.stream, self.mode, self.is_external = device, stream, mode, is_external
        self.thread = get_ident()
        self._lock = RenewedLock()
        self._joined: dict[int, Stream] = {} if stream is None else {stream.handle: stream}
        self._sides: dict[Device, Stream] = {}
        self._blocks: list[GraphBlock] = []
        self._steps: list[Callable[[], object]] = []
        self._kept: list[object] = []
        self._pools: dict[SupportsPrivatePools, PrivatePool] = {}
        self._scope: ScopedStream | None = None

    # Beginning and end

    def begin(self) -> None:
        """Begin, after everything is made that cannot be made meanwhile.

        Raises
        ------
        CaptureError
            If the platform refuses to capture the stream.
        """
        if self.stream is not None:
            with suppress(PluginError):  # where none can be had, arrays may still come from a scope
                self._find_allocator()
        self.device.captures.enter(self)
        self._settle_accounts()
        try:
            self._begin_on_stream()
        except BaseException as error:
            self._leave()
            if isinstance(error, PlatformError):
                raise CaptureError(f"{self.stream!r} cannot be captured: {error.code}") from error
            raise

    def _find_allocator(self) -> None:
        """Have the allocator in force made: with what it calls, another library's capture has nothing to do."""
        if self.is_external:
            self.device.captures.beside.call(allocator_in_force, self.device)
        else:
            allocator_in_force(self.device)

    def _begin_on_stream(self) -> None:
        if self.stream is None:
            return
        if not self.is_external:
            self.device.platform.begin_capture(self.stream.cuda_stream, self.device.ordinal, self.mode)
        self._scope = ScopedStream(self.stream, sync_enter=False)
        self._scope.__enter__()

    def end(self, *, discard: bool = False) -> Graph | None:
        """End, do what was postponed, and return the graph; nothing if it is to be discarded.

        Raises
        ------
        CaptureError
            If a call ended the capture before.
        """
        if self._scope is not None:
            self._scope.__exit__(None, None, None)
        try:
            handle = 0 if self.stream is None else self._end_on(self.stream)
        except AllotmentError as error:
            drop_blocks(self._recorded())
            self._leave()
            if isinstance(error, PlatformError):
                raise CaptureError(_explain(error.code)) from error
            raise
        graph = Graph(self.device, handle, self._recorded(), self._steps, self._kept, is_external=self.is_external)
        if discard:
            graph.close()
        self._leave()
        return None if discard else graph

    def _end_on(self, stream: Stream) -> int:
        with suppress(PlatformError):  # of a capture that is lost, which ending it tells
            for joined in self._joined.values():
                if joined is not stream:
                    self.device.platform.wait_for_stream(
                        stream.handle, joined.handle, self.device.ordinal, joined.device.ordinal
                    )
        if not self.is_external:
            return self.device.platform.end_capture(stream.handle, self.device.ordinal)
        if self.device.platform.capture_status(stream.handle, self.device.ordinal) is CaptureStatus.INVALIDATED:
            raise PlatformError(call="cudaStreamIsCapturing", code="cudaErrorStreamCaptureInvalidated")
        return 0

    def _recorded(self) -> list[GraphBlock]:
        for block in self._blocks:
            block.is_recording = False
        return self._blocks

    def _leave(self) -> None:
        due = self.device.captures.leave(self)
        self._settle_accounts()
        failures = [error for work in due if (error := _failure_of(work)) is not None]
        for error in failures:  # told when all are done: a warning may be an exception
            warnings.warn(
                f"a free that waited for the end of a capture failed: {error}", FreeFailedWarning, stacklevel=4
            )

    def _settle_accounts(self) -> None:
        for device in self.device.registry:
            for account in list(device.accounts.values()):
                settle(account)

    # What it covers

    def knows(self, stream: Stream) -> bool:
        """Return whether a stream is seen to be part of it, without asking the platform."""
        return self._joined.get(stream.handle) is not None

    def began_on(self, stream: Stream) -> bool:
        """Return whether it is this stream that was captured first."""
        return self.stream is not None and self.stream.handle == stream.handle

    def covers(self, stream: Stream) -> bool:
        """Return whether work on a stream becomes part of the graph; another library may have let it join."""
        if self.stream is None or stream.device.platform is not self.device.platform:
            return False
        if self.knows(stream):
            return True
        if not stream.handle or any(other.knows(stream) for other in self.device.captures.on_devices):
            return False
        status = stream.device.platform.capture_status(stream.handle, stream.device.ordinal)
        return status is CaptureStatus.ACTIVE

    def join(self, stream: Stream) -> None:
        """Note that a stream is part of it from now on; it comes back at the end."""
        self._joined[stream.handle] = stream

    def concerns(self, device: Device) -> bool:
        """Return whether a stream of a device is part of it."""
        return any(stream.device is device for stream in list(self._joined.values()))

    @property
    def is_strict(self) -> bool:
        """Whether calls of the running thread can end it that have nothing to do with it."""
        if self.mode is CaptureMode.THREAD_LOCAL:
            return self.thread == get_ident()
        return self.mode is CaptureMode.GLOBAL

    def side_stream(self, device: Device) -> Stream:
        """Return a stream of another device for captured work there."""
        with self._lock():
            if device not in self._sides:
                self._sides[device] = Stream(device, non_blocking=True)
            return self._sides[device]

    # What it owns

    def own(
        self,
        account: AccountedAllocator,
        ptr: int,
        nbytes: int,
        free: Callable[..., object],
        *stream: Stream,
        is_mapped: bool = False,
    ) -> None:
        """Note memory that the graph allocates, or that is there already: set apart for it, or made on the host."""
        block = GraphBlock(account, ptr, nbytes, free, stream, is_external=self.is_external)
        if self.stream is None or is_mapped:
            block.state = BlockState.MAPPED
        with self._lock():
            self._blocks.append(block)
        blocks_of(account).add(block)

    def private_pool(self, allocator: SupportsPrivatePools) -> PrivatePool:
        """Return the memory of an allocator that is set apart for the graph, as long as it lives."""
        with self._lock():
            if allocator not in self._pools:
                self._pools[allocator] = allocator.open_private_pool()
                self._kept.append(_Closing(self._pools[allocator]))
            return self._pools[allocator]

    def free(self, block: GraphBlock, stream: Stream) -> bool:
        """Make the free of a block part of the graph; return whether that could be done."""
        try:
            block.free(block.ptr, block.nbytes, stream)
        except Exception as error:
            if self.device.platform.error_from(error) is None:
                raise
            return False
        with self._lock():
            self._blocks = [other for other in self._blocks if other is not block]
        blocks_of(block.account).forget(block)
        return True

    def keep(self, thing: object) -> None:
        """Keep something alive that the captured work uses, as long as the graph lives."""
        self._kept.append(thing)

    def record(self, step: Callable[[], object]) -> None:
        """Make host work part of the graph, instead of doing it now."""
        self._steps.append(step)

    def settle(self, account: AccountedAllocator) -> None:
        """Let the calls of a new allocator go as captures want it."""
        settle(account)

    # What it refuses

    def refuse(self, problem: str, remedy: str) -> NoReturn:
        """Raise for something that the capture does not bear, before it was done."""
        raise CaptureError(f"{problem} {remedy}")

    def refuse_wait(self, what: str) -> NoReturn:
        """Raise for a wait that would end the capture."""
        self.refuse(
            f"waiting for {what}, or asking whether it is done, would end the graph capture on {self.device.alias!r}.",
            "Wait after it.",
        )


class _Closing:
    """Closes a private pool when the graph lets go of it."""

    def __init__(self, pool: PrivatePool) -> None:
        self._pool = pool

    def __del__(self) -> None:
        self._pool.close()


def _failure_of(work: Callable[[], object]) -> Exception | None:
    try:
        work()
    except Exception as error:  # noqa: BLE001 - the caller is long gone, and the next ones must be done
        return error
    return None


def _explain(code: str) -> str:
    reasons: dict[str, Any] = {
        "cudaErrorStreamCaptureInvalidated": "a call that it does not bear ended it: one that allocates with another "
        "allocator than a pool, that waits for the device, or that asks about captured work",
        "cudaErrorStreamCaptureUnjoined": "a stream that joined it did not come back: let the captured stream wait",
        "cudaErrorStreamCaptureWrongThread": "it was ended in another thread than it was begun in",
    }
    return f"the capture gave no graph: {reasons.get(code, code)}. Nothing of it can be launched."
