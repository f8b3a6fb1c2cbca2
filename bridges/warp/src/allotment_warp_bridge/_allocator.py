"""What Warp calls for the memory of one device."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar

from allotment import InvalidPointerError, MemoryKind, OutOfMemoryError
from allotment.bridges import captured_unknown_to_us

if TYPE_CHECKING:
    from allotment import AccountedAllocator, Delivery, Device, Stream


class AllotmentWarpAllocator:
    """An allocator by Warp's protocol, which draws one device's memory from Allotment.

    Parameters
    ----------
    device
        Warp's device.
    delivery
        What is drawn from.
    kinds
        Warp's name of each kind of memory, ``warp.MemoryKind``.

    Attributes
    ----------
    device
        As given.

    Notes
    -----
    Memory that is allocated while Warp captures a graph belongs to the graph, and lives as long as it: Warp's own
    allocator of the device makes it. If Allotment follows the capture (`allotment.ScopedCapture` with
    ``external=True``), it is Allotment's matter, as in any capture.
    """

    deallocate_requires_context_guard: ClassVar = False
    """Frees make the device current themselves, where that is needed."""

    def __init__(self, device: Any, delivery: Delivery, kinds: Any) -> None:
        self.device = device
        self._delivery = delivery
        self._kinds = {kind: kinds[kind.name] for kind in MemoryKind}
        self._makers: dict[int, Any] = {}
        """What made each block: accounts and a stream; Warp's own allocator, of memory that belongs to a graph."""
        self._late: deque[tuple[AccountedAllocator, int, int, Stream]] = deque()
        delivery.tells_streams = False  # Warp's own pool frees in the order of the null stream

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.device!s}: {len(self._makers)} blocks from {self._delivery.source}>"

    @property
    def _ours(self) -> Device:
        return self._delivery.device(self.device.ordinal)

    @property
    def memory_kind(self) -> Any:
        """The kind of memory that an allocation would be of now, for Warp's access checks."""
        if self.device.captures and not self._ours.is_capturing:  # those of Warp, which are known without a call
            return self.device.current_allocator.memory_kind
        account = self._delivery.account(self._ours)
        # Warp takes device memory to be reached with peer access, and mapped memory is reached by its mapping alone.
        kind = MemoryKind.UNKNOWN if account.traits.mapped else account.memory_kind
        return self._kinds[kind]

    def _current_stream(self, device: Device) -> Stream:
        theirs = self.device.stream
        return self._delivery.stream(device, theirs.cuda_stream or 0, theirs)

    def _is_graph_s(self, stream: Stream) -> bool:
        """Return whether work on a stream would be part of a graph that Warp, or another library, captures."""
        if self.device.captures:
            return not stream.device.is_capturing
        return captured_unknown_to_us(stream)

    def allocate(self, size_in_bytes: int) -> int:
        """Return a new block for the work of Warp's current stream of the device.

        Raises
        ------
        RuntimeError
            As Warp's own allocators raise it, if the memory is not to be had; the cause is Allotment's error.
        """
        ours = self._ours
        stream = self._current_stream(ours)
        if self._is_graph_s(stream):
            own = self.device.current_allocator
            ptr = int(own.allocate(size_in_bytes))
            self._makers[ptr] = own
            return ptr
        if self._late:
            self.settle()
        account = self._delivery.account(ours)
        try:
            ptr = account.allocate_on(size_in_bytes, stream)
        except OutOfMemoryError as error:
            message = f"Failed to allocate {size_in_bytes} bytes on device '{self.device!s}': {error}"
            raise RuntimeError(message) from error
        if ptr:
            self._makers[ptr] = account, stream
        return ptr

    def deallocate(self, ptr: int, size_in_bytes: int) -> None:
        """Take a block back to the allocator that made it; while a graph is captured, after that.

        Raises
        ------
        InvalidPointerError
            If no such block is handed out.
        """
        if not ptr:
            return
        try:
            maker = self._makers.pop(ptr)
        except KeyError:
            raise InvalidPointerError(pointer=ptr, allocator="the bridge to warp") from None
        if not isinstance(maker, tuple):
            maker.deallocate(ptr, size_in_bytes)
            return
        account, stream = maker
        if self._has_to_wait(account.device):
            self._late.append((account, ptr, size_in_bytes, stream))
            return
        if self._late:
            self.settle()
        self._delivery.give_back(account, ptr, size_in_bytes, stream)

    def settle(self) -> None:
        """Take back the blocks that were dropped during a capture, if none is under way any more."""
        while self._late and not self._has_to_wait(self._ours):
            try:
                block = self._late.popleft()
            except IndexError:  # another thread took the last one
                return
            self._delivery.give_back(*block)

    def _has_to_wait(self, device: Device) -> bool:
        return not device.is_retired and self._is_graph_s(self._current_stream(device))
