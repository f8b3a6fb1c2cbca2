"""Memory from another allocator where there is no more from the first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from allotment.errors import CaptureError, OutOfMemoryError
from allotment.layers.layer import Calls, MemoryShortageError, Place, is_shortage
from allotment.memory_kind import MemoryKind
from allotment.stream import stream_in_force

if TYPE_CHECKING:
    from allotment.allocator import AllocatorTraits
    from allotment.device import Device
    from allotment.layers.accounting import AccountedAllocator
    from allotment.layers.layer import FindAllocator
    from allotment.stream import Stream


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackOptions:
    """Options of the layer ``fallback``.

    Parameters
    ----------
    to
        The name of the allocator that is asked when there is no more memory.
    """

    to: str


class Fallback:
    """Asks another allocator when there is no more memory, and gives each block back to whoever made it.

    A block of the other allocator is in the accounts of both: of the one that was asked, and of the one that gave it.

    Parameters
    ----------
    options
        See `FallbackOptions`.
    device
        The device of the account.

    Attributes
    ----------
    other : AccountedAllocator
        The other allocator.
    """

    name: ClassVar = "fallback"
    Options: ClassVar = FallbackOptions
    place: ClassVar = Place.FALLBACK
    other: AccountedAllocator

    def __init__(self, options: FallbackOptions, device: Device) -> None:
        self._to, self._device = options.to, device
        self._blocks: set[int] = set()

    @property
    def blocks(self) -> int:
        """The number of live blocks of the other allocator."""
        return len(self._blocks)

    def connect(self, find: FindAllocator) -> None:
        """Find the other allocator."""
        self.other = find(self._to, self._device)

    def kind_before(self, kind: MemoryKind, traits: AllocatorTraits) -> MemoryKind:
        """Return the kind of both allocators' memory, if access to it is a question of the same grants."""
        other = self.other
        is_same = other.declared_kind is kind and other.traits.mapped is traits.mapped
        return kind if is_same and kind is not MemoryKind.CUDA_MEMPOOL else MemoryKind.UNKNOWN

    def wrap(self, calls: Calls, account: AccountedAllocator) -> Calls:
        """Return the calls with the other allocator's beside them."""
        inner, blocks, platform = calls, self._blocks, self._device.platform
        most = self._device.total_memory if account.is_on_device else None

        def allocate(size: int, *stream: Stream) -> int:
            if most is not None and size > most:
                return self._allocate(size, MemoryShortageError("That is more than the device has in all."))
            try:
                return inner.allocate(size, *stream)
            except Exception as error:
                if not is_shortage(error, platform):
                    raise
                return self._allocate(size, error)

        def deallocate(ptr: int, size: int, *stream: Stream) -> None:
            if ptr in blocks:
                self._deallocate(ptr, size, *stream)
            else:
                inner.deallocate(ptr, size, *stream)

        def record_use(ptr: int, stream: Stream) -> None:
            (self.other.record_use if ptr in blocks else inner.record_use)(ptr, stream)

        return Calls(allocate, deallocate, record_use)

    def _allocate(self, size: int, shortage: Exception) -> int:
        try:
            ptr = self.other.allocate(size)
        except (OutOfMemoryError, CaptureError) as error:
            raise MemoryShortageError.after(shortage, f"allocator {self.other.name!r}") from error
        self._blocks.add(ptr)
        return ptr

    def _deallocate(self, ptr: int, size: int, *stream: Stream) -> None:
        other = self.other
        if self._device.is_cuda and not other.takes_streams:
            other.record_use(ptr, stream[0] if stream else stream_in_force(self._device))
        self._blocks.remove(ptr)  # before the other allocator has it: it may hand the address out again
        try:
            other.deallocate(ptr, size)
        except BaseException:
            self._blocks.add(ptr)
            raise
