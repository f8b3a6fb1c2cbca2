"""Calls of CUDA that `Platform` has no need of, and a comparison with the hardware does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allotment.platform.simulated._calls import call
from allotment.platform.simulated._capture import Node
from allotment.platform.simulated._errors import INVALID_VALUE, NOT_SUPPORTED, Refused
from allotment.platform.simulated._owned_memory import OwnedMemory
from allotment.platform.simulated._simulation import Simulation

if TYPE_CHECKING:
    from allotment.memory_kind import MemoryKind

DEVICES_UNAVAILABLE = "cudaErrorDevicesUnavailable"


class FurtherCalls(Simulation):
    """Host memory of others, current pools, pools of other kinds, graphs made by hand, copies in a given direction."""

    @call("cudaHostRegister")
    def host_register(self, ptr: int, nbytes: int) -> None:
        """Page-lock host memory of others."""
        self._captures.check_unsafe()
        self._memory.host_register(ptr, nbytes, self._current())

    @call("cudaHostUnregister")
    def host_unregister(self, ptr: int) -> None:
        """Undo `host_register`."""
        self._captures.check_unsafe()
        self._memory.host_unregister(ptr)

    # Pools

    @call("cudaMemPoolCreate")
    def create_pool_of(self, kind: MemoryKind, max_bytes: int = 0) -> int:
        """Return a new pool of pinned, of managed or of device 0's memory; ``max_bytes`` of 0 sets no limit."""
        self._captures.check_unsafe()
        self._current()
        return self._memory.create_pool_of(kind, max_bytes).handle

    @call("cudaDeviceGetMemPool", after_fault=True)
    def current_pool(self, ordinal: int) -> int:
        """Return the pool that cudaMallocAsync draws on."""
        self._access.check_ordinal(ordinal)
        return self._memory.current_pool(ordinal).handle

    @call("cudaDeviceSetMemPool")
    def set_current_pool(self, ordinal: int, pool: int) -> None:
        """Choose the pool that cudaMallocAsync draws on."""
        self._access.check_ordinal(ordinal)
        self._captures.check_unsafe()
        self._memory.set_current_pool(ordinal, self._memory.pool(pool))

    @call("cudaMemPoolSetAccess")
    def set_pool_read_only(self, pool: int, ordinal: int) -> None:
        """Refuse access for reading alone, which CUDA has a flag for and does not support."""
        self._memory.pool(pool)
        raise Refused(NOT_SUPPORTED, f"device {ordinal} cannot be given access for reading alone")

    # Graphs

    @call("cudaGraphGetNodes")
    def graph_node_count(self, graph: int) -> int:
        """Return how many nodes a graph has."""
        return len(self._graphs.graph(graph).nodes)

    @call("cudaGraphCreate")
    def create_graph(self) -> int:
        """Return a new graph without nodes."""
        return self._graphs.create([], OwnedMemory()).handle

    @call("cudaGraphAddMemcpyNode1D")
    def add_copy_node(self, graph: int, dst: int, src: int, nbytes: int) -> None:
        """Add a copy to a graph, made by the current device."""
        node = Node(*self._transfers.copy_node(dst, src, nbytes, self._current()))
        self._graphs.graph(graph).nodes.append(node)

    @call("cudaGraphClone")
    def clone_graph(self, graph: int) -> int:
        """Return a copy of a graph."""
        return self._graphs.clone(graph).handle

    @call("cudaDeviceSetGraphMemAttribute")
    def reset_graph_memory_high(self, ordinal: int) -> None:
        """Lower the high marks of memory of graphs to what is held now."""
        self._access.check_ordinal(ordinal)
        self._memory.graph_heaps[ordinal].reset_high()

    # Contents

    @call("cudaMemcpyAsync")
    def copy_to_host(self, dst: int, src: int, nbytes: int, stream: int, ordinal: int) -> None:
        """Copy from memory that CUDA must know; `copy` takes an address it does not know for host memory."""
        self._check_known(src)
        self._transfers.copy(dst, src, nbytes, self._work_stream(stream, ordinal))

    @call("cudaMemcpyAsync")
    def copy_from_host(self, dst: int, src: int, nbytes: int, stream: int, ordinal: int) -> None:
        """Copy to memory that CUDA must know."""
        self._check_known(dst)
        self._transfers.copy(dst, src, nbytes, self._work_stream(stream, ordinal))

    @call("cudaMemcpyAsync")
    def copy_on_device(self, dst: int, src: int, nbytes: int, stream: int, ordinal: int) -> None:
        """Copy between memory that CUDA must know at both ends."""
        self._check_known(dst)
        self._check_known(src)
        self._transfers.copy(dst, src, nbytes, self._work_stream(stream, ordinal))

    # Devices

    @call("cudaDeviceReset", after_fault=True)
    def reset_device(self, ordinal: int) -> None:
        """Free what a device holds outside pools; after a fault, let no device be used any more."""
        self._access.check_ordinal(ordinal)
        if self._journal.fault is not None:
            self._journal.break_down(DEVICES_UNAVAILABLE)
            return
        self._streams.synchronize_device(ordinal)
        self._memory.reset_device(ordinal)
        self._contexts.discard(ordinal)

    def _check_known(self, ptr: int) -> None:
        if self._memory.allocations.around(ptr) is None:
            raise Refused(INVALID_VALUE, f"nothing is live at {ptr:#x}")
