"""The recorded cases of sections ``copy`` and ``managed``."""

import itertools

import numpy as np
import pytest

from allotment.errors import PlatformError
from allotment.platform._values import HOST_LOCATION, MemoryAdvice, PoolAccess, StridedMemory
from allotment.platform.simulated import SimulatedPlatform

SIZE = 4096
ENDS = ["malloc 0", "pool 0", "malloc 1", "pool 1", "managed", "pinned", "pageable"]


class Scene:
    """One block of each kind, the source filled with numbers and the destination with zeros."""

    def __init__(self, platform, grants):
        self.platform = platform
        self.streams = [platform.create_stream(n, non_blocking=True, priority=0) for n in (0, 1)]
        for ordinal, other in ((0, 1), (1, 0)):
            if "peer" in grants:
                platform.enable_peer_access(ordinal, other)
            if "pool" in grants:
                platform.set_pool_access(platform.default_pool(ordinal), other, PoolAccess.READ_WRITE)
        self.arrays = []

    def make(self, kind, data):
        platform = self.platform
        if kind == "pageable":
            self.arrays.append(data.copy())
            return self.arrays[-1].ctypes.data
        ordinal = int(kind[-1]) if kind[-1].isdigit() else 0
        platform.set_current_device(ordinal)
        ptr = {
            "malloc": lambda: platform.malloc(SIZE),
            "pool": lambda: platform.malloc_from_pool(SIZE, platform.default_pool(ordinal), 0),
            "managed": lambda: platform.malloc_managed(SIZE),
            "pinned": lambda: platform.host_alloc(SIZE),
        }[kind.split()[0]]()
        platform.copy(ptr, data.ctypes.data, SIZE, self.streams[ordinal], ordinal)
        return ptr

    def read(self, kind, ptr):
        out, ordinal = np.empty(SIZE, np.uint8), int(kind[-1]) if kind[-1].isdigit() else 0
        self.platform.copy(out.ctypes.data, ptr, SIZE, self.streams[ordinal], ordinal)
        return out


@pytest.fixture
def numbers():
    return (np.arange(SIZE) % 251).astype(np.uint8)


def allowed(kind, ordinal, grants):
    return not kind.startswith("pool") or kind.endswith(str(ordinal)) or "pool" in grants


@pytest.mark.parametrize("grants", [(), ("peer",), ("pool",), ("peer", "pool")], ids=str)
@pytest.mark.parametrize("ordinal", [0, 1])
def test_a_copy_is_refused_exactly_where_the_streams_device_may_not_touch_a_pool(platform, numbers, grants, ordinal):
    scene = Scene(platform, grants)
    for source, target in itertools.product(ENDS, ENDS):
        src, dst = scene.make(source, numbers), scene.make(target, np.zeros(SIZE, np.uint8))
        if allowed(source, ordinal, grants) and allowed(target, ordinal, grants):
            platform.copy(dst, src, SIZE, scene.streams[ordinal], ordinal)
            assert (scene.read(target, dst) == numbers).all()
        else:
            with pytest.raises(PlatformError, match="cudaErrorInvalidValue"):
                platform.copy(dst, src, SIZE, scene.streams[ordinal], ordinal)
            assert not scene.read(target, dst).any()


@pytest.mark.parametrize("ordinal", [0, 1])
def test_a_peer_copy_needs_no_grant_and_takes_no_pageable_memory(platform, numbers, ordinal):
    scene = Scene(platform, ())
    for source, target in itertools.product(ENDS, ENDS):
        src, dst = scene.make(source, numbers), scene.make(target, np.zeros(SIZE, np.uint8))
        of, to = int(source.endswith("1")), int(target.endswith("1"))
        if "pageable" in (source, target):
            with pytest.raises(PlatformError, match="cudaErrorInvalidValue"):
                platform.copy_peer(dst, to, src, of, SIZE, scene.streams[ordinal])
        else:
            platform.copy_peer(dst, to, src, of, SIZE, scene.streams[ordinal])
            assert (scene.read(target, dst) == numbers).all()


