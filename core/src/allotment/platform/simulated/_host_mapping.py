"""The host's own virtual memory: what stands behind device addresses that are mapped and unmapped."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from functools import cache
from typing import Any, Final

from allotment.platform.simulated._errors import OUT_OF_MEMORY, Refused
from allotment.platform.simulated._free_ranges import FreeRanges

IS_AVAILABLE: Final = sys.platform == "linux" and sys.maxsize > 2**32
"""Whether this host can do it: Linux alone has files in memory and maps them at an address of one's choice."""

_PROT_NONE: Final = 0
_MAP_FIXED: Final = 0x10
_MAP_NORESERVE: Final = 0x4000
_FAILED: Final = 2**64 - 1
_KEEP_SIZE: Final = 0x01
_PUNCH_HOLE: Final = 0x02
_FILE_SIZE: Final = 2**44
"""More than any device has, and free of charge: what is never written takes nothing."""


class MemoryFile:
    """A file in memory that stands for what a device has: handed out in ranges, the lowest first.

    Ranges that follow one another in the file and in the addresses are one mapping for the host, of which a process may
    have no more than some 65,000.
    """

    def __init__(self, name: str) -> None:
        self._descriptor = _made(name)
        self._free = FreeRanges()
        self._free.add(0, _FILE_SIZE)

    def take(self, nbytes: int) -> int:
        """Return where a new range begins."""
        start = self._free.take_lowest(nbytes)
        if start is None:
            raise Refused(OUT_OF_MEMORY, f"the host has no file that holds {nbytes:,} bytes more")
        return start

    def give_back(self, start: int, nbytes: int) -> None:
        """Take a range back, and give what the host holds for it back to it."""
        _libc().fallocate(self._descriptor, _PUNCH_HOLE | _KEEP_SIZE, start, nbytes)
        self._free.add(start, nbytes)

    def map_at(self, ptr: int, start: int, nbytes: int) -> None:
        """Put a range behind reserved addresses."""
        _mapped(ptr, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | _MAP_FIXED, self._descriptor, start)

    def close(self) -> None:
        """Give the file up; what is mapped stays until it is unmapped."""
        os.close(self._descriptor)


def reserve(nbytes: int, alignment: int) -> int:
    """Return the address of ``nbytes`` with nothing behind them."""
    start = _nothing_at(0, nbytes + alignment, fixed=False)
    aligned = -(-start // alignment) * alignment
    end = start + nbytes + alignment
    for left, size in ((start, aligned - start), (aligned + nbytes, end - aligned - nbytes)):
        if size:
            release(left, size)
    return aligned


def unmap(ptr: int, nbytes: int) -> None:
    """Take what is behind reserved addresses away; they stay reserved."""
    _nothing_at(ptr, nbytes, fixed=True)


def release(ptr: int, nbytes: int) -> None:
    """Give addresses back to the host."""
    _libc().munmap(ptr, nbytes)


def _nothing_at(ptr: int, nbytes: int, *, fixed: bool) -> int:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE | (_MAP_FIXED if fixed else 0)
    return _mapped(ptr, nbytes, _PROT_NONE, flags, -1, 0)


def _mapped(ptr: int, nbytes: int, protection: int, flags: int, descriptor: int, start: int) -> int:
    address: int | None = _libc().mmap(ptr, nbytes, protection, flags, descriptor, start)
    if address in (None, _FAILED):
        why = os.strerror(ctypes.get_errno())
        raise Refused(OUT_OF_MEMORY, f"the host refused {nbytes:,} bytes of address space: {why}")
    assert address is not None
    return address


def _made(name: str) -> int:
    try:
        descriptor = os.memfd_create(name)
        os.ftruncate(descriptor, _FILE_SIZE)
    except OSError as error:
        raise Refused(OUT_OF_MEMORY, f"the host makes no file in memory: {error}") from error
    return descriptor


@cache
def _libc() -> Any:
    """Return the C library, which has what Python has no name for."""
    libc = ctypes.CDLL(None, use_errno=True)
    address, size, number, offset = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_longlong
    libc.mmap.restype, libc.mmap.argtypes = address, (address, size, number, number, number, offset)
    libc.munmap.argtypes = (address, size)
    libc.fallocate.argtypes = (number, number, offset, offset)
    return libc
