"""The recorded cases of sections ``access`` and ``peer``."""

import numpy as np
import pytest

from allotment.errors import PlatformError
from allotment.platform._values import HOST_LOCATION, PoolAccess
from allotment.platform.simulated import SimulatedPlatform


def allocate(platform, kind, nbytes=4096):
    return {
        "malloc": lambda: platform.malloc(nbytes),
        "pool": lambda: platform.malloc_from_pool(nbytes, platform.default_pool(0), 0),
        "managed": lambda: platform.malloc_managed(nbytes),
        "pinned": lambda: platform.host_alloc(nbytes),
    }[kind]()


def grant(platform, *grants):
    if "peer" in grants:
        platform.enable_peer_access(1, 0)
    if "peer reversed" in grants:
        platform.enable_peer_access(0, 1)
    if "pool" in grants:
        platform.set_pool_access(platform.default_pool(0), 1, PoolAccess.READ_WRITE)


@pytest.mark.parametrize("kind", ["malloc", "pool", "managed", "pinned"])
def test_a_kernel_touches_memory_of_its_own_device(platform, kind):
    platform.check_kernel_access(0, allocate(platform, kind), 4096)


@pytest.mark.parametrize("late", [False, True], ids=["granted before", "granted after"])
@pytest.mark.parametrize(
    ("kind", "grants", "works"),
    [
        ("malloc", (), False),
        ("malloc", ("peer",), True),
        ("malloc", ("peer reversed",), False),
        ("malloc", ("pool",), False),
        ("malloc", ("peer", "pool"), True),
        ("pool", (), False),
        ("pool", ("peer",), False),
        ("pool", ("peer reversed",), False),
        ("pool", ("pool",), True),
        ("pool", ("peer", "pool"), True),
        ("managed", (), True),
        ("pinned", (), True),
    ],
)
def test_a_kernel_of_another_device_needs_the_grant_for_the_kind(platform, kind, grants, works, late):
    if not late:
        grant(platform, *grants)
    ptr = allocate(platform, kind)
    if late:
        grant(platform, *grants)
    if works:
        platform.check_kernel_access(1, ptr, 4096)
    else:
        with pytest.raises(PlatformError, match="cudaErrorIllegalAddress"):
            platform.check_kernel_access(1, ptr, 4096)


@pytest.mark.parametrize("kind", ["malloc", "pool"])
def test_a_grant_taken_back_while_memory_is_live_makes_the_next_kernel_fault(platform, kind):
    grant(platform, "peer", "pool")
    ptr = allocate(platform, kind)
    platform.check_kernel_access(1, ptr, 4096)
    platform.disable_peer_access(1, 0)
    platform.set_pool_access(platform.default_pool(0), 1, PoolAccess.NONE)
    with pytest.raises(PlatformError, match="cudaErrorIllegalAddress"):
        platform.check_kernel_access(1, ptr, 4096)


def test_null_freed_memory_and_the_end_of_a_block_fault():
    def null(platform):
        return 0, 1

    def freed(platform):
        ptr = platform.malloc(64 * 2**20)
        platform.free(ptr)
        return ptr, 1

    def past_the_end(platform):
        return platform.malloc(100), 101

    for case in (null, freed, past_the_end):
        platform = SimulatedPlatform.from_profile("h200")
        with pytest.raises(PlatformError, match="cudaErrorIllegalAddress"):
            platform.check_kernel_access(0, *case(platform))


@pytest.mark.parametrize(
    ("profile", "works"),
    [
        ("h200", False),
        ("rtx4090", False),
        ("wsl", False),
        ("jetson-orin", False),
        ("hmm", True),
        ("gh200", True),
        ("gb10", True),
        ("jetson-thor", True),
    ],
)
def test_pageable_memory_is_in_reach_where_the_device_says_so(profile, works):
    platform, array = SimulatedPlatform.from_profile(profile), np.zeros(8)
    if works:
        platform.check_kernel_access(0, array.ctypes.data, 64)
    else:
        with pytest.raises(PlatformError, match="pageable host memory"):
            platform.check_kernel_access(0, array.ctypes.data, 64)