def test_a_peer_copy_is_refused_where_it_names_a_device_that_may_not_touch_the_pool(platform, numbers):
    scene = Scene(platform, ())
    src, dst = scene.make("pool 0", numbers), scene.make("pool 1", numbers)
    for to, of in ((0, 1), (0, 0), (1, 1)):
        with pytest.raises(PlatformError, match="cudaErrorInvalidValue"):
            platform.copy_peer(dst, to, src, of, SIZE, 0)


def test_a_copy_out_of_freed_memory_says_that_it_would_end_the_process(platform, numbers):
    scene = Scene(platform, ())
    src = scene.make("malloc 0", numbers)
    platform.free(src)
    with pytest.raises(PlatformError, match="SIGSEGV"):
        platform.copy(numbers.ctypes.data, src, SIZE, 0, 0)


def test_access_to_one_pool_opens_copies_in_both_directions(platform, numbers):
    scene = Scene(platform, ())
    platform.set_pool_access(platform.default_pool(0), 1, PoolAccess.READ_WRITE)
    src, dst = scene.make("pool 0", numbers), scene.make("pool 1", numbers)
    platform.copy(dst, src, SIZE, scene.streams[1], 1)
    platform.copy(src, dst, SIZE, scene.streams[1], 1)
    with pytest.raises(PlatformError):
        platform.copy(dst, src, SIZE, scene.streams[0], 0)


@pytest.mark.parametrize("kind", ["malloc 0", "pool 0"])
def test_memory_that_is_gone_is_refused(platform, numbers, kind):
    scene = Scene(platform, ())
    ptr = scene.make(kind, numbers)
    platform.free(ptr)
    for call in (
        lambda: platform.copy(numbers.ctypes.data, ptr, SIZE, 0, 0),
        lambda: platform.copy(ptr, numbers.ctypes.data, SIZE, 0, 0),
        lambda: platform.fill(ptr, 0, SIZE, 0, 0),
    ):
        with pytest.raises(PlatformError, match="nothing is live"):
            call()


def test_a_copy_past_the_end_of_a_block_is_refused(platform, numbers):
    with pytest.raises(PlatformError, match="run past a block"):
        platform.copy(platform.malloc(100), numbers.ctypes.data, 101, 0, 0)


def test_no_bytes_are_copied_from_anywhere(platform):
    platform.copy(0, 0, 0, 0, 0)
    platform.copy_peer(0, 0, 0, 1, 0, 0)
    platform.fill(0, 0, 0, 0, 0)


def test_pageable_memory_is_read_before_the_call_returns_and_written_when_the_stream_gets_there(platform):
    stream = platform.create_stream(0, non_blocking=True, priority=0)
    source, target = np.full(8, 5, np.uint8), np.zeros(8, np.uint8)
    ptr = platform.malloc(8)
    with platform.delayed(stream):
        platform.copy(ptr, source.ctypes.data, 8, stream, 0)
        source[:] = 9
        platform.copy(target.ctypes.data, ptr, 8, stream, 0)
        assert not target.any()
    assert (target == 5).all()


def test_pinned_memory_is_read_when_the_stream_gets_there(platform, read):
    stream = platform.create_stream(0, non_blocking=True, priority=0)
    pinned, ptr = platform.host_alloc(8), platform.malloc(8)
    with platform.delayed(stream):
        platform.copy(ptr, pinned, 8, stream, 0)
        platform.fill(pinned, 9, 8, 0, 0)
    assert (read(ptr, 8) == 9).all()


# Fills


