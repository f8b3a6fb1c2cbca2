"""Calls of CUDA that `Platform` has no need of."""

import mmap
from ctypes import addressof, c_char

import numpy as np
import pytest

from allotment.errors import PlatformError
from allotment.memory_kind import MemoryKind
from allotment.platform import HOST_LOCATION, PoolAccess

MIB = 2**20


@pytest.fixture
def pages():
    """The address of a page of host memory."""
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    view = c_char.from_buffer(memory)
    yield addressof(view)
    del view
    memory.close()


def test_registered_memory_is_pinned_until_it_is_unregistered(platform, pages):
    platform.host_register(pages, 4096)
    found = platform.pointer_attributes(pages + 100)
    assert (found.kind, found.base, found.nbytes, found.accessible) == (MemoryKind.PINNED, pages, 4096, True)
    platform.check_kernel_access(1, pages, 4096)
    platform.host_unregister(pages)
    assert platform.pointer_attributes(pages).kind is MemoryKind.UNKNOWN


@pytest.mark.parametrize("free", ["free", "host_free", "free_async"])
def test_registered_memory_is_not_freed(platform, pages, free):
    platform.host_register(pages, 4096)
    with pytest.raises(PlatformError, match="cudaErrorInvalidValue"):
        getattr(platform, free)(pages, *([0] if free == "free_async" else []))
    platform.host_unregister(pages)


def test_memory_of_a_pool_of_the_host_is_pinned_and_needs_a_grant(platform):
    pool = platform.create_pool_of(MemoryKind.PINNED)
    ptr = platform.malloc_from_pool(MIB, pool, 0)
    assert platform.pointer_attributes(ptr).kind is MemoryKind.PINNED
    assert not platform.pointer_attributes(ptr).accessible
    assert platform.pool_access(pool, HOST_LOCATION) is PoolAccess.READ_WRITE
    platform.set_pool_access(pool, 0, PoolAccess.READ_WRITE)
    platform.check_kernel_access(0, ptr, MIB)
    platform.free_async(ptr, 0)


def test_memory_of_a_managed_pool_is_used_by_all_without_a_grant(platform):
    pool = platform.create_pool_of(MemoryKind.CUDA_MANAGED)
    ptr = platform.malloc_from_pool(MIB, pool, 0)
    platform.check_kernel_access(1, ptr, MIB)
    platform.check_host_access(ptr, MIB)
    assert platform.managed_state(ptr) is not None
    platform.free_async(ptr, 0)


def test_a_pool_maps_no_more_than_it_may(platform):
    pool = platform.create_pool_of(MemoryKind.CUDA_MEMPOOL, 64 * MIB)
    first = platform.malloc_from_pool(40 * MIB, pool, 0)
    with pytest.raises(PlatformError, match="cudaErrorMemoryAllocation"):
        platform.malloc_from_pool(40 * MIB, pool, 0)
    platform.free_async(first, 0)
    assert platform.malloc_from_pool(40 * MIB, pool, 0) == first


def test_a_destroyed_pool_is_not_current_any_more(platform):
    pool = platform.create_pool(0)
    platform.set_current_pool(0, pool)
    assert platform.current_pool(0) == pool
    platform.destroy_pool(pool)
    assert platform.current_pool(0) == platform.default_pool(0)


@pytest.mark.parametrize("call", ["copy_to_host", "copy_from_host", "copy_on_device"])
def test_a_copy_in_a_direction_takes_no_host_memory_at_its_device_end(platform, call):
    data = np.zeros(8, np.uint8)
    with pytest.raises(PlatformError, match="cudaErrorInvalidValue"):
        getattr(platform, call)(data.ctypes.data, data.ctypes.data, 8, 0, 0)


def test_a_reset_frees_what_is_in_no_pool(platform):
    free = platform.memory_info(0).free
    ptr, pooled = platform.malloc(MIB), platform.malloc_from_pool(MIB, platform.default_pool(0), 0)
    platform.reset_device(0)
    assert not platform.has_context(0)
    assert platform.pointer_attributes(ptr).kind is MemoryKind.UNKNOWN
    assert platform.pointer_attributes(pooled).kind is MemoryKind.CUDA_MEMPOOL
    platform.free_async(pooled, 0)
    platform.synchronize_device(0)
    assert platform.memory_info(0).free == free
