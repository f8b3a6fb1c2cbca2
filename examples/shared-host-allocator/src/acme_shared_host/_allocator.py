"""The allocator: a named file in memory for each block."""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from acme_shared_host._options import SharedHostOptions
from acme_shared_host._store import HAS_LOCKS, Store
from allotment import API_VERSION, AllocatorTraits, Availability, MemoryKind, UnsupportedError

if TYPE_CHECKING:
    from allotment import Device

_PAGE: Final = 4096
_HUGE_PAGE: Final = 2 << 20
_HUGE_PAGE_SETTING: Final = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
_MAX_BYTES: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A block and the file behind it."""

    path: Path
    mapping: mmap.mmap


class SharedHostAllocator:
    """Pageable host memory that other processes of the same user can open by name.

    Parameters
    ----------
    options
        See `SharedHostOptions`.

    Raises
    ------
    UnsupportedError
        If huge pages are asked for and the system does not give them for shared memory.
    """

    api_version: ClassVar = API_VERSION
    traits: ClassVar = AllocatorTraits(
        memory_kind=MemoryKind.HOST, alignment=_PAGE, host_accessible=True, device_bound=False
    )
    Options: ClassVar = SharedHostOptions
    deallocate_requires_context_guard: ClassVar = False

    def __init__(self, options: SharedHostOptions | None = None) -> None:
        self._options = options or SharedHostOptions()
        if self._options.huge_pages:
            _require_huge_pages()
        self._multiple = _HUGE_PAGE if self._options.huge_pages else _PAGE
        self._blocks: dict[int, Block] = {}
        self._store = Store(self._options.folder)
        self._clean_up = weakref.finalize(self, self._store.close)  # at exit too, where blocks may be live

    def allocate(self, size_in_bytes: int) -> int:
        """Return the address of a new block in a file of its own."""
        nbytes = -(-size_in_bytes // self._multiple) * self._multiple
        if nbytes > _MAX_BYTES:
            raise MemoryError(f"no file has {nbytes:,} bytes")
        path, descriptor = self._store.create(nbytes, reserve=self._options.reserve)
        try:
            mapping = mmap.mmap(descriptor, nbytes)
        except (OSError, OverflowError) as error:
            path.unlink()
            raise MemoryError(f"{nbytes:,} bytes have no place among the addresses: {error}") from error
        finally:
            os.close(descriptor)
        if self._options.huge_pages:
            mapping.madvise(mmap.MADV_HUGEPAGE)
        ptr = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
        self._blocks[ptr] = Block(path, mapping)
        return ptr

    def deallocate(self, ptr: int, size_in_bytes: int) -> None:  # noqa: ARG002 - the contract gives the size
        """Take a block back. Its name goes at once, its memory when no process has it open any more."""
        block = self._blocks.pop(ptr)
        block.mapping.close()
        if self._store.is_own or block.path.name.startswith(f"{os.getpid()}-"):
            block.path.unlink(missing_ok=True)

    def find(self, ptr: int) -> tuple[Path, int]:
        """Return the file that an address lies in, and how far from its beginning.

        Raises
        ------
        LookupError
            If no live block of this allocator is there.
        """
        for start, block in self._blocks.copy().items():
            if start <= ptr < start + len(block.mapping):
                return block.path, ptr - start
        raise LookupError(f"no block of this allocator is at {ptr:#x}")

    def close(self) -> None:
        """Remove the folder with the names."""
        self._clean_up()

    @classmethod
    def availability(cls, device: Device) -> Availability:
        """Say that it serves the host, where files can be locked."""
        if not device.is_cpu:
            return Availability(ok=False, reason="shared host memory serves device 'cpu' only")
        if not HAS_LOCKS:
            return Availability(ok=False, reason="it needs a POSIX system, for locks on files")
        return Availability(ok=True)


def _require_huge_pages() -> None:
    """Raise if the system gives shared memory no huge pages."""
    try:
        setting = _HUGE_PAGE_SETTING.read_text()
    except OSError:
        setting = ""
    if "[never]" in setting or "[deny]" in setting or not setting:
        raise UnsupportedError(
            f"huge_pages=True has no effect here: {_HUGE_PAGE_SETTING} says {setting.strip() or 'nothing'!r}. "
            "An administrator can write 'advise' to it; or leave the option out."
        )
