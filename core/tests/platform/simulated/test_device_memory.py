"""The recorded cases of section ``size``, and what follows from the accounts of a device's memory."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allotment.errors import PlatformError
from allotment.memory_kind import MemoryKind
from allotment.platform._values import PoolAttribute
from allotment.platform.simulated import SimulatedPlatform

MIB, GIB = 2**20, 2**30


def code_of(call, *args):
    """Return CUDA's name for what a call answers."""
    try:
        call(*args)
    except PlatformError as error:
        return error.code
    return "cudaSuccess"


def allocate(platform, kind, nbytes):
    if kind == "pool":
        return platform.malloc_from_pool(nbytes, platform.default_pool(0), 0)
    return {"malloc": platform.malloc, "managed": platform.malloc_managed, "pinned": platform.host_alloc}[kind](nbytes)


ALL_KINDS = ["malloc", "pool", "managed", "pinned"]


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize(
    ("nbytes", "distance"),
    [(1, 512), (100, 512), (511, 512), (513, 1024), (4096, 4096), (MIB, MIB)],
)
def test_small_blocks_are_packed_at_multiples_of_512_bytes(platform, kind, nbytes, distance):
    starts = sorted(allocate(platform, kind, nbytes) for _ in range(4))
    gaps = [after - before for before, after in pairwise(starts)]
    assert all(start % 512 == 0 for start in starts)
    assert min(gaps) == distance


@pytest.mark.parametrize(("kind", "distance"), [("malloc", 4 * MIB), ("managed", 4 * MIB), ("pool", 3 * MIB)])
def test_larger_blocks_have_granules_of_their_own_outside_pools(platform, kind, distance):
    starts = sorted(allocate(platform, kind, 3 * MIB) for _ in range(3))
    assert starts[1] - starts[0] == distance


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_no_bytes_give_null(platform, kind):
    assert allocate(platform, kind, 0) == 0


def test_freeing_null_is_nothing(platform):
    platform.free(0)
    platform.free_async(0, 0)
    platform.host_free(0)


@pytest.mark.parametrize("nbytes", [2 * 150109880320, 2**40, 2**50, 2**63, 2**64 - 1])
@pytest.mark.parametrize("kind", ["malloc", "pool"])
def test_more_than_the_device_is_refused_and_changes_nothing(platform, kind, nbytes):
    pool, free = platform.default_pool(0), platform.memory_info(0).free
    assert code_of(allocate, platform, kind, nbytes) == "cudaErrorMemoryAllocation"
    assert platform.get_last_error() == "cudaErrorMemoryAllocation"
    assert platform.get_last_error() == "cudaSuccess"
    assert platform.memory_info(0).free == free
    assert platform.pool_attribute(pool, PoolAttribute.RESERVED_HIGH) == 0


def test_a_double_free_is_refused_and_remembered_but_does_no_harm(platform):
    ptr = platform.malloc(100)
    platform.free(ptr)
    assert code_of(platform.free, ptr) == "cudaErrorInvalidValue"
    assert platform.peek_last_error() == "cudaErrorInvalidValue"
    platform.free(platform.malloc(100))


@pytest.mark.parametrize("free", ["free", "free_async", "host_free"])
def test_pageable_and_made_up_pointers_are_refused(platform, free):
    array = np.zeros(8)
    arguments = (0,) if free == "free_async" else ()
    for ptr in (array.ctypes.data, 0x7777_0000_0000):
        assert code_of(getattr(platform, free), ptr, *arguments) == "cudaErrorInvalidValue"


def test_an_interior_pointer_is_refused_and_the_block_stays_live(platform):
    ptr = platform.malloc(4096)
    assert code_of(platform.free, ptr + 512) == "cudaErrorInvalidValue"
    assert code_of(platform.free_async, ptr + 512, 0) == "cudaErrorInvalidValue"
    platform.free(ptr)


@pytest.mark.parametrize(
    ("kind", "free", "answer"),
    [
        ("pinned", "free", "cudaErrorInvalidValue"),
        ("pool", "free", "cudaSuccess"),
        ("managed", "free", "cudaSuccess"),
        ("malloc", "free_async", "cudaSuccess"),
        ("managed", "free_async", "cudaErrorNotSupported"),
        ("pinned", "free_async", "cudaErrorInvalidValue"),
        ("malloc", "host_free", "cudaErrorInvalidValue"),
        ("managed", "host_free", "cudaErrorInvalidValue"),
        ("pool", "host_free", "cudaErrorInvalidValue"),
    ],
)
def test_frees_that_cross_kinds_answer_as_recorded(platform, kind, free, answer):
    ptr = allocate(platform, kind, 4096)
    arguments = (0,) if free == "free_async" else ()
    assert code_of(getattr(platform, free), ptr, *arguments) == answer
    gone = platform.pointer_attributes(ptr).kind is MemoryKind.UNKNOWN
    assert gone == (answer == "cudaSuccess")


def test_a_second_free_after_a_free_that_crossed_kinds_is_refused(platform):
    pooled, plain = allocate(platform, "pool", 4096), platform.malloc(4096)
    platform.free(pooled)
    platform.free_async(plain, 0)
    assert code_of(platform.free_async, pooled, 0) == "cudaErrorInvalidValue"
    assert code_of(platform.free, plain) == "cudaErrorInvalidValue"