@pytest.mark.parametrize("kind", ENDS)
@pytest.mark.parametrize("ordinal", [0, 1])
def test_a_memset_wants_the_owners_device(platform, numbers, kind, ordinal):
    scene = Scene(platform, ("peer", "pool"))
    ptr = scene.make(kind, numbers)
    if kind in ("managed", "pinned") or kind.endswith(str(ordinal)):
        platform.fill(ptr, 0x1FF, SIZE, scene.streams[ordinal], ordinal)
        assert (scene.read(kind, ptr) == 0xFF).all()
    else:
        with pytest.raises(PlatformError, match="cudaErrorInvalidValue"):
            platform.fill(ptr, 0, SIZE, scene.streams[ordinal], ordinal)


# Elements


def strided(ptr, shape, strides, dtype=np.float32, device=0):
    return StridedMemory(ptr, shape, strides, np.dtype(dtype), device, None)


def test_elements_are_copied_between_layouts(platform, read):
    data = np.arange(12, dtype=np.float32).reshape(3, 4)
    src, dst = platform.malloc(48), platform.malloc(48)
    platform.copy(src, data.ctypes.data, 48, 0, 0)
    platform.copy_elements(strided(dst, (4, 3), (12, 4)), strided(src, (4, 3), (4, 16)), 0, 0)
    assert (read(dst, 48).view(np.float32).reshape(4, 3) == data.T).all()


def test_elements_are_read_against_the_order_of_memory(platform, read):
    data = np.arange(4, dtype=np.float32)
    src, dst = platform.malloc(16), platform.malloc(16)
    platform.copy(src, data.ctypes.data, 16, 0, 0)
    platform.copy_elements(strided(dst, (4,), (4,)), strided(src + 12, (4,), (-4,)), 0, 0)
    assert read(dst, 16).view(np.float32).tolist() == [3, 2, 1, 0]


def test_elements_are_set_and_the_gaps_are_not(platform, read):
    ptr = platform.malloc(32)
    platform.fill(ptr, 0, 32, 0, 0)
    platform.fill_elements(strided(ptr, (4,), (8,)), np.float32(2), 0, 0)
    assert read(ptr, 32).view(np.float32).tolist() == [2, 0, 2, 0, 2, 0, 2, 0]


def test_no_elements_touch_no_memory(platform):
    platform.fill_elements(strided(0, (0, 3), (12, 4)), np.float32(2), 0, 0)
    platform.synchronize_device(0)


def test_elements_out_of_reach_fault_at_the_next_call(platform):
    ptr = platform.malloc(32)
    platform.fill_elements(strided(ptr, (8,), (4,)), np.float32(2), 0, 1)
    with pytest.raises(PlatformError, match="cudaErrorIllegalAddress"):
        platform.synchronize_device(1)


def test_elements_past_the_end_of_a_block_fault(platform):
    ptr = platform.malloc(32)
    platform.fill_elements(strided(ptr, (9,), (4,)), np.float32(2), 0, 0)
    with pytest.raises(PlatformError, match="cudaErrorIllegalAddress"):
        platform.synchronize_device(0)


# Managed memory

SET_PREFERRED, UNSET_PREFERRED = MemoryAdvice.SET_PREFERRED_LOCATION, MemoryAdvice.UNSET_PREFERRED_LOCATION


@pytest.mark.parametrize("advice", MemoryAdvice)
@pytest.mark.parametrize("place", [0, 1, HOST_LOCATION, 99])
def test_advice_is_refused_only_for_a_place_that_is_not_there(platform, advice, place):
    ptr = platform.malloc_managed(SIZE)
    about_a_place = advice not in (MemoryAdvice.SET_READ_MOSTLY, MemoryAdvice.UNSET_READ_MOSTLY, UNSET_PREFERRED)
    if place == 99 and about_a_place:
        with pytest.raises(PlatformError, match="cudaErrorInvalidValue"):
            platform.advise(ptr, SIZE, advice, place)
    else:
        platform.advise(ptr, SIZE, advice, place)


