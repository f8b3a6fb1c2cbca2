"""Arrays: memory with a shape and a type, and the allocator that will take it back."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from allotment import _array_memory
from allotment._foreign_memory import ForeignMemory
from allotment._layout import (
    as_integers,
    broadcast_strides,
    contiguous_strides,
    element_type,
    index_view,
    infer_extent,
    is_contiguous,
)
from allotment._twins import preferred
from allotment.memory_kind import MemoryKind
from allotment.platform import HOST_LOCATION, StridedMemory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from allotment._array_memory import ArrayMemory
    from allotment._layout import Index, Shape, ShapeLike
    from allotment.device import Device, DeviceLike
    from allotment.layers.accounting import AccountedAllocator
    from allotment.stream import Stream
else:
    ArrayMemory = preferred(_array_memory).ArrayMemory


class Array(ArrayMemory):
    """An array in the memory of a device.

    Made by the factories (`empty`, `zeros`, `array`, …) and by slicing another array, not directly.

    `copy.copy` and `copy.deepcopy` make a contiguous copy, as of NumPy's arrays. A pickle holds the contents: an array
    of the host comes back on the host, one of a CUDA device on the default device of whoever reads it.

    Attributes
    ----------
    ptr : int
        The address of the first element; 0 if the array has no elements.
    shape : tuple of int
        The extent of each dimension.
    dtype : numpy.dtype
        The element type.
    device : Device
        The device that the memory belongs to.
    readonly : bool
        Whether the memory must not be written: it was shared so by another library.
    """

    __slots__ = ("__weakref__",)

    def __copy__(self) -> Array:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Array:
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        from allotment.copying import array

        return array, (self.numpy(), self.dtype, "cpu" if self.device.is_cpu else None)

    def __repr__(self) -> str:
        return f"<Array {self.dtype}{list(self.shape)} on {self.device.alias!r}, {self.memory_kind.name}>"

    def __str__(self) -> str:
        return str(self.numpy())

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without dimensions has no length")
        return self.shape[0]

    # Layout

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """The bytes of one element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return self.size * self.dtype.itemsize

    @property
    def strides(self) -> Shape:
        """The step in bytes of each dimension."""
        return self._strides if self._strides is not None else contiguous_strides(self.shape, self.dtype.itemsize)

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie one after another in C order."""
        return self._strides is None or is_contiguous(self.shape, self._strides, self.dtype.itemsize)

    # Memory

    @property
    def memory_kind(self) -> MemoryKind:
        """The kind of memory behind the array; of a view, that of the array it was taken from.

        What the allocator declares, or else what the platform says of the address, asked until it knows.
        """
        if isinstance(self._owner, Array):
            return self._owner.memory_kind
        if self._kind is None or (self._kind is MemoryKind.UNKNOWN and self.ptr):
            self._kind = observe_memory_kind(self.ptr, self.device)
        return self._kind

    @property
    def pinned(self) -> bool:
        """Whether the array is in page-locked host memory."""
        return self.memory_kind is MemoryKind.PINNED

    @property
    def allocator(self) -> Any:
        """The allocator that the memory came from and returns to; ``None`` for memory of another owner.

        An allocator chosen by name is an object with ``name``, ``statistics()`` and more; an object that was set by the
        user is that object.
        """
        account = self.account
        return None if account is None else account.public

    @property
    def account(self) -> AccountedAllocator | None:
        """The accounts that the memory is booked in; ``None`` for memory of another owner."""
        return self._owner.account if isinstance(self._owner, Array) else self._account

    @property
    def owner(self) -> object:
        """What keeps the memory alive: for a view the array it was taken from, for foreign memory its owner."""
        return self._owner.owner if isinstance(self._owner, ForeignMemory) else self._owner

    def elements(self) -> StridedMemory:
        """Return the elements as the platform's strided copies and fills take them."""
        ordinal = HOST_LOCATION if self.device.is_cpu else self.device.ordinal
        return StridedMemory(self.ptr, self.shape, self.strides, self.dtype, ordinal, self)

    @property
    def root(self) -> Array:
        """The array whose memory this is: itself, unless it is a view."""
        root = self
        while isinstance(root._owner, Array):
            root = root._owner
        return root

    def record_use(self, stream: Stream) -> None:
        """Tell the allocator that work on ``stream`` uses the memory, so that it is not reused before that is done."""
        if (account := self.account) is not None:
            account.record_use(self.root.ptr, stream)

    # Views

    def _view(self, ptr: int, shape: Shape, strides: Shape | None, dtype: np.dtype[np.generic] | None = None) -> Array:
        return _viewing(self, ptr, shape, strides, self.dtype if dtype is None else dtype)

    def __getitem__(self, key: Index) -> Array:
        """Return a view: integers, slices, ``...`` and ``None`` mean what they mean in NumPy."""
        offset, shape, strides = index_view(self.shape, self.strides, key)
        return self._view(0 if 0 in shape else self.ptr + offset, shape, strides)

    def __setitem__(self, key: Index, value: object) -> None:
        """Fill a view with a scalar, or copy an array into it, broadcast as in NumPy."""
        from allotment.copying import assign

        assign(self[key], value)

    def reshape(self, *shape: ShapeLike) -> Array:
        """Return a view with another shape.

        Parameters
        ----------
        *shape
            The new extents, one by one or as a tuple; one may be -1.

        Raises
        ------
        ValueError
            If the number of elements differs, or the array is not contiguous: copy it with `contiguous` first.
        """
        new_shape = infer_extent(as_integers(shape[0] if len(shape) == 1 else shape), self.size)  # type: ignore[arg-type]
        if not self.is_contiguous:
            raise ValueError("only a contiguous array can be reshaped in place: use .contiguous().reshape(...)")
        return self._view(self.ptr, new_shape, None)

    def flatten(self) -> Array:
        """Return a view with one dimension; the array must be contiguous."""
        return self.reshape(-1)

    def broadcast_to(self, shape: Shape) -> Array:
        """Return a view in which elements repeat along new dimensions and those of extent 1, as NumPy has it."""
        return self._view(0 if 0 in shape else self.ptr, shape, broadcast_strides(self.shape, self.strides, shape))

    def transpose(self, axes: tuple[int, ...] | None = None) -> Array:
        """Return a view with the dimensions in another order; reversed if none is given."""
        order = tuple(reversed(range(self.ndim))) if axes is None else axes
        if sorted(order) != list(range(self.ndim)):
            raise ValueError(f"{axes} is not an order of {self.ndim} dimensions")
        strides = self.strides
        return self._view(self.ptr, tuple(self.shape[i] for i in order), tuple(strides[i] for i in order))

    @property
    def T(self) -> Array:  # noqa: N802 - NumPy's name
        """The transposed view."""
        return self.transpose()

    def view(self, dtype: Any) -> Array:
        """Return a view of the same bytes as elements of another type of the same size."""
        new = element_type(dtype)
        if new.itemsize != self.dtype.itemsize:
            raise ValueError(f"elements of {new} do not have the size of {self.dtype}")
        return self._view(self.ptr, self.shape, self._strides, new)

    # Contents

    def fill_(self, value: object) -> Array:
        """Set all elements in the order of the stream in force; return the array.

        Raises
        ------
        ValueError
            If the value is not one of the element type, such as 300 or 2.5 for ``uint8``, or the array is read-only.
        """
        from allotment.copying import fill

        return fill(self, value)

    def zero_(self) -> Array:
        """Set all bytes to zero in the order of the stream in force; return the array."""
        from allotment.copying import fill_with_zeros

        return fill_with_zeros(self)

    def numpy(self) -> NDArray[Any]:
        """Return the contents as a NumPy array.

        Of an array on ``cpu`` it is a view of the same memory; otherwise a copy, which waits for the work queued on the
        stream in force.
        """
        from allotment.copying import to_numpy

        return to_numpy(self)

    def to(self, device: DeviceLike) -> Array:
        """Return the array on another device: itself if it is there already, else a copy."""
        from allotment.copying import to_device

        return to_device(self, device)

    def copy(self) -> Array:
        """Return a contiguous copy on the same device, from the allocator in force there now."""
        from allotment.copying import clone

        return clone(self)

    def contiguous(self) -> Array:
        """Return the array itself if it is contiguous, else a contiguous copy."""
        return self if self.is_contiguous else self.copy()

    def ipc_handle(self) -> bytes:
        """Return a handle by which another process opens the memory with `from_ipc_handle`.

        The array must live until everybody has let go of the memory. See `allotment.ipc` for what the bytes say.

        Raises
        ------
        UnsupportedError
            If the memory cannot be shared: that of the host, managed memory, memory of a pool, a view, memory of
            another owner, or memory of an allocator that does not say that it can, or the device cannot.
        PlatformError
            If the driver refuses.
        """
        from allotment.ipc import export_handle

        return export_handle(self)

    # Interchange: see `allotment.interchange` for what each protocol says

    @property
    def __array_interface__(self) -> dict[str, Any]:
        from allotment.interchange import array_interface

        return array_interface(self)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        from allotment.interchange import cuda_array_interface

        return cuda_array_interface(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if self.device.is_cuda:
            raise TypeError(
                f"an array on {self.device.alias!r} does not become a NumPy array unasked: use .numpy() to copy it"
            )
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        from allotment.interchange import dlpack_device

        return dlpack_device(self)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        from allotment.interchange import to_dlpack

        return to_dlpack(self, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)


_viewing = Array._viewing
"""Bound once, because looking it up costs as much as the view."""


def observe_memory_kind(ptr: int, device: Device) -> MemoryKind:
    """Return the kind of memory at an address as the platform sees it; host memory that it does not know is HOST."""
    if not ptr:
        return MemoryKind.HOST if device.is_cpu else MemoryKind.UNKNOWN
    if device.platform.device_count() == 0:
        return MemoryKind.HOST
    kind = device.platform.pointer_attributes(ptr).kind
    return MemoryKind.HOST if device.is_cpu and kind is MemoryKind.UNKNOWN else kind