@pytest.mark.parametrize("synchronize", [False, True])
def test_a_double_free_async_is_refused_before_and_after_a_synchronise(platform, synchronize):
    ptr = allocate(platform, "pool", 4096)
    platform.free_async(ptr, 0)
    if synchronize:
        platform.synchronize_stream(0, 0)
    assert code_of(platform.free_async, ptr, 0) == "cudaErrorInvalidValue"


def test_memory_of_one_device_is_freed_while_another_is_current(platform):
    blocks = [allocate(platform, kind, 4096) for kind in ("malloc", "pool", "pool", "managed")]
    pinned = platform.host_alloc(64)
    platform.set_current_device(1)
    stream = platform.create_stream(1, non_blocking=False, priority=0)
    platform.free(blocks[0])
    platform.free_async(blocks[1], 0)
    platform.free_async(blocks[2], stream)
    platform.free(blocks[3])
    platform.host_free(pinned)
    assert platform.current_device() == 1


def test_pool_memory_on_another_devices_stream_belongs_to_the_pools_device(platform):
    stream = platform.create_stream(1, non_blocking=False, priority=0)
    ptr = platform.malloc_from_pool(64, platform.default_pool(0), stream)
    assert platform.pointer_attributes(ptr).device == 0


def test_small_blocks_share_a_granule_that_goes_back_with_the_last_of_them(platform):
    total = platform.memory_info(0).total
    first, second = platform.malloc(1), platform.malloc(1000)
    assert platform.memory_info(0).free == total - 2 * MIB
    platform.free(first)
    assert platform.memory_info(0).free == total - 2 * MIB
    platform.free(second)
    assert platform.memory_info(0).free == total


def test_a_full_device_refuses_and_lives_on(platform):
    blocks = []
    while code_of(lambda: blocks.append(platform.malloc(16 * GIB))) == "cudaSuccess":
        pass
    assert len(blocks) == 8
    assert code_of(allocate, platform, "pool", 16 * GIB) == "cudaErrorMemoryAllocation"
    platform.free(blocks.pop())
    assert allocate(platform, "pool", GIB) > 0


def test_malloc_takes_back_what_a_pool_holds_idle(platform):
    pool = platform.default_pool(0)
    platform.set_pool_attribute(pool, PoolAttribute.RELEASE_THRESHOLD, 2**64 - 1)
    most = platform.memory_info(0).free * 7 // 10
    platform.free_async(platform.malloc_from_pool(most, pool, 0), 0)
    platform.synchronize_stream(0, 0)
    assert platform.pool_attribute(pool, PoolAttribute.RESERVED_CURRENT) >= most
    platform.malloc(most)
    assert platform.pool_attribute(pool, PoolAttribute.RESERVED_CURRENT) < most


def test_another_pool_takes_back_what_a_pool_holds_idle(platform):
    pool, other = platform.default_pool(0), platform.create_pool(0)
    platform.set_pool_attribute(pool, PoolAttribute.RELEASE_THRESHOLD, 2**64 - 1)
    most = platform.memory_info(0).free * 7 // 10
    platform.free_async(platform.malloc_from_pool(most, pool, 0), 0)
    platform.synchronize_stream(0, 0)
    assert platform.malloc_from_pool(most, other, 0) > 0
    assert platform.pool_attribute(pool, PoolAttribute.RESERVED_CURRENT) < most


def test_managed_memory_may_exceed_a_device_that_migrates_pages():
    rtx, orin = SimulatedPlatform.from_profile("rtx4090"), SimulatedPlatform.from_profile("jetson-orin")
    assert rtx.malloc_managed(2 * rtx.memory_info(0).total) > 0
    with pytest.raises(PlatformError, match="cudaErrorMemoryAllocation"):
        orin.malloc_managed(2 * orin.memory_info(0).total)


def test_pinned_memory_of_an_integrated_device_is_the_devices_memory():
    orin, discrete = SimulatedPlatform.from_profile("jetson-orin"), SimulatedPlatform.from_profile("rtx4090")
    for platform, share in ((orin, GIB), (discrete, 0)):
        before = platform.memory_info(0).free
        platform.host_alloc(GIB)
        assert before - platform.memory_info(0).free == share


def test_pinned_memory_ends_with_the_hosts():
    platform = SimulatedPlatform.from_profile("wsl")
    with pytest.raises(PlatformError, match="the host has"):
        platform.host_alloc(64 * GIB)


def test_twenty_gigabytes_of_blocks_are_allocated_without_the_host_holding_them(platform):
    pool = platform.create_pool(0)
    for _ in range(5):
        blocks = [platform.malloc_from_pool(MIB * (1 + n % 7), pool, 0) for n in range(5000)]
        for ptr in blocks:
            platform.free_async(ptr, 0)
    assert platform.pool_attribute(pool, PoolAttribute.USED_HIGH) > 18 * GIB


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5 * MIB)), max_size=50))
def test_live_blocks_never_overlap_and_all_memory_comes_back(steps):
    platform = SimulatedPlatform.from_profile("h200")
    total, live = platform.memory_info(0).free, {}
    for allocate_one, number in steps:
        if allocate_one or not live:
            ptr = platform.malloc(number)
            assert all(ptr + number <= other or ptr >= other + size for other, size in live.items())
            live[ptr] = number
        else:
            ptr = sorted(live)[number % len(live)]
            platform.free(ptr)
            del live[ptr]
        assert total - platform.memory_info(0).free >= sum(live.values())
    for ptr in live:
        platform.free(ptr)
    assert platform.memory_info(0).free == total
    platform.close()
