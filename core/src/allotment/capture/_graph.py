"""Captured work that can be launched."""

from __future__ import annotations

import warnings
from functools import partial
from typing import TYPE_CHECKING

from allotment import _process
from allotment._graph_blocks import BlockState
from allotment._locks import RenewedLock
from allotment.errors import CaptureError, ClosedError, FreeFailedWarning, PlatformError
from allotment.stream import stream_in_force

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from allotment._graph_blocks import GraphBlock
    from allotment.device import Device
    from allotment.platform import Platform
    from allotment.stream import Stream


class Graph:
    """Work that was captured. Launch it with `launch` or `capture_launch`, as often as wanted.

    Memory that was allocated inside the capture belongs to the graph and to the arrays that hold it, and is freed when
    both are gone. Host memory that the work copies from or to is kept alive.

    Attributes
    ----------
    device : Device
        Where the work is done.
    launches : int
        How often it was launched.
    is_closed : bool
        Whether `close` was called.
    """

    __slots__ = (
        "__weakref__",
        "_blocks",
        "_executable",
        "_handle",
        "_is_external",
        "_kept",
        "_lock",
        "_steps",
        "_stream",
        "device",
        "is_closed",
        "launches",
    )

    def __init__(
        self,
        device: Device,
        handle: int,
        blocks: list[GraphBlock],
        steps: list[Callable[[], object]],
        kept: list[object],
        *,
        is_external: bool = False,
    ) -> None:
        self.device, self.launches, self.is_closed = device, 0, False
        self._lock = RenewedLock()  # reentrant: a step may launch, and a collection close
        self._handle, self._executable, self._is_external = handle, 0, is_external
        self._blocks, self._steps, self._kept = blocks, steps, kept
        self._stream: Stream | None = None

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"launched {self.launches} times"
        return f"<Graph on {self.device.alias!r}, {state}>"

    @property
    def owned_bytes(self) -> int:
        """The bytes of memory that the graph allocates, whether arrays hold it or not; 0 once it is closed.

        An allocator's accounts show what arrays hold, and its pool's reservation nothing of it.
        """
        return sum(block.nbytes for block in self._blocks)

    def launch(self, stream: Stream | None = None) -> None:
        """Do the work in the order of a stream; of the stream in force on the device if none is given.

        Raises
        ------
        ClosedError
            If the graph was closed.
        CaptureError
            If the stream belongs to another device or is being captured, or another library has the graph.
        OutOfMemoryError
            If the memory that the graph allocates is not to be had.
        """
        with self._lock():
            if self.is_closed:
                raise ClosedError(f"this graph on {self.device.alias!r} was closed")
            if self.device.is_cpu:
                self._launch_on_host()
            else:
                self._launch_on(stream or stream_in_force(self.device))
            self.launches += 1

    def _launch_on_host(self) -> None:
        capture = self.device.captures.of_host_work()
        if capture is not None:
            capture.record(self._run)
        else:
            self._run()

    def _run(self) -> None:
        for step in self._steps:
            step()

    def _launch_on(self, stream: Stream) -> None:
        self._require_launchable(stream)
        platform, relaxed = self.device.platform, self.device.captures.relaxed
        if not self._executable:
            self._executable = relaxed(platform.instantiate_graph, self._handle)
        try:
            relaxed(platform.launch_graph, self._executable, stream.cuda_stream, self.device.ordinal)
        except PlatformError as error:
            self._explain(error)
            raise
        self._stream = stream
        for block in self._blocks:
            block.state, block.stream = BlockState.MAPPED, (stream,)

    def _require_launchable(self, stream: Stream) -> None:
        if stream.device is not self.device:
            raise CaptureError(
                f"a graph on {self.device.alias!r} cannot be launched on a stream of {stream.device.alias!r}"
            )
        if self._is_external:
            raise CaptureError("another library captured this graph, and launches it")
        if self.device.captures.covering(stream) is not None:
            raise CaptureError("a graph cannot be launched inside a capture: launch it before or after")

    def _explain(self, error: PlatformError) -> None:
        """Raise `OutOfMemoryError` if that is what a failed launch means."""
        if error.is_out_of_memory and self._blocks:
            account = self._blocks[0].account
            raise account.out_of_memory(self.owned_bytes, hint="Each launch allocates what the graph owns.") from error

    def close(self) -> None:
        """Destroy the graph; memory that arrays still hold lives on. Closing it again does nothing.

        While another graph is captured, it waits for the end of that capture.
        """
        with self._lock():
            if self.is_closed:
                return
            self.is_closed = True
            blocks, self._blocks = self._blocks, []
            kept, self._kept = self._kept, []
            self._steps = []
        drop_blocks(blocks)
        if self.device.is_cuda and not self.device.is_retired:
            stream, self._stream = self._stream, None
            work = partial(_destroy, self.device.platform, self._executable, self._handle, stream, kept)
            self.device.captures.postpone(work)

    def __del__(self, is_running: Callable[[], bool] = _process.is_running) -> None:
        if getattr(self, "is_closed", True) or not is_running():
            return
        try:
            self.close()
        except Exception as error:  # noqa: BLE001 - nothing leaves a finaliser
            warnings.warn(f"a graph was not destroyed: {error}", FreeFailedWarning, stacklevel=2)


def _destroy(platform: Platform, executable: int, handle: int, stream: Stream | None, kept: list[object]) -> None:
    """Destroy a graph; host memory that its latest launch may still use goes when that is done."""
    if kept and stream is not None and not stream.is_closed:
        stream.synchronize()
    kept.clear()
    if executable:
        platform.destroy_graph_executable(executable)
    if handle:
        platform.destroy_graph(handle)


def drop_blocks(blocks: Iterable[GraphBlock]) -> None:
    """Free the memory of a graph that is gone, but for what arrays hold."""
    for block in blocks:
        if block.account.graph_blocks is not None:
            block.account.graph_blocks.drop_graph([block])
