"""Aligned pageable memory of the host.

The memory is NumPy's: large blocks are committed page by page when they are touched, any thread may free them, and
`tracemalloc` sees them. A table of live blocks is needed anyway, to refuse a wrong free; with the arrays in it, a pair
of calls takes about three quarters of what ``aligned_alloc`` and ``free`` take through ctypes beside such a table.
"""

from __future__ import annotations

from ctypes import addressof, c_char
from typing import Final

import numpy as np

from allotment.errors import InvalidPointerError

HOST_ALIGNMENT: Final = 64
"""The alignment of host memory in bytes: a cache line, and the widest vector register."""

_BYTE: Final = np.dtype(np.uint8)
_live: Final[dict[int, np.ndarray[tuple[int], np.dtype[np.uint8]]]] = {}
"""The live blocks by address. Adding and taking out one key are atomic, so no lock is needed."""


def allocate_host(nbytes: int, alignment: int = HOST_ALIGNMENT) -> int:
    """Return the address of new host memory. Its contents are undefined.

    Parameters
    ----------
    nbytes
        The size in bytes, above 0.
    alignment
        The alignment in bytes, a power of two.

    Raises
    ------
    MemoryError
        If the system refuses.
    ValueError
        If the size is not positive or the alignment is no power of two.
    """
    if nbytes < 1 or alignment < 1 or alignment & (alignment - 1):
        raise ValueError(f"host memory of {nbytes} bytes aligned to {alignment}: a positive size and a power of two")
    try:
        block = np.empty(nbytes + alignment - 1, _BYTE)
    except ValueError as error:  # NumPy's word for a size beyond the address space
        raise MemoryError(f"{nbytes:,} bytes are more than a process can address") from error
    start = addressof(c_char.from_buffer(block))  # type: ignore[arg-type]  # an array is a buffer
    ptr = (start + alignment - 1) & -alignment
    _live[ptr] = block
    return ptr


def free_host(ptr: int) -> None:
    """Free memory of `allocate_host`, in any thread.

    Raises
    ------
    InvalidPointerError
        If the address is not that of a live block.
    """
    try:
        del _live[ptr]
    except KeyError:
        raise InvalidPointerError(pointer=ptr, allocator="host", owner=None) from None
