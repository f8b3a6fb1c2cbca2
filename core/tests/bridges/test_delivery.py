"""What a bridge draws from: booked, on the library's stream, and given back to whoever gave it."""

import pytest

import allotment as al
from allotment.errors import InvalidPointerError

NAMES = ["default", "mempool", "managed", "caching"]


@pytest.mark.parametrize("name", NAMES)
def test_a_block_is_booked_and_returns_to_its_allocator(sim, name):
    delivery = al.Delivery("library", name)
    ptr = delivery.allocate(1, 100, 0)
    account = al.get_allocator(name, "cuda:1")

    assert (account.statistics().current, delivery.is_live(ptr)) == (100, True)
    delivery.deallocate(ptr)
    assert (account.statistics().current, delivery.is_live(ptr)) == (0, False)


@pytest.mark.parametrize("name", ["mempool", "caching"])
def test_a_block_is_for_the_library_s_stream_whatever_is_in_force(sim, name):
    al.configure(layers=["track"])
    delivery, stream, other = al.Delivery("library", name), al.Stream("cuda:0"), al.Stream("cuda:0")
    with al.ScopedStream(other):
        ptr = delivery.allocate(0, 100, stream.handle)
        assert al.get_stream("cuda:0") is other
    (block,) = al.live_blocks()

    assert block.stream == stream.handle
    delivery.deallocate(ptr)


def test_no_bytes_are_no_block(sim):
    delivery = al.Delivery("library")

    assert delivery.allocate(0, 0, 0) == 0
    delivery.deallocate(0)


def test_a_block_is_freed_once(sim):
    delivery = al.Delivery("library")
    ptr = delivery.allocate(0, 100, 0)
    delivery.deallocate(ptr)

    with pytest.raises(InvalidPointerError, match="bridge to library"):
        delivery.deallocate(ptr)


def test_a_block_whose_free_fails_is_not_lost(sim):
    delivery = al.Delivery("library", "default")
    ptr = delivery.allocate(0, 100, 0)
    sim.fail("free")
    with pytest.raises(al.PlatformError):
        delivery.deallocate(ptr)
    delivery.deallocate(ptr)

    assert al.get_allocator("default", "cuda:0").statistics().current == 0


def test_a_request_that_cannot_be_met_is_out_of_memory(sim):
    with pytest.raises(al.OutOfMemoryError):
        al.Delivery("library").allocate(0, 2**50, 0)


def test_another_platform_has_other_devices():
    delivery = al.Delivery("library", "default")
    for _ in range(2):
        with al.simulate():
            delivery.deallocate(delivery.allocate(0, 100, 0))


@pytest.mark.parametrize(("allocator", "source"), [(None, "the allocator in force"), ("caching", "caching")])
def test_it_says_what_it_draws_from(allocator, source):
    assert al.Delivery("library", allocator).source == source