# After a fault


@pytest.fixture(params=[0, 1])
def broken(request, platform):
    """A platform on one of whose devices a kernel faulted; device 0 is current."""
    platform.default_pool(0)
    platform.launch(lambda: platform.check_kernel_access(request.param, 0, 1), 0, request.param)
    return platform


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("memory_info", (0,)),
        ("malloc", (64,)),
        ("malloc_managed", (64,)),
        ("host_alloc", (64,)),
        ("free", (0,)),
        ("free_async", (0, 0)),
        ("host_free", (0,)),
        ("synchronize_stream", (0, 0)),
        ("synchronize_device", (0,)),
        ("stream_is_done", (0, 0)),
    ],
)
def test_after_a_fault_every_call_that_needs_a_gpu_fails_on_every_device(broken, call, arguments):
    for _ in range(2):
        with pytest.raises(PlatformError, match="cudaErrorIllegalAddress"):
            getattr(broken, call)(*arguments)


def test_after_a_fault_queries_still_work(broken):
    pool = broken.default_pool(0)
    broken.set_current_device(0)
    broken.device_properties(0)
    broken.pointer_attributes(0)
    broken.trim_pool(pool, 0)


def test_a_fault_on_a_stream_shows_at_the_synchronise_not_at_the_launch(platform):
    stream = platform.create_stream(0, non_blocking=True, priority=0)
    platform.hold(stream)
    platform.launch(lambda: platform.check_kernel_access(0, 0, 1), stream, 0)
    platform.malloc(64)
    with pytest.raises(PlatformError, match="cudaErrorIllegalAddress"):
        platform.synchronize_stream(stream, 0)
    assert platform.get_last_error() == "cudaErrorIllegalAddress"
    assert platform.get_last_error() == "cudaSuccess"


def test_a_kernel_may_touch_memory_that_is_freed_behind_it_in_its_stream(platform):
    from allotment.platform._values import StridedMemory

    stream = platform.create_stream(0, non_blocking=True, priority=0)
    ptr = platform.malloc_from_pool(64, platform.default_pool(0), stream)
    memory = StridedMemory(ptr, (8,), (8,), np.dtype(np.float64), 0, None)
    with platform.delayed(stream):
        platform.fill_elements(memory, np.float64(1), stream, 0)
        platform.free_async(ptr, stream)
    platform.synchronize_stream(stream, 0)


# The host


@pytest.mark.parametrize(("kind", "works"), [("malloc", False), ("pool", False), ("managed", True), ("pinned", True)])
def test_host_code_reaches_pinned_and_managed_memory_only(platform, kind, works):
    ptr = allocate(platform, kind)
    if works:
        platform.check_host_access(ptr, 4096)
    else:
        with pytest.raises(PlatformError, match="SIGSEGV"):
            platform.check_host_access(ptr, 4096)
    assert platform.get_last_error() == "cudaSuccess"


@pytest.mark.parametrize(("profile", "works"), [("h200", True), ("gb10", True), ("wsl", False), ("jetson-orin", False)])
def test_host_code_touches_managed_memory_during_work_only_where_access_is_concurrent(profile, works):
    platform = SimulatedPlatform.from_profile(profile)
    ptr = platform.malloc_managed(64)
    platform.check_host_access(ptr, 64)
    with platform.delayed(0, 0):
        platform.fill(ptr, 1, 64, 0, 0)
        if works:
            platform.check_host_access(ptr, 64)
        else:
            with pytest.raises(PlatformError, match="while a device was at work"):
                platform.check_host_access(ptr, 64)


# Peer access


