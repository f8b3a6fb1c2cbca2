"""The blocks that Numba has in one context."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from allotment import AccountedAllocator, Delivery, Stream

NULL_STREAM: Final = 0


class Block:
    """Memory that Numba has, and where it returns to."""

    __slots__ = ("account", "delivery", "nbytes", "ptr", "stream")

    def __init__(self, delivery: Delivery, account: AccountedAllocator, ptr: int, nbytes: int, stream: Stream) -> None:
        self.delivery, self.account, self.ptr, self.nbytes, self.stream = delivery, account, ptr, nbytes, stream

    def holds(self, address: int) -> bool:
        """Return whether an address is inside of it."""
        return self.ptr <= address < self.ptr + self.nbytes

    def give_back(self) -> None:
        """Take it back, raising nothing."""
        self.delivery.give_back(self.account, self.ptr, self.nbytes, self.stream)


class Blocks:
    """The blocks that are out in one context. Each goes back once: with its pointer, or when the context is reset."""

    def __init__(self) -> None:
        self._out: set[Block] = set()
        self._deferred: deque[Block] = deque()

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
            block.give_back()

    def settle(self) -> None:
        """Take back the blocks that were deferred."""
        while self._deferred:
            try:
                block = self._deferred.popleft()
            except IndexError:  # another thread took the last one
                return
            block.give_back()

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
            block.give_back()
        return accounts
