"""Wrapping memory that another owner has."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any

from allotment._array import Array
from allotment._foreign_memory import ForeignMemory
from allotment._layout import as_integers, contiguous_strides, element_type, normalise_shape, reach
from allotment.device import find_device
from allotment.layers.accounting import with_device_current

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment._layout import Shape, ShapeLike
    from allotment.device import DeviceLike


def from_pointer(
    ptr: int,
    shape: ShapeLike,
    dtype: Any = float,
    device: DeviceLike = None,
    *,
    strides: Shape | None = None,
    capacity: int | None = None,
    owner: object = None,
    deleter: Callable[[int, int], None] | None = None,
    readonly: bool = False,
) -> Array:
    """Wrap memory that another owner has. After an error the memory is still the caller's: ``deleter`` is not called.

    Parameters
    ----------
    ptr
        The address of the first element; 0 only for an empty array.
    shape, dtype
        The extents and the element type.
    device
        The device that the memory belongs to; the default device if not given.
    strides
        The step in bytes of each dimension; those of C order if not given.
    capacity
        The size of the memory in bytes from ``ptr`` on, if it is known: a layout that reaches past it is refused.
    owner
        An object that keeps the memory alive; the array holds it.
    deleter
        Called with ``(ptr, capacity)`` once, when the last array over the memory is gone, with the device current.
    readonly
        Whether the memory must not be written.

    Raises
    ------
    ValueError
        If the address is null with a size, the layout does not fit the capacity, or elements of a CUDA device would
        not be aligned because a stride is no multiple of their size.
    """
    where, address = find_device(device), index(ptr or 0)
    element, extents = element_type(dtype), normalise_shape(shape)
    steps = None if strides is None else as_integers(strides)
    end = _check_layout(address, extents, steps, element.itemsize, capacity)
    if steps is not None and where.is_cuda and any(step % element.itemsize for step in steps):
        raise ValueError(f"strides {steps} are not multiples of the {element.itemsize} bytes of {element}")
    if deleter is not None and where.is_cuda:
        deleter = with_device_current(deleter, where)
    memory = ForeignMemory(address, end if capacity is None else capacity, owner, deleter)
    return Array(address if end else 0, extents, element, where, None, 0, memory, steps, None, readonly)


def _check_layout(ptr: int, shape: Shape, strides: Shape | None, itemsize: int, capacity: int | None) -> int:
    """Return the end of the bytes that elements cover from ``ptr`` on; raise `ValueError` if they cannot be there."""
    if strides is not None and len(strides) != len(shape):
        raise ValueError(f"{len(strides)} strides do not fit {len(shape)} dimensions")
    lowest, end = reach(shape, contiguous_strides(shape, itemsize) if strides is None else strides, itemsize)
    if end and ptr <= 0:
        raise ValueError(f"{end - lowest} bytes cannot be at address {ptr}")
    if capacity is not None and (lowest < 0 or end > capacity):
        raise ValueError(f"shape {shape} with strides {strides} reaches bytes {lowest} to {end} of {capacity}")
    return end
