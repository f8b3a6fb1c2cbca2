"""The platform as a whole: its names, its devices and its contexts."""

import pytest

from allotment.errors import PlatformError
from allotment.platform._protocol import Platform
from allotment.platform._values import PoolAccess, PoolAttribute
from allotment.platform.simulated import SimulatedPlatform


def test_it_is_a_platform(platform):
    assert isinstance(platform, Platform)
    assert platform.name == "sim:2xh200"
    assert "NVIDIA H200" in platform.description


def test_platforms_are_independent_of_each_other(platform):
    other = SimulatedPlatform.from_profile("2xh200")
    platform.malloc(2**30)
    assert other.memory_info(0).free == other.memory_info(0).total
    assert len(other.calls.named("malloc")) == 0


def test_queries_open_no_context(platform):
    platform.device_count()
    platform.versions()
    platform.device_properties(1)
    platform.can_access_peer(0, 1)
    pool = platform.default_pool(0)
    platform.pool_attribute(pool, PoolAttribute.USED_CURRENT)
    platform.pool_access(pool, 1)
    platform.pointer_attributes(0)
    platform.current_device()
    assert platform.contexts() == frozenset()
    assert not platform.has_context(0)


@pytest.mark.parametrize(
    "call",
    [
        lambda platform: platform.memory_info(1),
        lambda platform: platform.set_current_device(1),
        lambda platform: platform.create_stream(1, non_blocking=False, priority=0),
        lambda platform: platform.synchronize_device(1),
    ],
    ids=["memory info", "set current device", "create stream", "synchronise"],
)
def test_these_calls_open_the_context_of_their_device(platform, call):
    call(platform)
    assert platform.contexts() == {1}


def test_an_allocation_opens_the_context_of_the_current_device(platform):
    platform.malloc(1)
    assert platform.contexts() == {0}


def test_peer_access_opens_the_peers_context_and_pool_access_does_not(platform):
    platform.set_current_device(0)
    platform.set_pool_access(platform.default_pool(0), 1, PoolAccess.READ_WRITE)
    assert platform.contexts() == {0}
    platform.enable_peer_access(0, 1)
    assert platform.contexts() == {0, 1}


@pytest.mark.parametrize(
    "call",
    [
        lambda platform: platform.device_properties(2),
        lambda platform: platform.set_current_device(2),
        lambda platform: platform.set_current_device(-1),
        lambda platform: platform.memory_info(2),
        lambda platform: platform.can_access_peer(0, 2),
        lambda platform: platform.default_pool(2),
        lambda platform: platform.fill(1, 0, 1, 0, 2),
    ],
    ids=["properties", "current", "negative", "memory", "peer", "pool", "fill"],
)
def test_a_device_that_is_not_there_is_refused(platform, call):
    with pytest.raises(PlatformError, match="cudaErrorInvalidDevice"):
        call(platform)
    assert platform.current_device() == 0


def test_memory_is_given_back_to_the_host_at_the_close(platform):
    platform.malloc(2**30)
    platform.close()
    assert not platform._memory.contains(1)
