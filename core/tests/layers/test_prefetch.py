"""Managed memory that is moved to where it is going to be used."""

from __future__ import annotations

import pytest

import allotment as al


def prefetches(simulated):
    """Return location and stream of each move."""
    return [
        (call.arguments["location"], call.arguments["stream"]) for call in simulated.calls if call.name == "prefetch"
    ]


@pytest.mark.parametrize(("said", "location"), [("prefetch", 0), ({"prefetch": "host"}, -1)])
def test_a_new_block_is_moved_in_the_order_of_the_stream_in_force(sim, said, location):
    account, stream = al.get_allocator("managed", "cuda:0", layers=[said]), al.Stream("cuda:0")
    with al.ScopedStream(stream):
        account.allocate(1000)

    assert prefetches(sim) == [(location, stream.handle)]


def test_memory_of_the_fallback_is_not_moved(sim):
    layers = [{"fallback": "default"}, {"limit": 0}, "prefetch"]
    al.get_allocator("managed", "cuda:0", layers=layers).allocate(1000)

    assert prefetches(sim) == []


def test_a_block_that_cannot_be_moved_goes_back(sim):
    account = al.get_allocator("managed", "cuda:0", layers=["prefetch"])
    sim.fail("prefetch", code="cudaErrorUnknown")
    with pytest.raises(al.PlatformError):
        account.allocate(1000)

    assert [call.name for call in sim.calls][-1] == "free"
    assert account.statistics().current == 0


def test_memory_that_is_not_managed_is_refused(sim):
    with pytest.raises(al.UnsupportedError, match="allocator 'default' hands out CUDA_DEVICE memory"):
        al.get_allocator("default", "cuda:0", layers=["prefetch"])


def test_a_device_without_concurrent_managed_access_is_refused():
    with al.simulate("wsl"), pytest.raises(al.UnsupportedError, match="no concurrent managed access"):
        al.get_allocator("managed", "cuda:0", layers=["prefetch"])
