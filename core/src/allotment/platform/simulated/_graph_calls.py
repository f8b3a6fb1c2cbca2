"""The calls about capture, graphs and memory of other processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allotment.platform._values import CaptureMode, CaptureStatus, GraphMemory
from allotment.platform.simulated._calls import call
from allotment.platform.simulated._simulation import Simulation

if TYPE_CHECKING:
    from allotment.platform.simulated._owned_memory import GraphHeap


class GraphCalls(Simulation):
    """Capture, graphs, and handles for other processes."""

    @call("cudaStreamBeginCapture")
    def begin_capture(self, stream: int, ordinal: int, mode: CaptureMode) -> None:
        """Let later work of a stream become part of a graph."""
        self._captures.begin(self._stream(stream, ordinal), CaptureMode(mode))

    @call("cudaStreamEndCapture")
    def end_capture(self, stream: int, ordinal: int) -> int:
        """Return the graph of what a stream captured."""
        capture = self._captures.end(self._stream(stream, ordinal))
        return self._graphs.create(capture.nodes, capture.memory).handle

    @call("cudaStreamIsCapturing")
    def capture_status(self, stream: int, ordinal: int) -> CaptureStatus:
        """Return whether a stream is captured."""
        return self._captures.status(self._stream(stream, ordinal))

    @call("cudaThreadExchangeStreamCaptureMode", after_fault=True)
    def exchange_capture_mode(self, mode: CaptureMode) -> CaptureMode:
        """Set which captures the calling thread's own calls may end, and return what was set before."""
        thread = self._journal.thread
        before, thread.capture_mode = thread.capture_mode, CaptureMode(mode)
        return before

    @call("cudaGraphInstantiate")
    def instantiate_graph(self, graph: int, *, auto_free: bool = True) -> int:
        """Return a graph made executable.

        Without ``auto_free``, which is cudaGraphInstantiateFlagAutoFreeOnLaunch, a launch is refused while memory that
        an earlier one allocated is live.
        """
        return self._graphs.instantiate(graph, auto_free=auto_free).handle

    @call("cudaGraphLaunch")
    def launch_graph(self, executable: int, stream: int, ordinal: int) -> None:
        """Do a graph's work in the order of a stream, or make it part of the graph that the stream captures."""
        self._graphs.launch(executable, self._work_stream(stream, ordinal))

    @call("cudaGraphDestroy", can_wait=True)
    def destroy_graph(self, graph: int) -> None:
        """Destroy a graph."""
        self._graphs.destroy(graph)

    @call("cudaGraphExecDestroy", can_wait=True)
    def destroy_graph_executable(self, executable: int) -> None:
        """Destroy an executable graph; memory that it allocated stays until it is freed."""
        self._captures.check_unsafe()
        self._graphs.destroy_executable(executable)

    @call("cudaDeviceGetGraphMemAttribute")
    def graph_memory(self, ordinal: int) -> GraphMemory:
        """Return what graphs hold of a device's memory."""
        return self._graph_heap(ordinal).accounts()

    @call("cudaDeviceGraphMemTrim")
    def trim_graph_memory(self, ordinal: int) -> None:
        """Give back what is mapped for graphs and not in use."""
        self._graph_heap(ordinal).trim()

    @call("cudaIpcGetMemHandle")
    def ipc_handle(self, ptr: int) -> bytes:
        """Return the 64 bytes that stand for the cudaMalloc memory around an address."""
        return self._exchange.export(ptr)

    @call("cudaIpcOpenMemHandle")
    def open_ipc_handle(self, handle: bytes) -> int:
        """Return the address of memory that another simulated platform of this process allocated.

        Raises
        ------
        UnsupportedError
            If the handle comes from another process: simulated memory belongs to one.
        """
        return self._exchange.open(handle, self._current())

    @call("cudaIpcCloseMemHandle", can_wait=True)
    def close_ipc_handle(self, ptr: int) -> None:
        """Undo `open_ipc_handle`."""
        self._captures.check_unsafe()
        self._exchange.close_import(ptr)

    def _graph_heap(self, ordinal: int) -> GraphHeap:
        self._access.check_ordinal(ordinal)
        return self._memory.graph_heaps[ordinal]
