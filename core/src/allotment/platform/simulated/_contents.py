"""Reading and writing memory."""

from __future__ import annotations

import ctypes
from math import prod
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from allotment.platform._values import StridedMemory


def move(dst: int, src: int, nbytes: int) -> None:
    """Copy bytes between any two addresses."""
    ctypes.memmove(dst, src, nbytes)


def set_bytes(ptr: int, byte: int, nbytes: int) -> None:
    """Set bytes at any address."""
    ctypes.memset(ptr, byte, nbytes)


def snapshot(ptr: int, nbytes: int) -> ctypes.Array[ctypes.c_char]:
    """Return a copy of bytes at any address, in memory of its own."""
    held = ctypes.create_string_buffer(nbytes)
    ctypes.memmove(held, ptr, nbytes)
    return held


def write(dst: int, held: ctypes.Array[ctypes.c_char]) -> None:
    """Copy a `snapshot` to any address."""
    ctypes.memmove(dst, held, len(held))


def extent(memory: StridedMemory) -> tuple[int, int]:
    """Return the lowest address that elements cover, and how many bytes there are to the highest one."""
    if 0 in memory.shape:
        return memory.ptr, 0
    steps = [(length - 1) * stride for length, stride in zip(memory.shape, memory.strides, strict=True)]
    low = sum(step for step in steps if step < 0)
    high = sum(step for step in steps if step > 0)
    return memory.ptr + low, high - low + memory.dtype.itemsize


def view(memory: StridedMemory) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    """Return elements in memory as a NumPy array."""
    low, nbytes = extent(memory)
    if prod(memory.shape) == 0 or nbytes == 0:
        return np.empty(memory.shape, memory.dtype)
    buffer = memoryview((ctypes.c_ubyte * nbytes).from_address(low)).cast("B")
    return np.ndarray(memory.shape, memory.dtype, buffer, memory.ptr - low, memory.strides)