def test_peer_calls_answer_as_recorded(platform):
    def code(call, *arguments):
        with pytest.raises(PlatformError) as caught:
            call(*arguments)
        assert platform.get_last_error() == caught.value.code
        return caught.value.code

    assert code(platform.disable_peer_access, 0, 1) == "cudaErrorPeerAccessNotEnabled"
    assert code(platform.enable_peer_access, 0, 0) == "cudaErrorPeerAccessUnsupported"
    assert code(platform.enable_peer_access, 0, 99) == "cudaErrorInvalidDevice"
    platform.enable_peer_access(0, 1)
    assert code(platform.enable_peer_access, 0, 1) == "cudaErrorPeerAccessAlreadyEnabled"
    assert platform.pool_access(platform.default_pool(1), 0) is PoolAccess.NONE
    platform.disable_peer_access(0, 1)
    assert code(platform.disable_peer_access, 0, 1) == "cudaErrorPeerAccessNotEnabled"
    assert code(platform.disable_peer_access, 1, 0) == "cudaErrorPeerAccessNotEnabled"


def test_no_device_is_its_own_peer(platform):
    assert [[platform.can_access_peer(a, b) for b in (0, 1)] for a in (0, 1)] == [[False, True], [True, False]]


def test_peers_that_the_hardware_does_not_connect_are_refused(tmp_path):
    from allotment.platform.simulated import _profile

    text = (_profile._folder() / "2xl40.toml").read_text()
    file = tmp_path / "apart.toml"
    file.write_text(text.replace("[[false, true], [true, false]]", "[[false, false], [false, false]]"))
    platform = SimulatedPlatform.from_profile(file)
    with pytest.raises(PlatformError, match="cudaErrorPeerAccessUnsupported"):
        platform.enable_peer_access(0, 1)
    with pytest.raises(PlatformError, match="cudaErrorInvalidDevice"):
        platform.set_pool_access(platform.default_pool(0), 1, PoolAccess.READ_WRITE)


@pytest.mark.parametrize("own", [False, True], ids=["default pool", "own pool"])
def test_pool_access_calls_answer_as_recorded(platform, own):
    pool = platform.create_pool(0) if own else platform.default_pool(0)

    def code(ordinal, access):
        try:
            platform.set_pool_access(pool, ordinal, access)
        except PlatformError as error:
            return error.code
        return "cudaSuccess"

    at_first = [platform.pool_access(pool, place) for place in (0, 1, HOST_LOCATION)]
    assert at_first == [PoolAccess.READ_WRITE, PoolAccess.NONE, PoolAccess.NONE]
    with pytest.raises(PlatformError, match="cudaErrorInvalidValue"):
        platform.pool_access(pool, 99)
    assert code(0, PoolAccess.NONE) == "cudaErrorInvalidDevice"
    assert code(0, PoolAccess.READ_WRITE) == "cudaSuccess"
    assert code(HOST_LOCATION, PoolAccess.READ_WRITE) == "cudaErrorNotSupported"
    assert code(HOST_LOCATION, PoolAccess.NONE) == "cudaErrorNotSupported"
    assert code(99, PoolAccess.READ_WRITE) == "cudaErrorInvalidDevice"
    assert code(1, PoolAccess.NONE) == "cudaSuccess"
    for _ in range(2):
        assert code(1, PoolAccess.READ_WRITE) == "cudaSuccess"
        assert platform.pool_access(pool, 1) is PoolAccess.READ_WRITE
    assert code(1, PoolAccess.NONE) == "cudaSuccess"
    assert platform.pool_access(pool, 1) is PoolAccess.NONE


def test_a_kernel_on_a_stream_of_another_device_is_refused(platform):
    stream = platform.create_stream(1, non_blocking=False, priority=0)
    with pytest.raises(PlatformError, match="cudaErrorInvalidResourceHandle"):
        platform.launch(lambda: None, stream, 0)


def test_a_kernel_is_refused_after_a_fault(broken):
    with pytest.raises(PlatformError, match="cudaErrorIllegalAddress"):
        broken.launch(lambda: None, 0, 0)
