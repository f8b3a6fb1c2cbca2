"""Who receives what PyTorch asks of the functions in C, as long as the process lives."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from threading import RLock
from typing import TYPE_CHECKING, Final, Protocol

from allotment import BridgeError, OutOfMemoryError, get_cuda_devices
from allotment.bridges import c_callbacks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from allotment import AccountedAllocator, Delivery, Stream


class Source(Protocol):
    """What an installed bridge draws from, and how."""

    delivery: Delivery

    @property
    def served(self) -> Mapping[int, AccountedAllocator]:
        """What serves devices in C, by their numbers: its blocks are its own to find."""
        ...

    def allocate(self, size: int, ordinal: int, handle: int) -> tuple[AccountedAllocator, int, Stream]:
        """Return an allocator, the address of a new block of it, and the stream that this is for."""
        ...

    def trim(self) -> None:
        """Give idle memory back."""
        ...


@dataclass(frozen=True, slots=True)
class Block:
    """A block that PyTorch has, and where it goes back to."""

    delivery: Delivery
    account: AccountedAllocator
    size: int
    stream: Stream

    def give_back(self, ptr: int) -> None:
        """Take it back, raising nothing."""
        self.delivery.give_back(self.account, ptr, self.size, self.stream)


class Receiver:
    """Serves PyTorch's calls from the source in force, and gives each block back to the allocator that made it."""

    def __init__(self) -> None:
        self.source: Source | None = None
        self.quiet = RLock()
        """Held while a CUDA graph begins to be captured, and while something is done that would end a capture."""
        self.captures = 0
        """How many CUDA graphs PyTorch captures: the device must not be waited for."""
        self.refusal: OutOfMemoryError | None = None
        self._blocks: dict[int, Block] = {}
        self._freed: list[int] = []
        self._lock = RLock()

    def draw_from(self, source: Source) -> None:
        """Serve later calls from a source."""
        self.source = source
        c_callbacks().connect(self)

    # What PyTorch calls, in any thread

    def allocate(self, size: int, ordinal: int, handle: int) -> int:
        """Return the address of a new block."""
        self.settle()
        source = self.source
        if source is None:
            raise BridgeError(bridge="torch", cause="it is not installed")
        try:
            account, ptr, stream = source.allocate(size, ordinal, handle)
        except OutOfMemoryError as error:
            self.refusal = copy(error)  # without its frames, which hold tensors
            # That PyTorch's own begins so is what programs look for.
            raise MemoryError(f"CUDA out of memory. {str(error).removeprefix('out of memory: ')}") from error
        if ordinal not in source.served:
            self._blocks[ptr] = Block(source.delivery, account, size, stream)
        return ptr

    def free(self, ptr: int) -> None:
        """Take a block back in the order of its stream."""
        self._blocks.pop(ptr).give_back(ptr)

    def settle(self) -> None:
        """Take the blocks back that PyTorch freed with its locks held, once the device has done all work on them."""
        with self._lock:
            self._freed += c_callbacks().take_freed()
            if not self._freed or self.captures or any(device.captures.on_devices for device in get_cuda_devices()):
                return
            freed, self._freed = self._freed, []
        blocks = {ptr: self._blocks.pop(ptr) for ptr in freed if ptr in self._blocks}
        for device in {block.stream.device for block in blocks.values()}:
            if not device.is_retired:
                device.synchronize()
        for ptr, block in blocks.items():
            block.give_back(ptr)

    def record_use(self, ptr: int, handle: int) -> None:
        """Note that the present work of a stream uses a block."""
        source, account = self.source, self._account_of(ptr)
        if source is not None and account is not None:
            account.record_use(ptr, source.delivery.stream(account.device, handle))

    def _account_of(self, ptr: int) -> AccountedAllocator | None:
        block = self._blocks.get(ptr)
        if block is not None:
            return block.account
        served = self.source.served.values() if self.source is not None else ()
        return next((account for account in served if account.is_live(ptr)), None)

    def trim(self) -> None:
        """Give idle memory back."""
        if self.source is not None and not self.captures:
            self.source.trim()


RECEIVER: Final = Receiver()


def last_refusal() -> OutOfMemoryError | None:
    """Return why Allotment last had no memory for PyTorch, which itself says only what it asked for."""
    return RECEIVER.refusal
