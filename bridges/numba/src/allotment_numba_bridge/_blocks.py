"""The blocks that Numba has in one context."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from allotment.bridges import beside_captures

if TYPE_CHECKING:
    from allotment import AccountedAllocator, Delivery, Device, Stream

NULL_STREAM: Final = 0


class Block:
    """Memory that Numba has, and where it returns to."""

    __slots__ = ("account", "delivery", "nbytes", "ptr", "stream")

    def __init__(self, delivery: Delivery, account: AccountedAllocator, ptr: int, nbytes: int, stream: Stream) -> None:
        self.delivery, self.account, self.ptr, self.nbytes, self.stream = delivery, account, ptr, nbytes, stream

    def holds(self, address: int) -> bool:
        """Return whether an address is inside of it."""
        return self.ptr <= address < self.ptr + self.nbytes


class Blocks:
    """The blocks that are out in one context. Each goes back once: with its pointer, or when the context is reset."""

    def __init__(self) -> None:
        self._out: set[Block] = set()
        self._deferred: deque[Block] = deque()
        self._marks: dict[Device, int] = {}

    def __len__(self) -> int:
        return len(self._out)

    def add(self, block: Block) -> None:
        """Note a block that is handed out."""
        self._out.add(block)

    def find(self, address: int) -> Block | None:
        """Return the block that an address is in."""
        return next((block for block in tuple(self._out) if block.holds(address)), None)

    def take_back(self, block: Block, *, later: bool) -> None:
        """Take a block back in a finaliser, ``later`` not before `settle`. Nothing is raised."""
        try:
            self._out.remove(block)
        except KeyError:  # the context was reset before
            return
        if later:
            self._deferred.append(block)
        else:
            self._free(block)

    def settle(self) -> None:
        """Take back the blocks that were deferred."""
        while self._deferred:
            try:
                block = self._deferred.popleft()
            except IndexError:  # another thread took the last one
                return
            self._free(block)

    def clear(self) -> set[AccountedAllocator]:
        """Take back all blocks, whoever still points to them; return the accounts that they are of."""
        self.settle()
        accounts: set[AccountedAllocator] = set()
        while self._out:
            try:
                block = self._out.pop()
            except KeyError:
                break
            accounts.add(block.account)
            self._free(block)
        return accounts

    def _free(self, block: Block) -> None:
        device = block.account.device
        is_ordered = block.account.traits.stream_ordered and not (device.is_retired or device.is_capturing)
        if is_ordered and not block.delivery.is_captured(block.stream):
            beside_captures(device, self._order_after_all_work, device)
        block.delivery.give_back(block.account, block.ptr, block.nbytes, block.stream)

    def _order_after_all_work(self, device: Device) -> None:
        """Order what is queued from now on after what is queued already, on all streams that Numba makes.

        Numba does not tell on which streams an array was used, and its own frees wait for the device. A command to the
        null stream keeps order with every stream that is not a non-blocking one.
        """
        mark = self._marks.get(device)
        if mark is None:
            mark = self._marks[device] = device.platform.create_event(device.ordinal)
        device.platform.record_event(mark, NULL_STREAM, device.ordinal)
