"""Memory that was allocated inside a capture, and belongs to the graph and to the array that holds it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from allotment._locks import RenewedLock
from allotment.errors import CaptureError
from allotment.memory_kind import MemoryKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from allotment.layers.accounting import AccountedAllocator
    from allotment.stream import Stream


class BlockState(Enum):
    """What there is of a block."""

    PROMISED = "promised"
    """An address that the graph will put memory at when it is first launched."""
    MAPPED = "mapped"
    """Memory: a graph that allocates it was launched, or it is the host's."""
    VOID = "void"
    """Nothing, and never will be: the capture failed, or its graph went without a launch."""


@dataclass(slots=True, eq=False)
class GraphBlock:
    """A block that a graph allocates.

    Parameters
    ----------
    account
        The accounts of the allocator that it was asked of.
    ptr, nbytes
        Its address, which every launch of the graph keeps, and its size.
    free
        The allocator's own call that frees it.
    stream
        In whose order it is freed: that of the latest launch. Empty for memory of the host.
    state
        What there is of it.
    is_external
        Whether another library launches the graph, so that only the platform knows.
    is_recording
        Whether the capture is under way.
    is_held
        Whether an array holds it.
    is_owned
        Whether a graph owns it: an executable would allocate it again.
    """

    account: AccountedAllocator
    ptr: int
    nbytes: int
    free: Callable[..., object]
    stream: tuple[Stream, ...] = ()
    state: BlockState = BlockState.PROMISED
    is_external: bool = False
    is_recording: bool = True
    is_held: bool = True
    is_owned: bool = True

    @property
    def is_mapped(self) -> bool:
        """Whether there is memory."""
        if self.state is BlockState.PROMISED and self.is_external:
            attributes = self.account.device.platform.pointer_attributes(self.ptr)
            return attributes.kind is not MemoryKind.UNKNOWN
        return self.state is BlockState.MAPPED

    def require_memory(self) -> None:
        """Raise `CaptureError` if there is no memory, and say whether there will be."""
        if self.is_mapped:
            return
        if self.state is BlockState.VOID:
            raise CaptureError(
                f"the array at {self.ptr:#x} has no memory: the capture that made it failed, or its graph was thrown "
                "away before it was launched"
            )
        raise CaptureError(
            f"the array at {self.ptr:#x} has no memory yet: it was made while a graph was captured. "
            "Launch the graph first."
        )

    def give_back(self) -> None:
        """Free it."""
        if self.is_mapped:
            self.free(self.ptr, self.nbytes, *self.stream)


@dataclass(slots=True, eq=False)
class GraphBlocks:
    """The blocks of all graphs that came from one allocator. Each is freed when both array and graph are gone.

    Parameters
    ----------
    settle
        Lets the allocator's calls go as its graphs want it; called when the last block is gone.
    """

    settle: Callable[[], object]
    _lock: RenewedLock = field(default_factory=RenewedLock)  # reentrant: dropping a graph drops arrays
    _blocks: dict[int, GraphBlock] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def find(self, ptr: int) -> GraphBlock | None:
        """Return the block at an address."""
        return self._blocks.get(ptr)

    def add(self, block: GraphBlock) -> None:
        """Note a new block."""
        with self._lock():
            self._blocks[block.ptr] = block

    def forget(self, block: GraphBlock) -> None:
        """Forget a block: there is nothing left to free."""
        with self._lock():
            if self._blocks.get(block.ptr) is block:
                del self._blocks[block.ptr]
            if self._blocks:
                return
        self.settle()

    def drop_array(self, block: GraphBlock) -> None:
        """Free the block of an array that is gone, unless a graph owns it."""
        with self._lock():
            block.is_held = False
            is_unused = not block.is_owned
        if is_unused:
            self._free(block)

    def drop_graph(self, blocks: Iterable[GraphBlock]) -> None:
        """Free the blocks of a graph that is gone, but for those that an array holds."""
        unused = []
        with self._lock():
            for block in blocks:
                block.is_owned = False
                if not block.is_mapped and not (block.is_external and block.is_held):
                    block.state = BlockState.VOID
                if not block.is_held:
                    unused.append(block)
        for block in unused:
            self._free(block)

    def _free(self, block: GraphBlock) -> None:
        self.forget(block)
        if block.state is not BlockState.VOID:
            block.account.device.captures.postpone(block.give_back)
