"""Making arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from allotment import _array_memory
from allotment._allocator_scopes import allocator_scopes
from allotment._array import Array
from allotment._layout import element_type, normalise_shape, size_in_bytes
from allotment._twins import preferred
from allotment.device import Device, find_device
from allotment.selection import allocator_in_force, pinned_allocator

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import DTypeLike

    from allotment._layout import Shape, ShapeLike
    from allotment.device import DeviceLike

_element_types: dict[Any, tuple[np.dtype[np.generic], int]] = {}
"""What `element_type` answered, and its size, because asking NumPy costs as much as an allocation. Holds types only."""


def empty(shape: ShapeLike, dtype: DTypeLike = float, device: DeviceLike = None, pinned: bool = False) -> Array:
    """Return a new array whose contents are whatever the memory held.

    Parameters
    ----------
    shape
        The extents: an integer or several.
    dtype
        The element type, as NumPy reads it: ``float`` is 64 bits.
    device
        Where the memory is to be; the default device if not given.
    pinned
        Whether an array on ``cpu`` is to be in page-locked memory, which devices copy from and to without waiting.

    Raises
    ------
    TypeError, ValueError
        For a shape or type that no array can have, or ``pinned`` on a CUDA device. Nothing was called.
    DeviceNotFoundError
        If there is no such device.
    OutOfMemoryError
        If the memory is not to be had.
    """
    return _empty(shape, dtype, device, pinned)


def _any_empty(shape: ShapeLike, dtype: DTypeLike, device: DeviceLike, pinned: bool) -> Array:
    where = find_device(device)
    try:
        element, itemsize = _element_types[dtype]
    except (KeyError, TypeError):
        element, itemsize = _remember_element_type(dtype)
    extents: Shape
    if type(shape) is int and shape >= 0:
        extents, nbytes = (shape,), shape * itemsize
    else:
        extents = normalise_shape(shape)
        nbytes = size_in_bytes(extents, itemsize)
    account = pinned_allocator(_host(where)) if pinned else allocator_in_force(where)
    ptr = account.allocate(nbytes)
    return Array(ptr, extents, element, where, account, nbytes, None, None, account.memory_kind)


_empty: Callable[..., Array] = _any_empty
"""What makes an empty array: in C where that was compiled, which leaves all that is unusual to Python."""
if hasattr(memory := preferred(_array_memory), "usual_empty"):
    _empty = memory.usual_empty(Array, Device, find_device, _element_types, allocator_scopes.variable, _any_empty)


def _remember_element_type(dtype: Any) -> tuple[np.dtype[np.generic], int]:
    element = element_type(dtype)
    answer = element, element.itemsize
    if isinstance(dtype, str | type | np.dtype) and len(_element_types) < _MANY_TYPES:
        _element_types[dtype] = answer
    return answer


_MANY_TYPES = 256
"""Above this many types a program makes them up as it goes, and remembering them would be a leak."""


def _host(device: Device) -> Device:
    if device.is_cuda:
        raise ValueError(f"pinned=True asks for page-locked host memory: use device='cpu', not {device.alias!r}")
    return device


def _filled(new: Array, set_contents: Callable[..., Array], *value: object) -> Array:
    """Set the contents of a new array, whose memory goes back at once if that fails."""
    try:
        return set_contents(new, *value)
    except BaseException:
        new.discard()
        raise


def zeros(shape: ShapeLike, dtype: DTypeLike = float, device: DeviceLike = None, pinned: bool = False) -> Array:
    """Return a new array of zeros; see `empty` for the parameters."""
    return _filled(empty(shape, dtype, device, pinned), Array.zero_)


def ones(shape: ShapeLike, dtype: DTypeLike = float, device: DeviceLike = None, pinned: bool = False) -> Array:
    """Return a new array of ones; see `empty` for the parameters."""
    return _filled(empty(shape, dtype, device, pinned), Array.fill_, 1)


def full(
    shape: ShapeLike,
    value: object,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
    pinned: bool = False,
) -> Array:
    """Return a new array with all elements set to ``value``, of the value's type unless ``dtype`` says another.

    See `empty` for the other parameters.
    """
    element = np.asarray(value).dtype if dtype is None else dtype
    return _filled(empty(shape, element, device, pinned), Array.fill_, value)


def empty_like(
    other: Any, dtype: DTypeLike | None = None, device: DeviceLike = None, pinned: bool | None = None
) -> Array:
    """Return a new array with the shape of another one, uninitialised.

    Parameters
    ----------
    other
        An array of this library or of NumPy.
    dtype, device, pinned
        Those of ``other`` where not given; the device of a NumPy array is the default device.
    """
    ours = isinstance(other, Array)
    where = find_device(other.device if device is None and ours else device)
    page_locked = (ours and where is other.device and where.is_cpu and other.pinned) if pinned is None else pinned
    return empty(other.shape, other.dtype if dtype is None else dtype, where, page_locked)


def zeros_like(
    other: Any, dtype: DTypeLike | None = None, device: DeviceLike = None, pinned: bool | None = None
) -> Array:
    """Return a new array of zeros with the shape of another one; see `empty_like`."""
    return _filled(empty_like(other, dtype, device, pinned), Array.zero_)


def ones_like(
    other: Any, dtype: DTypeLike | None = None, device: DeviceLike = None, pinned: bool | None = None
) -> Array:
    """Return a new array of ones with the shape of another one; see `empty_like`."""
    return _filled(empty_like(other, dtype, device, pinned), Array.fill_, 1)


def full_like(
    other: Any,
    value: object,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
    pinned: bool | None = None,
) -> Array:
    """Return a new array with the shape of another one and all elements set to ``value``; see `empty_like`."""
    return _filled(empty_like(other, dtype, device, pinned), Array.fill_, value)