def test_advice_and_prefetch_can_be_read_back(platform):
    ptr = platform.malloc_managed(SIZE)
    state = platform.managed_state(ptr)
    assert (state.read_mostly, state.preferred_location, state.accessed_by, state.last_prefetch) == (
        False,
        -2,
        set(),
        -2,
    )
    platform.advise(ptr, SIZE, MemoryAdvice.SET_READ_MOSTLY, 0)
    platform.advise(ptr, SIZE, SET_PREFERRED, HOST_LOCATION)
    platform.advise(ptr, SIZE, MemoryAdvice.SET_ACCESSED_BY, 1)
    platform.prefetch(ptr, SIZE, 1, 0, 0)
    state = platform.managed_state(ptr)
    assert (state.read_mostly, state.preferred_location, state.accessed_by, state.last_prefetch) == (True, -1, {1}, 1)


@pytest.mark.parametrize("kind", ["malloc 0", "pool 0", "pinned", "pageable"])
def test_only_managed_memory_is_advised_and_prefetched(platform, numbers, kind):
    ptr = Scene(platform, ()).make(kind, numbers)
    for call in (
        lambda: platform.advise(ptr, SIZE, SET_PREFERRED, 0),
        lambda: platform.prefetch(ptr, SIZE, 0, 0, 0),
    ):
        with pytest.raises(PlatformError, match="cudaErrorInvalidValue"):
            call()


def test_a_prefetch_goes_to_a_place_that_exists_and_stays_in_the_block(platform):
    ptr = platform.malloc_managed(SIZE)
    with pytest.raises(PlatformError, match="cudaErrorInvalidDevice"):
        platform.prefetch(ptr, SIZE, 99, 0, 0)
    with pytest.raises(PlatformError, match="cudaErrorInvalidValue"):
        platform.prefetch(ptr, SIZE + 1, 0, 0, 0)


@pytest.mark.parametrize("profile", ["wsl", "jetson-orin"])
def test_places_without_concurrent_access_are_refused(profile):
    platform = SimulatedPlatform.from_profile(profile)
    ptr = platform.malloc_managed(SIZE)
    for call in (
        lambda: platform.advise(ptr, SIZE, SET_PREFERRED, 0),
        lambda: platform.advise(ptr, SIZE, MemoryAdvice.SET_ACCESSED_BY, 0),
        lambda: platform.prefetch(ptr, SIZE, 0, 0, 0),
        lambda: platform.prefetch(ptr, SIZE, HOST_LOCATION, 0, 0),
    ):
        with pytest.raises(PlatformError, match="cudaErrorInvalidDevice"):
            call()
    platform.advise(ptr, SIZE, SET_PREFERRED, HOST_LOCATION)


def test_system_memory_is_advised_where_the_device_shares_page_tables():
    platform, array = SimulatedPlatform.from_profile("gh200"), np.zeros(8)
    platform.advise(array.ctypes.data, 64, SET_PREFERRED, 0)
    platform.prefetch(array.ctypes.data, 64, 0, 0, 0)


def test_managed_memory_is_refused_where_the_device_has_none(tmp_path):
    from allotment.platform.simulated import _profile

    file = tmp_path / "bare.toml"
    text = (_profile._folder() / "h200.toml").read_text()
    file.write_text(text.replace("\nmanaged_memory = true", "\nmanaged_memory = false"))
    with pytest.raises(PlatformError, match="cudaErrorNotSupported"):
        SimulatedPlatform.from_profile(file).malloc_managed(64)


def test_host_and_devices_see_each_others_writes_in_managed_memory(platform):
    import ctypes

    ptr = platform.malloc_managed(8)
    ctypes.memset(ptr, 3, 8)
    out = np.zeros(8, np.uint8)
    platform.copy(out.ctypes.data, ptr, 8, 0, 1)
    assert (out == 3).all()
    platform.fill(ptr, 4, 8, 0, 1)
    assert ctypes.string_at(ptr, 8) == b"\4" * 8
