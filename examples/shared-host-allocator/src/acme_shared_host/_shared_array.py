"""What one process tells another about an array."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from acme_shared_host._allocator import SharedHostAllocator

if TYPE_CHECKING:
    from allotment import Array


@dataclass(frozen=True, slots=True)
class SharedArray:
    """An array in shared memory, as any process of the same user can open it. It can be pickled, and is made of text.

    Parameters
    ----------
    name
        The file behind it.
    offset
        Where it begins there, in bytes.
    shape
        Its shape.
    dtype
        Its element type, as NumPy writes it: ``"<f4"``.
    """

    name: str
    offset: int
    shape: tuple[int, ...]
    dtype: str

    def open(self, mode: Literal["r", "r+"] = "r+") -> np.memmap[Any, Any]:
        """Return a view of the memory, not a copy.

        Parameters
        ----------
        mode
            ``"r"`` to read only.

        Raises
        ------
        FileNotFoundError
            If the array was dropped by its owner.
        """
        return np.memmap(Path(self.name), self.dtype, mode, self.offset, self.shape)


def share(array: Array) -> SharedArray:
    """Return what another process needs to open an array.

    Parameters
    ----------
    array
        A contiguous array whose memory is from ``shared-host``. Keep it as long as others may want to open it.

    Raises
    ------
    ValueError
        If its memory is from another allocator, or it is not contiguous.
    """
    allocator = getattr(array.allocator, "allocator", array.allocator)
    if not isinstance(allocator, SharedHostAllocator):
        raise ValueError(  # noqa: TRY004 - the argument is an array, as it must be
            f"the array's memory is from {array.allocator!r}: make it with allocator 'shared-host'"
        )
    if not array.numpy().flags.c_contiguous:
        raise ValueError(f"the array is not contiguous: its strides are {array.strides} bytes")
    path, offset = allocator.find(array.ptr)
    return SharedArray(str(path), offset, tuple(array.shape), np.dtype(array.dtype).str)
