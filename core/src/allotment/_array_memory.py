"""What an array holds, in Python: the twin of ``_array_memory_native.c``, used where that was not compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from allotment._foreign_memory import report_lost_block

if TYPE_CHECKING:
    import numpy as np

    from allotment._layout import Shape
    from allotment.device import Device
    from allotment.layers.accounting import AccountedAllocator
    from allotment.memory_kind import MemoryKind


class ArrayMemory:
    """What an array holds, and how it gives its memory back.

    Parameters
    ----------
    ptr, shape, dtype, device, readonly
        As `Array` has them.
    account
        Who takes the memory back, once; ``None`` for memory of another owner.
    capacity
        The size that it was asked for.
    owner
        What keeps memory of another owner alive.
    strides
        The steps in bytes; ``None`` for elements that lie one after another.
    kind
        The kind of memory, as far as it is known.
    """

    __slots__ = (
        "_account",
        "_capacity",
        "_kind",
        "_owner",
        "_strides",
        "device",
        "dtype",
        "ptr",
        "readonly",
        "shape",
    )

    def __init__(
        self,
        ptr: int,
        shape: Shape,
        dtype: np.dtype[np.generic],
        device: Device,
        account: AccountedAllocator | None = None,
        capacity: int = 0,
        owner: object = None,
        strides: Shape | None = None,
        kind: MemoryKind | None = None,
        readonly: bool = False,
    ) -> None:
        self._account = account
        self._capacity = capacity
        self.ptr = ptr
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self._owner = owner
        self._strides = strides
        self._kind = kind
        self.readonly = readonly

    @classmethod
    def _viewing(
        cls, array: Self, ptr: int, shape: Shape, strides: Shape | None, dtype: np.dtype[np.generic], /
    ) -> Self:
        """Return a new array over memory of another one, which it keeps alive."""
        owner = array._owner if isinstance(array._owner, cls) else array
        return cls(ptr, shape, dtype, array.device, None, 0, owner, strides, array._kind, array.readonly)

    def __del__(self) -> None:
        try:
            account, self._account = self._account, None
        except AttributeError:  # it was never initialised
            return
        if account is not None:
            try:
                account.deallocate(self.ptr, self._capacity)
            except BaseException as error:  # noqa: BLE001 - nothing leaves a finaliser
                report_lost_block(self.ptr, self._capacity, f"allocator {account.name!r}", error)

    discard = __del__
    """Give the memory of an array back that nobody uses, though somebody may hold it: the frames of a traceback do."""
