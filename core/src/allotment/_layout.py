"""Where the elements of an array lie: shapes, strides, and what indexing does to them. Plain arithmetic on integers."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from operator import index
from types import EllipsisType
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from allotment.units import MAX_BYTES

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

Shape: TypeAlias = tuple[int, ...]
ShapeLike: TypeAlias = "int | Iterable[int]"
IndexItem: TypeAlias = int | slice | EllipsisType | None
Index: TypeAlias = IndexItem | tuple[IndexItem, ...]


def normalise_shape(shape: ShapeLike) -> Shape:
    """Return a shape as a tuple of plain, non-negative integers.

    Raises
    ------
    TypeError
        If an extent is not an integer.
    ValueError
        If an extent is negative.
    """
    normal = as_integers(shape)
    for axis, extent in enumerate(normal):
        if extent < 0:
            raise ValueError(f"dimension {axis} of shape {normal} is negative")
    return normal


def as_integers(numbers: ShapeLike) -> tuple[int, ...]:
    """Return one integer or several as plain ones: NumPy's would wrap in the arithmetic that follows."""
    if type(numbers) is tuple or (isinstance(numbers, Iterable) and getattr(numbers, "ndim", True)):
        return tuple(map(index, numbers))
    return (index(numbers),)  # type: ignore[arg-type]


def size_in_bytes(shape: Shape, itemsize: int) -> int:
    """Return the bytes that a contiguous array takes, or raise `ValueError` if no memory can be that large.

    The other extents of an empty array are held to the same bound: its strides must be 64-bit integers too.
    """
    nbytes = prod(shape) * itemsize
    if nbytes > MAX_BYTES or (not nbytes and prod(filter(None, shape)) * itemsize > MAX_BYTES):
        raise ValueError(f"an array of shape {shape} with {itemsize}-byte elements is above 2^63 - 1 bytes")
    return nbytes


def element_type(dtype: DTypeLike) -> np.dtype[np.generic]:
    """Return a NumPy type whose elements can lie in any memory.

    Raises
    ------
    TypeError
        For Python objects and sub-array types, whose bytes mean nothing elsewhere.
    """
    found: np.dtype[np.generic] = np.dtype(dtype)
    if found.hasobject:
        raise TypeError(f"dtype {found} holds Python objects, which cannot lie in an allocator's memory")
    if found.subdtype is not None:
        raise TypeError(f"dtype {found} is a sub-array type: add its shape to the array's shape")
    if found.itemsize == 0:
        raise TypeError(f"dtype {found} has no size: give text and bytes types a length")
    return found


def contiguous_strides(shape: Shape, itemsize: int) -> Shape:
    """Return the strides in bytes of an array in C order."""
    if len(shape) == 1:
        return (itemsize,)
    strides = [itemsize] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


def is_contiguous(shape: Shape, strides: Shape, itemsize: int) -> bool:
    """Return whether elements lie one after another in C order: strides of extent 1 do not matter, empty arrays do."""
    if 0 in shape:
        return True
    expected = itemsize
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1:
            if stride != expected:
                return False
            expected *= extent
    return True


def reach(shape: Shape, strides: Shape, itemsize: int) -> tuple[int, int]:
    """Return the range of bytes that elements cover, relative to the first element.

    Returns
    -------
    tuple of int
        ``(lowest, end)``; ``(0, 0)`` for an empty array. ``lowest`` is negative where a stride is.
    """
    if 0 in shape:
        return 0, 0
    steps = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    return sum(step for step in steps if step < 0), sum(step for step in steps if step > 0) + itemsize


def infer_extent(shape: Shape, count: int) -> Shape:
    """Return a shape for ``count`` elements, with its one -1 replaced.

    Raises
    ------
    ValueError
        If there is no such shape.
    """
    known = prod(extent for extent in shape if extent != -1)
    unknown = shape.count(-1)
    if unknown > 1 or any(extent < -1 for extent in shape):
        raise ValueError(f"shape {shape} has more than one unknown dimension or a negative one")
    if unknown and known and count % known == 0:
        return tuple(count // known if extent == -1 else extent for extent in shape)
    if unknown or known != count:
        raise ValueError(f"{count} elements do not fit shape {shape}")
    return shape


def index_view(shape: Shape, strides: Shape, key: Index) -> tuple[int, Shape, Shape]:
    """Return the view that basic indexing gives, as NumPy defines it.

    Returns
    -------
    tuple
        The offset in bytes of its first element, its shape and its strides.

    Raises
    ------
    IndexError
        For an index out of range, too many indices, or one that is no integer, slice, ``...`` or ``None``.
    """
    if type(key) is slice and len(shape) == 1:
        start, stop, step = key.indices(shape[0])
        return start * strides[0], (len(range(start, stop, step)),), (step * strides[0],)
    items = key if isinstance(key, tuple) else (key,)
    if len(items) != len(shape) or None in items or Ellipsis in items:
        items = _expand_ellipsis(items, len(shape))
    offset = axis = 0
    new_shape: list[int] = []
    new_strides: list[int] = []
    for item in items:
        if item is None:
            new_shape.append(1)
            new_strides.append(0)
            continue
        extent, stride = shape[axis], strides[axis]
        axis += 1
        if isinstance(item, slice):
            start, stop, step = item.indices(extent)
            offset += start * stride
            new_shape.append(len(range(start, stop, step)))
            new_strides.append(step * stride)
        else:
            offset += _position(item, extent, axis - 1) * stride
    return offset, tuple(new_shape), tuple(new_strides)


def broadcast_strides(shape: Shape, strides: Shape, wanted: Shape) -> Shape:
    """Return the strides with which elements are seen in a larger shape, as NumPy broadcasts them.

    Raises
    ------
    ValueError
        If the shape cannot be broadcast to the one that is wanted.
    """
    added = len(wanted) - len(shape)
    if added < 0 or any(extent not in (1, to) for extent, to in zip(shape, wanted[added:], strict=True)):
        raise ValueError(f"shape {shape} cannot be broadcast to {wanted}")
    return (0,) * added + tuple(0 if extent == 1 else step for extent, step in zip(shape, strides, strict=True))


def _expand_ellipsis(items: tuple[IndexItem, ...], ndim: int) -> tuple[int | slice | None, ...]:
    """Return the items with ``...``, or the missing end, written out as full slices."""
    given = sum(1 for item in items if item is not None and item is not Ellipsis)
    if given > ndim:
        raise IndexError(f"too many indices: {given} for an array with {ndim} dimensions")
    rest = (slice(None),) * (ndim - given)
    at = [position for position, item in enumerate(items) if item is Ellipsis]
    if len(at) > 1:
        raise IndexError("an index has at most one '...'")
    split = at[0] if at else len(items)
    return (*items[:split], *rest, *items[split + 1 :])  # type: ignore[arg-type]


def _position(item: object, extent: int, axis: int) -> int:
    try:
        position = index(item)  # type: ignore[arg-type]
    except TypeError:
        raise IndexError(
            f"arrays are indexed by integers, slices, '...' and None, not by {type(item).__name__}"
        ) from None
    if isinstance(item, bool):
        raise IndexError("arrays are not indexed by truth values")
    if not -extent <= position < extent:
        raise IndexError(f"index {item} is out of range for dimension {axis} with {extent} elements")
    return position + extent if position < 0 else position
