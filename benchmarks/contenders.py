"""The calls that are compared: ours, the peers', and the floor below both."""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

import allotment as al

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Call = "Callable[[], object]"


class FreeList:
    """The least that an allocator can do in Python: two methods over a dictionary of free addresses, no checks."""

    deallocate_requires_context_guard = False

    def __init__(self) -> None:
        self.free: dict[int, list[int]] = {}
        self.next = 1 << 30

    def allocate(self, size_in_bytes: int) -> int:
        """Return a free address of this size, or a new one."""
        addresses = self.free.get(size_in_bytes)
        if addresses:
            return addresses.pop()
        self.next += -(-size_in_bytes // 512) * 512
        return self.next

    def deallocate(self, ptr: int, size_in_bytes: int) -> None:
        """Keep the address for the next request of this size."""
        self.free.setdefault(size_in_bytes, []).append(ptr)


def pair(allocator: Any, size: int) -> Callable[[], object]:
    """Return a call that allocates and frees once."""
    allocate, deallocate = allocator.allocate, allocator.deallocate

    def allocate_and_free() -> None:
        deallocate(allocate(size), size)

    return allocate_and_free


def cupy_pair(malloc: Callable[[int], object], size: int) -> Callable[[], object]:
    """Return a call that takes memory from one of CuPy's pools and drops it."""

    def allocate_and_free() -> None:
        malloc(size)

    return allocate_and_free


def direct_pool_pair(device: al.Device, pool: int, size: int) -> Callable[[], object]:
    """Return the two calls that the memory pool makes, without anything of ours."""
    malloc, free, stream = device.platform.malloc_from_pool, device.platform.free_async, 0

    def allocate_and_free() -> None:
        free(malloc(size, pool, stream), stream)

    return allocate_and_free


def torch_pair(torch: Any, size: int) -> Callable[[], object]:
    """Return PyTorch's own allocate and free by address."""
    allocate, free = torch.cuda.caching_allocator_alloc, torch.cuda.caching_allocator_delete

    def allocate_and_free() -> None:
        free(allocate(size))

    return allocate_and_free


@contextmanager
def drawing(library: str, supplier: str | None) -> Iterator[None]:
    """Let a library draw from a supplier, or from the allocator in force; what it was given does so afterwards too."""
    al.install(library, allocator=supplier)
    try:
        yield
    finally:
        al.uninstall(library)


def imported(name: str, missing: dict[str, str]) -> Any:
    """Return a peer's module; ``None`` with a note in ``missing`` where it cannot be imported."""
    try:
        return import_module(name)
    except ImportError as error:
        missing[name] = str(error)
        return None
