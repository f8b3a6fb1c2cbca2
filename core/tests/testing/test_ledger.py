"""What a simulated driver has handed out and not got back."""

import pytest

from allotment.errors import PlatformError
from allotment.testing._ledger import outstanding, outstanding_bytes


def test_what_was_taken_and_given_back_is_not_outstanding(simulated):
    pool = simulated.create_pool(0)
    event, stream = simulated.create_event(0), simulated.create_stream(0, non_blocking=True, priority=0)
    simulated.free(simulated.malloc(100))
    simulated.free(simulated.malloc_managed(100))
    simulated.host_free(simulated.host_alloc(100))
    simulated.free_async(simulated.malloc_from_pool(100, pool, 0), 0)
    simulated.destroy_event(event)
    simulated.destroy_stream(stream)
    simulated.destroy_pool(pool)

    assert outstanding(simulated.calls) == {}
    assert outstanding_bytes(simulated.calls) == 0


def test_what_was_not_given_back_is_told_by_kind(simulated):
    pool = simulated.create_pool(0)
    simulated.malloc(100)
    simulated.host_alloc(20)
    simulated.malloc_from_pool(3, pool, 0)
    simulated.create_event(0)

    assert outstanding(simulated.calls) == {"memory": 3, "pool": 1, "event": 1}
    assert outstanding_bytes(simulated.calls) == 123


def test_mapped_memory_is_outstanding_until_it_is_released_and_mapped_nowhere(simulated):
    granule = simulated.mapping_granularity(0)
    ptr, handle = simulated.address_range(4 * granule), simulated.create_physical(0, granule)
    seen = [outstanding_bytes(simulated.calls)]
    for address in (ptr, ptr + granule):
        simulated.map_physical(address, granule, handle)
    simulated.release_physical(handle)
    seen.append(outstanding_bytes(simulated.calls))
    assert outstanding(simulated.calls) == {"memory": 1, "address range": 1}
    simulated.unmap_physical(ptr, 2 * granule)
    seen.append(outstanding_bytes(simulated.calls))
    simulated.free_address_range(ptr, 4 * granule)

    assert seen == [granule, granule, 0]
    assert outstanding(simulated.calls) == {}


def test_an_address_that_came_again_counts_once(simulated):
    first = simulated.malloc(512)
    simulated.free(first)
    again = simulated.malloc(512)

    assert again == first
    assert outstanding(simulated.calls) == {"memory": 1}


def test_calls_that_failed_count_nothing(simulated):
    ptr = simulated.malloc(100)
    simulated.fail("malloc")
    simulated.fail("free")
    for call in (lambda: simulated.malloc(100), lambda: simulated.free(ptr)):
        with pytest.raises(PlatformError):
            call()

    assert outstanding_bytes(simulated.calls) == 100
