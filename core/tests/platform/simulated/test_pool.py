"""The recorded cases of section ``pool``."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allotment.errors import PlatformError
from allotment.memory_kind import MemoryKind
from allotment.platform._values import PoolAttribute
from allotment.platform.simulated import SimulatedPlatform, load_profile

MIB = 2**20
BLOCK = 32 * MIB
NO_LIMIT = 2**64 - 1


def state(platform, pool):
    """Return reserved, its high mark, used and its high mark."""
    names = ("RESERVED_CURRENT", "RESERVED_HIGH", "USED_CURRENT", "USED_HIGH")
    return tuple(platform.pool_attribute(pool, PoolAttribute[name]) for name in names)


@pytest.fixture(params=["default", "own"])
def pool(request, platform):
    return platform.default_pool(0) if request.param == "default" else platform.create_pool(0)


@pytest.mark.parametrize(
    ("nbytes", "one", "two", "first_freed"),
    [
        (1, 1, 1, 1),
        (513, 1, 1, 1),
        (3 * MIB, 1, 1, 1),
        (32 * MIB, 1, 2, 1),
        (33 * MIB, 2, 3, 2),
        (40 * MIB, 2, 3, 2),
        (100 * MIB, 4, 7, 4),
        (1024 * MIB, 32, 64, 32),
    ],
)
def test_used_counts_requests_and_reserved_counts_blocks(platform, pool, nbytes, one, two, first_freed):
    first = platform.malloc_from_pool(nbytes, pool, 0)
    assert state(platform, pool) == (one * BLOCK, one * BLOCK, nbytes, nbytes)
    second = platform.malloc_from_pool(nbytes, pool, 0)
    assert state(platform, pool) == (two * BLOCK, two * BLOCK, 2 * nbytes, 2 * nbytes)
    platform.free_async(first, 0)
    assert state(platform, pool) == (two * BLOCK, two * BLOCK, nbytes, 2 * nbytes)
    platform.synchronize_stream(0, 0)
    assert state(platform, pool) == (first_freed * BLOCK, two * BLOCK, nbytes, 2 * nbytes)
    platform.free_async(second, 0)
    assert state(platform, pool) == (first_freed * BLOCK, two * BLOCK, 0, 2 * nbytes)
    platform.synchronize_stream(0, 0)
    assert state(platform, pool) == (0, two * BLOCK, 0, 2 * nbytes)
    assert platform.malloc_from_pool(nbytes, pool, 0) == first


@pytest.mark.parametrize(
    ("threshold", "after_each_free", "after_trims"),
    [
        (0, (96, 64, 32, 0), (0, 0, 0)),
        (64 * MIB, (96, 64, 64, 64), (64, 32, 0)),
        (NO_LIMIT, (160, 160, 160, 160), (64, 32, 0)),
    ],
)
def test_the_threshold_is_kept_at_a_synchronise_and_trims_keep_whole_blocks(
    platform, pool, threshold, after_each_free, after_trims
):
    platform.set_pool_attribute(pool, PoolAttribute.RELEASE_THRESHOLD, threshold)
    assert platform.pool_attribute(pool, PoolAttribute.RELEASE_THRESHOLD) == threshold
    blocks = [platform.malloc_from_pool(size * MIB, pool, 0) for size in (1, 40, 100, 1)]
    assert state(platform, pool)[0] == 160 * MIB
    for index, reserved in zip((2, 1, 0, 3), after_each_free, strict=True):
        platform.free_async(blocks[index], 0)
        platform.synchronize_stream(0, 0)
        assert state(platform, pool)[0] == reserved * MIB
    for keep, reserved in zip((48, 1, 0), after_trims, strict=True):
        platform.trim_pool(pool, keep * MIB)
        assert state(platform, pool)[0] == reserved * MIB


def test_resetting_a_high_mark_sets_it_to_the_present_value(platform, pool):
    kept, gone = (platform.malloc_from_pool(40 * MIB, pool, 0) for _ in range(2))
    platform.free_async(gone, 0)
    platform.synchronize_stream(0, 0)
    platform.set_pool_attribute(pool, PoolAttribute.RESERVED_HIGH, 0)
    platform.set_pool_attribute(pool, PoolAttribute.USED_HIGH, 0)
    assert state(platform, pool) == (64 * MIB, 64 * MIB, 40 * MIB, 40 * MIB)
    platform.free_async(kept, 0)
    platform.synchronize_stream(0, 0)
    assert state(platform, pool) == (0, 64 * MIB, 0, 40 * MIB)


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("RESERVED_HIGH", 1),
        ("USED_HIGH", 1),
        ("USED_CURRENT", 0),
        ("RESERVED_CURRENT", 0),
        ("RELEASE_THRESHOLD", 2**64),
    ],
)
def test_accounts_cannot_be_set(platform, pool, attribute, value):
    with pytest.raises(PlatformError, match="cudaErrorInvalidValue"):
        platform.set_pool_attribute(pool, PoolAttribute[attribute], value)


def test_a_new_pool_allows_all_reuse_and_keeps_nothing(platform, pool):
    reuse = [attribute for attribute in PoolAttribute if attribute.name.startswith("REUSE")]
    assert [platform.pool_attribute(pool, attribute) for attribute in reuse] == [1, 1, 1]
    assert platform.pool_attribute(pool, PoolAttribute.RELEASE_THRESHOLD) == 0


def test_the_default_pool_stays_the_same(platform):
    assert platform.default_pool(0) == platform.default_pool(0) != platform.default_pool(1)


# What releases


@pytest.fixture
def idle(platform, pool):
    """A pool whose only block was freed on a stream, and that stream."""
    stream = platform.create_stream(0, non_blocking=False, priority=0)
    platform.free_async(platform.malloc_from_pool(100 * MIB, pool, stream), stream)
    return pool, stream


def synchronize_event(platform, stream):
    event = platform.create_event(0)
    platform.record_event(event, stream, 0)
    platform.synchronize_event(event)


@pytest.mark.parametrize(
    "synchronize",
    [
        lambda platform, stream: platform.synchronize_stream(stream, 0),
        lambda platform, stream: platform.synchronize_device(0),
        synchronize_event,
    ],
    ids=["stream", "device", "event"],
)
def test_a_synchronise_releases(platform, idle, synchronize):
    pool, stream = idle
    synchronize(platform, stream)
    assert state(platform, pool)[0] == 0


def synchronize_another(platform, stream):
    platform.synchronize_stream(platform.create_stream(0, non_blocking=True, priority=0), 0)


@pytest.mark.parametrize(
    "call",
    [
        lambda platform, stream: platform.stream_is_done(stream, 0),
        lambda platform, stream: platform.free(platform.malloc(4096)),
        lambda platform, stream: platform.memory_info(0),
        lambda platform, stream: platform.fill(platform.malloc(4096), 0, 4096, 0, 0),
        lambda platform, stream: platform.synchronize_device(1),
        synchronize_another,
    ],
    ids=["query", "malloc and free", "memory info", "memset", "other device", "other stream"],
)
def test_nothing_else_releases(platform, idle, call):
    pool, stream = idle
    call(platform, stream)
    assert state(platform, pool)[0] == 128 * MIB


def test_a_trim_does_not_take_memory_that_held_work_may_touch(platform, pool):
    stream = platform.create_stream(0, non_blocking=True, priority=0)
    ptr = platform.malloc_from_pool(32 * MIB, pool, stream)
    with platform.delayed(stream):
        platform.fill(ptr, 1, 32 * MIB, stream, 0)
        platform.free_async(ptr, stream)
        platform.trim_pool(pool, 0)
        assert state(platform, pool)[0] == BLOCK
    platform.trim_pool(pool, 0)
    assert state(platform, pool)[0] == 0


# Reuse


@pytest.fixture
def streams(platform):
    return [platform.create_stream(0, non_blocking=True, priority=0) for _ in range(2)]


def reuse(platform, pool, nbytes, freeing, allocating, between=lambda: None):
    """Return whether memory freed on one stream is handed out again on another, and what is reserved then."""
    ptr = platform.malloc_from_pool(nbytes, pool, freeing)
    platform.free_async(ptr, freeing)
    between()
    again = platform.malloc_from_pool(nbytes, pool, allocating)
    return again == ptr, state(platform, pool)[0]


@pytest.mark.parametrize(("nbytes", "fresh"), [(8 * MIB, BLOCK), (32 * MIB, 2 * BLOCK)])
class TestReuse:
    def test_the_same_stream_gets_its_memory_back_at_once(self, platform, pool, streams, nbytes, fresh):
        assert reuse(platform, pool, nbytes, streams[0], streams[0]) == (True, BLOCK)

    def test_another_stream_gets_it_when_the_first_is_idle(self, platform, pool, streams, nbytes, fresh):
        assert reuse(platform, pool, nbytes, *streams) == (True, BLOCK)

    def test_another_stream_does_not_get_it_while_the_first_is_busy(self, platform, pool, streams, nbytes, fresh):
        platform.hold(streams[0])
        assert reuse(platform, pool, nbytes, *streams) == (False, fresh)

    def test_another_stream_gets_it_after_it_waited(self, platform, pool, streams, nbytes, fresh):
        platform.hold(streams[0])

        def wait():
            platform.wait_for_stream(streams[1], streams[0], 0, 0)

        assert reuse(platform, pool, nbytes, *streams, between=wait) == (True, BLOCK)
        assert not platform.stream_is_done(streams[1], 0)

    def test_a_wait_from_before_the_free_does_not_count(self, platform, pool, streams, nbytes, fresh):
        platform.hold(streams[0])
        platform.wait_for_stream(streams[1], streams[0], 0, 0)
        assert reuse(platform, pool, nbytes, *streams) == (False, fresh)

    def test_without_opportunism_an_idle_stream_does_not_suffice(self, platform, pool, streams, nbytes, fresh):
        platform.set_pool_attribute(pool, PoolAttribute.REUSE_ALLOW_OPPORTUNISTIC, 0)
        assert reuse(platform, pool, nbytes, *streams) == (False, fresh)

    def test_without_opportunism_a_synchronise_suffices(self, platform, pool, streams, nbytes, fresh):
        platform.set_pool_attribute(pool, PoolAttribute.REUSE_ALLOW_OPPORTUNISTIC, 0)

        def synchronize():
            platform.synchronize_stream(streams[0], 0)

        assert reuse(platform, pool, nbytes, *streams, between=synchronize) == (True, BLOCK)

    def test_the_same_stream_gets_it_back_with_all_reuse_off(self, platform, pool, streams, nbytes, fresh):
        for attribute in PoolAttribute:
            if attribute.name.startswith("REUSE"):
                platform.set_pool_attribute(pool, attribute, 0)
        assert reuse(platform, pool, nbytes, streams[0], streams[0]) == (True, BLOCK)


def test_a_full_device_makes_a_stream_wait_for_the_memory_of_another(platform, pool, streams):
    most = platform.memory_info(0).free * 7 // 10
    ptr = platform.malloc_from_pool(most, pool, streams[0])
    with platform.delayed(streams[0]):
        platform.free_async(ptr, streams[0])
        assert platform.malloc_from_pool(most, pool, streams[1]) == ptr
        assert not platform.stream_is_done(streams[1], 0)
    assert platform.stream_is_done(streams[1], 0)


def test_without_internal_dependencies_a_full_device_refuses(platform, pool, streams):
    platform.set_pool_attribute(pool, PoolAttribute.REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0)
    most = platform.memory_info(0).free * 7 // 10
    ptr = platform.malloc_from_pool(most, pool, streams[0])
    platform.hold(streams[0])
    platform.free_async(ptr, streams[0])
    with pytest.raises(PlatformError, match="cudaErrorMemoryAllocation"):
        platform.malloc_from_pool(most, pool, streams[1])


# Life and death


def test_memory_of_a_destroyed_pool_stays_valid_until_it_is_freed(platform, read):
    pool, free = platform.create_pool(0), platform.memory_info(0).free
    ptr = platform.malloc_from_pool(MIB, pool, 0)
    platform.destroy_pool(pool)
    platform.fill(ptr, 9, MIB, 0, 0)
    assert (read(ptr, MIB) == 9).all()
    assert platform.pointer_attributes(ptr).kind is MemoryKind.CUDA_MEMPOOL
    platform.free_async(ptr, 0)
    assert platform.memory_info(0).free == free


def test_a_destroyed_pool_waits_for_work_on_memory_freed_in_its_order(platform, streams):
    pool = platform.create_pool(0)
    ptr = platform.malloc_from_pool(MIB, pool, streams[0])
    with platform.delayed(streams[0]):
        platform.fill(ptr, 1, MIB, streams[0], 0)
        platform.free_async(ptr, streams[0])
        platform.destroy_pool(pool)
        assert platform.memory_info(0).free < platform.memory_info(0).total
    assert platform.memory_info(0).free == platform.memory_info(0).total


def test_a_pool_is_destroyed_once_and_the_default_pool_never(platform):
    pool = platform.create_pool(0)
    platform.destroy_pool(pool)
    for refused in (pool, platform.default_pool(0)):
        with pytest.raises(PlatformError, match="cudaErrorInvalidValue"):
            platform.destroy_pool(refused)


def test_a_handle_is_given_out_again_once_its_pool_is_gone(platform):
    pool = platform.create_pool(0)
    platform.destroy_pool(pool)
    assert platform.create_pool(1) == pool


def test_the_handle_of_a_destroyed_pool_with_live_memory_is_not_given_out(platform):
    pool = platform.create_pool(0)
    platform.malloc_from_pool(64, pool, 0)
    platform.destroy_pool(pool)
    assert platform.create_pool(0) != pool


def test_pools_are_refused_where_the_device_has_none():
    platform = SimulatedPlatform.from_profile("no-pools")
    for call in (platform.create_pool, platform.default_pool):
        with pytest.raises(PlatformError, match="cudaErrorNotSupported"):
            call(0)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["allocate", "allocate", "free", "free", "hold", "release", "wait", "synchronize", "trim"]),
        st.integers(1, 70 * MIB),
        st.integers(0, 2),
    ),
    max_size=60,
)


@settings(max_examples=80, deadline=None)
@given(STEPS, st.sampled_from([0, 64 * MIB, NO_LIMIT]))
def test_accounts_hold_and_live_blocks_never_overlap(steps, threshold):
    platform = SimulatedPlatform.from_profile("h200")
    pool = platform.create_pool(0)
    platform.set_pool_attribute(pool, PoolAttribute.RELEASE_THRESHOLD, threshold)
    streams = [platform.create_stream(0, non_blocking=True, priority=0) for _ in range(3)]
    live = {}
    for step, number, who in steps:
        if step == "allocate":
            ptr = platform.malloc_from_pool(number, pool, streams[who])
            assert all(ptr + number <= other or ptr >= other + size for other, size in live.items())
            live[ptr] = number
        elif step == "free" and live:
            ptr = sorted(live)[number % len(live)]
            platform.free_async(ptr, streams[who])
            del live[ptr]
        elif step in ("hold", "release"):
            getattr(platform, step)(streams[who])
        elif step == "wait":
            platform.wait_for_stream(streams[who], streams[number % 3], 0, 0)
        elif step == "synchronize":
            platform.synchronize_stream(streams[who], 0)
        elif step == "trim":
            platform.trim_pool(pool, number)
        reserved, reserved_high, used, used_high = state(platform, pool)
        assert used == sum(live.values()) <= reserved <= reserved_high
        assert used <= used_high
        assert reserved % BLOCK == 0
        assert platform.memory_info(0).free == platform.memory_info(0).total - reserved
    for ptr in live:
        platform.free_async(ptr, streams[0])
    platform.synchronize_device(0)
    platform.trim_pool(pool, 0)
    assert state(platform, pool)[0] == 0
    platform.close()


SMALL_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["allocate", "allocate", "free", "hold", "release", "wait", "synchronize"]),
        st.integers(1, 60 * MIB),
        st.integers(0, 2),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(SMALL_STEPS)
def test_no_work_on_any_stream_ever_sees_the_data_of_another_block(steps):
    """Each block is written after its allocation and read before its free, in the order of its stream."""
    platform = SimulatedPlatform(small_device())
    pool = platform.create_pool(0)
    streams = [platform.create_stream(0, non_blocking=True, priority=0) for _ in range(3)]
    live, reads = [], []

    def free(ptr, number, stream):
        out = np.zeros(1, np.uint32)
        platform.copy(out.ctypes.data, ptr, 4, stream, 0)
        platform.free_async(ptr, stream)
        reads.append((out, number))

    for number, (step, size, who) in enumerate(steps, start=1):
        stream = streams[who]
        if step == "allocate":
            try:
                ptr = platform.malloc_from_pool(max(4, size), pool, stream)
            except PlatformError:
                continue
            data = np.array([number], np.uint32)
            platform.copy(ptr, data.ctypes.data, 4, stream, 0)
            live.append((ptr, number, stream))
        elif step == "free" and live:
            free(*live.pop(size % len(live)))
        elif step in ("hold", "release"):
            getattr(platform, step)(stream)
        elif step == "wait":
            platform.wait_for_stream(stream, streams[size % 3], 0, 0)
        elif step == "synchronize":
            platform.synchronize_stream(stream, 0)
    for block in live:
        free(*block)
    platform.synchronize_device(0)
    assert [int(out[0]) for out, _ in reads] == [number for _, number in reads]
    platform.close()


def small_device():
    """Return a profile with so little memory that streams must take it from each other."""
    profile = load_profile("h200")
    device = dataclasses.replace(profile.devices[0], total_memory=160 * MIB)
    return dataclasses.replace(profile, devices=(device,))
