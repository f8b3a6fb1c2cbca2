import ctypes
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allotment.platform.simulated import _address_space
from allotment.platform.simulated._address_space import AddressSpace
from allotment.platform.simulated._errors import Refused

GRANULE = 2**21


@pytest.fixture
def space():
    made = AddressSpace(GRANULE)
    yield made
    made.close()


def test_addresses_are_multiples_of_the_granule(space):
    assert [space.reserve(n * GRANULE) % GRANULE for n in (1, 3, 2)] == [0, 0, 0]


def test_host_code_reads_and_writes_at_an_address(space):
    start = space.reserve(GRANULE)
    ctypes.memset(start, 7, GRANULE)
    assert ctypes.string_at(start + GRANULE - 2, 2) == b"\7\7"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a mapping counts against the commit limit")
def test_hundreds_of_gigabytes_cost_nothing_until_they_are_touched(space):
    resource = pytest.importorskip("resource")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = space.reserve(400 * 2**30)
    ctypes.memset(start + 300 * 2**30, 1, 1)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024  # KiB


@pytest.mark.skipif(sys.platform != "linux", reason="only there the pages are known to be dropped")
def test_released_memory_goes_back_to_the_host(space):
    start = space.reserve(GRANULE)
    ctypes.memset(start, 7, GRANULE)
    space.release(start, GRANULE)
    assert ctypes.string_at(start, 8) == bytes(8)


def test_an_address_is_handed_out_again_after_its_release(space):
    start = space.reserve(GRANULE)
    space.release(start, GRANULE)
    assert space.reserve(GRANULE) == start


def test_a_place_can_be_asked_for(space):
    start = space.reserve(GRANULE)
    assert space.reserve_at(start + GRANULE, GRANULE)
    assert not space.reserve_at(start + GRANULE, GRANULE)


def test_it_grows_past_one_mapping():
    space = AddressSpace(GRANULE, region=4 * GRANULE)
    starts = [space.reserve(3 * GRANULE) for _ in range(5)]
    assert all(space.contains(start) for start in starts)
    space.close()


def test_a_host_that_maps_little_at_a_time_is_asked_for_less(monkeypatch):
    plain = _address_space._map

    def thrifty(nbytes):
        if nbytes > 16 * GRANULE:
            raise OSError("cannot allocate memory")
        return plain(nbytes)

    monkeypatch.setattr(_address_space, "_map", thrifty)
    space = AddressSpace(GRANULE)
    assert space.contains(space.reserve(GRANULE))
    with pytest.raises(Refused, match="host refused"):
        space.reserve(64 * GRANULE)
    space.close()


@settings(max_examples=40)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 9)), max_size=60))
def test_live_ranges_never_overlap(steps):
    space, live = AddressSpace(GRANULE, region=16 * GRANULE), {}
    for reserve, number in steps:
        if reserve or not live:
            start = space.reserve(number * GRANULE)
            end = start + number * GRANULE
            assert all(end <= other or start >= other + length for other, length in live.items())
            live[start] = number * GRANULE
        else:
            start = sorted(live)[number % len(live)]
            space.release(start, live.pop(start))
    space.close()
