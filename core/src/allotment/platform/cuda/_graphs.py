"""Stream capture, graphs, and memory of other processes."""

from __future__ import annotations

from typing import Final

from allotment.platform._values import CaptureMode, CaptureStatus, GraphMemory
from allotment.platform.cuda._calls import Calls
from allotment.platform.cuda._errors import reports

_LAZY_PEER_ACCESS: Final = 1
"""``cudaIpcMemLazyEnablePeerAccess``: the only way that memory of another process is opened."""


class Graphs(Calls):
    """The calls about capture, graphs and handles for other processes."""

    @reports("cudaStreamBeginCapture")
    def begin_capture(self, stream: int, ordinal: int, mode: CaptureMode) -> None:
        """Let later work of a stream become part of a graph instead of being done."""
        with self._on(ordinal):
            self._runtime.streamBeginCapture(stream, int(mode))

    @reports("cudaStreamEndCapture")
    def end_capture(self, stream: int, ordinal: int) -> int:
        """Return the graph of what a stream captured. The stream works again, even if this is refused."""
        with self._on(ordinal):
            return int(self._runtime.streamEndCapture(stream))

    def capture_status(self, stream: int, ordinal: int) -> CaptureStatus:
        """Return whether a stream is captured. Ends no capture."""
        with self._on(ordinal):
            return CaptureStatus(self._bindings.capture_status(stream))

    def exchange_capture_mode(self, mode: CaptureMode) -> CaptureMode:
        """Set which captures the calling thread's own calls may end, and return what was set before."""
        return CaptureMode(self._bindings.exchange_capture_mode(int(mode)))

    def instantiate_graph(self, graph: int) -> int:
        """Return a graph made executable. Each launch first frees memory that an earlier one left allocated."""
        return self._bindings.instantiate_graph(graph)  # CuPy has no flags for it

    @reports("cudaGraphLaunch")
    def launch_graph(self, executable: int, stream: int, ordinal: int) -> None:
        """Do a graph's work in the order of a stream."""
        with self._on(ordinal):
            self._runtime.graphLaunch(executable, stream)

    @reports("cudaGraphDestroy")
    def destroy_graph(self, graph: int) -> None:
        """Destroy a graph; its executables stay, and so does memory that they allocated."""
        self._runtime.graphDestroy(graph)

    @reports("cudaGraphExecDestroy")
    def destroy_graph_executable(self, executable: int) -> None:
        """Destroy an executable graph; memory that it allocated stays until it is freed."""
        self._runtime.graphExecDestroy(executable)

    def graph_memory(self, ordinal: int) -> GraphMemory:
        """Return what graphs hold of a device's memory."""
        return GraphMemory(*self._bindings.graph_memory(ordinal))

    def trim_graph_memory(self, ordinal: int) -> None:
        """Give back what is mapped for graphs and not in use."""
        self._bindings.trim_graph_memory(ordinal)

    @reports("cudaIpcGetMemHandle")
    def ipc_handle(self, ptr: int) -> bytes:
        """Return the 64 bytes by which another process may open the allocation around an address."""
        return bytes(self._runtime.ipcGetMemHandle(ptr))

    @reports("cudaIpcOpenMemHandle")
    def open_ipc_handle(self, handle: bytes) -> int:
        """Return the address, for the current device, of memory that another process allocated."""
        return int(self._runtime.ipcOpenMemHandle(handle, _LAZY_PEER_ACCESS))

    @reports("cudaIpcCloseMemHandle")
    def close_ipc_handle(self, ptr: int) -> None:
        """Undo `open_ipc_handle`."""
        self._runtime.ipcCloseMemHandle(ptr)
