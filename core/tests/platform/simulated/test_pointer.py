"""The recorded cases of section ``pointer``."""

import numpy as np
import pytest

from allotment.memory_kind import MemoryKind
from allotment.platform._values import HOST_LOCATION, PoolAccess


def allocate(platform, kind, nbytes=4096):
    return {
        "malloc": lambda: platform.malloc(nbytes),
        "pool": lambda: platform.malloc_from_pool(nbytes, platform.default_pool(platform.current_device()), 0),
        "own-pool": lambda: platform.malloc_from_pool(nbytes, platform.create_pool(platform.current_device()), 0),
        "managed": lambda: platform.malloc_managed(nbytes),
        "pinned": lambda: platform.host_alloc(nbytes),
    }[kind]()


KINDS = {
    "malloc": MemoryKind.CUDA_DEVICE,
    "pool": MemoryKind.CUDA_MEMPOOL,
    "own-pool": MemoryKind.CUDA_MEMPOOL,
    "managed": MemoryKind.CUDA_MANAGED,
    "pinned": MemoryKind.PINNED,
}


@pytest.mark.parametrize(("kind", "expected"), KINDS.items())
@pytest.mark.parametrize("offset", [0, 512, 4095])
def test_an_address_in_a_block_tells_the_block(platform, kind, expected, offset):
    ptr = allocate(platform, kind)
    seen = platform.pointer_attributes(ptr + offset)
    assert (seen.kind, seen.device, seen.base, seen.nbytes, seen.accessible) == (expected, 0, ptr, 4096, True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("past", [100, 512])
def test_the_byte_past_the_requested_size_is_unknown(platform, kind, past):
    ptr = allocate(platform, kind, 100)
    assert platform.pointer_attributes(ptr + 99).nbytes == 100
    assert platform.pointer_attributes(ptr + past).kind is MemoryKind.UNKNOWN


@pytest.mark.parametrize("kind", KINDS)
def test_freed_memory_is_unknown_at_once(platform, kind):
    ptr = allocate(platform, kind)
    free = {"pinned": platform.host_free}.get(kind, platform.free)
    free(ptr)
    assert platform.pointer_attributes(ptr).kind is MemoryKind.UNKNOWN


def test_memory_freed_on_a_held_stream_is_unknown_before_the_stream_gets_there(platform):
    stream = platform.create_stream(0, non_blocking=True, priority=0)
    ptr = platform.malloc_from_pool(64, platform.default_pool(0), stream)
    with platform.delayed(stream):
        platform.free_async(ptr, stream)
        assert platform.pointer_attributes(ptr).kind is MemoryKind.UNKNOWN


def test_null_pageable_and_made_up_addresses_are_unknown_and_no_error(platform):
    array = np.zeros(8)
    for ptr in (0, array.ctypes.data, 0x7777_0000_0000):
        seen = platform.pointer_attributes(ptr)
        assert (seen.kind, seen.device, seen.accessible) == (MemoryKind.UNKNOWN, HOST_LOCATION, False)
    assert platform.get_last_error() == "cudaSuccess"


def test_pool_memory_tells_its_pool(platform):
    pool = platform.create_pool(0)
    ptr = platform.malloc_from_pool(64, pool, 0)
    assert platform.pointer_attributes(ptr).pool == pool
    assert platform.pointer_attributes(platform.malloc(64)).pool == 0


@pytest.mark.parametrize(
    ("kind", "accessible"),
    [("malloc", False), ("pool", False), ("own-pool", False), ("managed", True), ("pinned", True)],
)
def test_memory_of_another_device_is_accessible_by_its_kind(platform, kind, accessible):
    platform.set_current_device(1)
    ptr = allocate(platform, kind)
    platform.set_current_device(0)
    seen = platform.pointer_attributes(ptr)
    assert (seen.device, seen.accessible) == (1, accessible)


def test_accessible_follows_peer_and_pool_grants_each_for_its_own_kind(platform):
    plain, pool = platform.malloc(64), platform.default_pool(0)
    pooled = platform.malloc_from_pool(64, pool, 0)
    platform.set_current_device(1)

    def accessible():
        return [platform.pointer_attributes(ptr).accessible for ptr in (plain, pooled)]

    assert accessible() == [False, False]
    platform.enable_peer_access(1, 0)
    assert accessible() == [True, False]
    platform.disable_peer_access(1, 0)
    platform.set_pool_access(pool, 1, PoolAccess.READ_WRITE)
    assert accessible() == [False, True]
    platform.set_pool_access(pool, 1, PoolAccess.NONE)
    assert accessible() == [False, False]


def test_managed_memory_keeps_its_creators_device_after_a_prefetch(platform):
    ptr = platform.malloc_managed(4096)
    for place in (1, HOST_LOCATION, 0):
        platform.prefetch(ptr, 4096, place, 0, 0)
        assert platform.pointer_attributes(ptr).device == 0
