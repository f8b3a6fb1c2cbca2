"""Graphs: captured work that can be done again and again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from allotment.memory_kind import MemoryKind
from allotment.platform.simulated._errors import INVALID_VALUE, NOT_SUPPORTED, Refused
from allotment.platform.simulated._owned_memory import OwnedBlock, check_live

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from allotment.platform.simulated._capture import Node
    from allotment.platform.simulated._memory import Memory
    from allotment.platform.simulated._owned_memory import OwnedMemory
    from allotment.platform.simulated._stream import Handles, Stream, Work


@dataclass(slots=True, eq=False)
class Graph:
    """What was captured; ``executables`` counts how many there are of it."""

    handle: int
    nodes: list[Node]
    memory: OwnedMemory
    executables: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Executable:
    """A graph that can be launched. With ``auto_free``, a launch frees what an earlier one left allocated."""

    handle: int
    graph: Graph
    nodes: tuple[Node, ...]
    auto_free: bool

    def run(self) -> None:
        """Do the work in the order in which it was captured, which is one that its dependencies allow."""
        for node in self.nodes:
            node.work()


class Graphs:
    """The graphs of a process.

    Parameters
    ----------
    memory
        The live blocks.
    handles
        Where handles come from.
    launch
        Queues work of a graph on a stream; what it raises is a kernel's fault.
    """

    def __init__(self, memory: Memory, handles: Handles, launch: Callable[[Work, Stream], None]) -> None:
        self._memory = memory
        self._handles = handles
        self._launch = launch
        self._graphs: dict[int, Graph] = {}
        self._executables: dict[int, Executable] = {}

    def create(self, nodes: list[Node], memory: OwnedMemory) -> Graph:
        """Return a new graph."""
        graph = Graph(self._handles.take(), nodes, memory)
        self._graphs[graph.handle] = graph
        return graph

    def allocate(self, nbytes: int, pool: int, stream: Stream) -> int:
        """Return the address of memory that the graph captured on a stream will own; 0 for no bytes."""
        source = self._memory.pool(pool)
        capture = stream.capture
        assert capture is not None
        if source.kind is MemoryKind.PINNED:
            raise Refused(NOT_SUPPORTED, "a graph cannot own memory of the host")
        if nbytes == 0:
            return 0
        heap = self._memory.graph_heaps[source.ordinal]
        readers = range(len(self._memory.devices)) if source.kind is MemoryKind.CUDA_MANAGED else source.readers
        block = capture.memory.allocate(heap, nbytes, readers, capture.history(stream))
        capture.add(stream, block.pass_in)
        return block.ptr

    def free(self, ptr: int, stream: Stream) -> None:
        """Let the graph captured on a stream free memory of its own, or of a graph that was launched."""
        capture = stream.capture
        assert capture is not None
        own = capture.memory.around(ptr)
        if own is not None and own.ptr == ptr and not own.is_passing:
            capture.memory.free(own, capture.add(stream, own.pass_out))
            return
        block = self._memory.allocations.at(ptr)
        if ptr and (block is None or not isinstance(block.source, OwnedBlock)):
            raise Refused(INVALID_VALUE, f"{ptr:#x} is not memory of a graph, which is all that a graph can free")
        if block is not None and isinstance(block.source, OwnedBlock):
            capture.memory.released_elsewhere.append(block.source)
            capture.add(stream, _nothing)

    def graph(self, handle: int) -> Graph:
        """Return the graph of a handle."""
        if handle not in self._graphs:
            raise Refused(INVALID_VALUE, f"there is no graph {handle:#x}")
        return self._graphs[handle]

    def destroy(self, handle: int) -> None:
        """Destroy a graph; executables of it stay."""
        graph = self.graph(handle)
        del self._graphs[handle]
        self._handles.give_back(handle)
        graph.memory.drop()

    def instantiate(self, handle: int, *, auto_free: bool) -> Executable:
        """Return an executable of a graph; there is one at a time if the graph owns memory."""
        graph = self.graph(handle)
        if graph.memory and graph.executables:
            raise Refused(NOT_SUPPORTED, "a graph that owns memory has an executable already")
        executable = Executable(self._handles.take(), graph, tuple(graph.nodes), auto_free)
        self._executables[executable.handle] = executable
        graph.executables += 1
        graph.memory.hold()
        return executable

    def clone(self, handle: int) -> Graph:
        """Return a copy of a graph that owns no memory."""
        graph = self.graph(handle)
        if graph.memory:
            raise Refused(NOT_SUPPORTED, "a graph that owns memory cannot be copied")
        return self.create(list(graph.nodes), type(graph.memory)())

    def executable(self, handle: int) -> Executable:
        """Return the executable of a handle."""
        if handle not in self._executables:
            raise Refused(INVALID_VALUE, f"there is no executable graph {handle:#x}")
        return self._executables[handle]

    def destroy_executable(self, handle: int) -> None:
        """Destroy an executable; memory that it allocated stays until it is freed."""
        executable = self.executable(handle)
        del self._executables[handle]
        self._handles.give_back(handle)
        executable.graph.executables -= 1
        executable.graph.memory.drop()

    def launch(self, handle: int, stream: Stream) -> None:
        """Do a graph's work in the order of a stream."""
        executable = self.executable(handle)
        owned = executable.graph.memory
        if stream.capture is not None:
            if owned:
                raise Refused(NOT_SUPPORTED, "a graph that owns memory cannot be part of another")
            stream.capture.add(stream, executable.run)
            return
        left = [block for block in owned.blocks if block.is_live]
        if left and not executable.auto_free:
            raise Refused(INVALID_VALUE, "memory that an earlier launch allocated has not been freed")
        check_live(owned.released_elsewhere)
        _bind(owned.blocks)
        for block in left:
            self._memory.release(block.allocation, stream)
        for block in owned.blocks:
            if not block.is_passing:
                block.appear()
        self._launch(_checked(executable), stream)
        for block in owned.released_elsewhere:
            self._memory.release(block.allocation, stream)


def _checked(executable: Executable) -> Work:
    """Return the work of a launch: the graph's, or the fault that it meets."""
    passing = [block for block in executable.graph.memory.blocks if block.is_passing]
    try:
        for node in executable.nodes:
            if node.check is not None:
                node.check()
    except Refused as refused:
        return partial(_fault, refused)
    return partial(_run, executable, passing)


def _nothing() -> None:
    """Do what a node does that only stands for a free of other memory, which the launch itself makes."""


def _fault(refused: Refused) -> None:
    raise refused


def _run(executable: Executable, passing: Sequence[OwnedBlock]) -> None:
    try:
        executable.run()
    finally:
        for block in passing:
            block.unbind()


def _bind(blocks: Sequence[OwnedBlock]) -> None:
    bound: list[OwnedBlock] = []
    try:
        for block in blocks:
            block.bind()
            bound.append(block)
    except Refused:
        for block in bound:
            block.unbind()
        raise
