"""The function that CuPy calls for memory. CuPy is imported with this module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import cupy
from cupy.cuda.memory import CFunctionAllocatorMemory, MemoryPointer, UnownedMemory

from allotment import AccountedAllocator, CClient, OutOfMemoryError, SupportsCFunctions, UnsupportedError
from allotment.bridges import captured_unknown_to_us
from allotment_cupy_bridge import _library
from allotment_cupy_bridge._block import Block

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment import Delivery

_clients: Final[WeakKeyDictionary[AccountedAllocator, CClient | None]] = WeakKeyDictionary()
"""The functions in C of an allocator; ``None`` of one that has none. They serve for ever."""


class Allocation:
    """Allocates for CuPy, on the device and the stream that are current in it.

    Parameters
    ----------
    delivery
        What to draw from.
    before
        CuPy's allocator before this one. While CuPy captures a stream and Allotment is not told, memory comes from
        there: from a pool of the driver it would become part of the graph, which could then not be launched twice
        while its arrays live, and other calls may end the capture.

    Attributes
    ----------
    malloc : callable
        Given a size in bytes, returns a ``cupy.cuda.MemoryPointer``. Where the allocator has functions in C and nothing
        stands before it, CuPy calls these.
    """

    def __init__(self, delivery: Delivery, before: Callable[[int], Any]) -> None:
        self._delivery, self._before = delivery, before
        self._current_device: Callable[[], int] = cupy.cuda.runtime.getDevice
        self._current_stream: Callable[[], Any] = cupy.cuda.get_current_stream
        self._is_capturing: Callable[[int], bool] = cupy.cuda.runtime.streamIsCapturing
        self.malloc: Callable[[int], Any] = delivery.express(
            self._malloc, self._current_device, _library.find_device_address()
        )

    def _malloc(self, size: int) -> Any:
        """Allocate in the general way.

        Raises
        ------
        cupy.cuda.memory.OutOfMemoryError
            If the memory is not to be had; its cause is the `OutOfMemoryError` of Allotment.
        """
        ordinal = self._current_device()
        delivery, device = self._delivery, self._delivery.device(ordinal)
        account, current = delivery.account(device), self._current_stream()
        if account.is_direct:
            self._open_lane(account)
        stream = delivery.stream(device, current.ptr, current)
        if captured_unknown_to_us(stream):
            return self._before(size)
        try:
            ptr = account.allocate_on(size, stream)
        except OutOfMemoryError as error:
            raise _as_cupy_tells_it(error) from error
        memory = Block.of(delivery, account, ptr, size, stream, ordinal) if ptr else UnownedMemory(0, 0, None, ordinal)
        return MemoryPointer(memory, 0)

    def _open_lane(self, account: AccountedAllocator) -> None:
        if self._delivery.has_lane(account):
            return
        if account not in _clients:
            _clients[account] = _client_of(account, self._owner_of)
        client = _clients[account]
        if client is not None:
            given = client.param, client.allocate, client.free, account.device.ordinal
            self._delivery.open_lane(account, CFunctionAllocatorMemory, given, MemoryPointer)

    def _owner_of(self, handle: int) -> Any:
        """Return the current stream if it has this handle, for an allocator that is about to call the driver."""
        current = self._current_stream()
        if current.ptr != handle:
            return None
        if self._is_capturing(handle):
            raise UnsupportedError("CuPy captures the current stream")
        return current


def _client_of(account: AccountedAllocator, find_owner: Callable[[int], Any]) -> CClient | None:
    find_stream, allocator = _library.find_stream_address(), account.allocator
    if not find_stream or not isinstance(allocator, SupportsCFunctions):
        return None
    try:
        return allocator.c_client(find_stream, find_owner)
    except UnsupportedError:
        return None


def _as_cupy_tells_it(error: OutOfMemoryError) -> MemoryError:
    """Return CuPy's own error, which says what ours says."""
    total = -1 if error.in_use is None else error.in_use
    told: MemoryError = cupy.cuda.memory.OutOfMemoryError(error.requested, total, error.limit or 0)
    told.args = (f"{told} {error}",)
    return told
