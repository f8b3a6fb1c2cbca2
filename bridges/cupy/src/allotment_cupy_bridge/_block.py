"""Memory that CuPy holds. CuPy is imported with this module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from cupy.cuda.memory import UnownedMemory

if TYPE_CHECKING:
    from allotment import AccountedAllocator, Delivery, Stream


class Block(UnownedMemory):  # type: ignore[misc]  # CuPy is not typed
    """A block of an allocator, which goes back to it once, with the last array over it.

    To CuPy it is memory of another owner, of a device that is told: CuPy need not ask the driver for it.
    """

    __slots__ = ("_source",)
    _source: tuple[Delivery, AccountedAllocator, Stream]

    @classmethod
    def of(
        cls, delivery: Delivery, account: AccountedAllocator, ptr: int, size: int, stream: Stream, ordinal: int
    ) -> Self:
        """Return a new block, or give the memory back that there can be none for."""
        source = delivery, account, stream
        try:
            block: Any = cls(ptr, size, None, ordinal)
            block._source = source
        except BaseException:
            account.deallocate(ptr, size)
            raise
        made: Self = block
        return made

    def __del__(self) -> None:
        try:
            delivery, account, stream = self._source
        except AttributeError:  # it was never made
            return
        delivery.give_back(account, self.ptr, self.size, stream)
