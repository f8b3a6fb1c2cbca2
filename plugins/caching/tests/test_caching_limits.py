"""MLX's names for the use of memory and its limits, of the ``caching`` allocator on a platform."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import allotment as al
from allotment_caching._twins import compiled_module

if TYPE_CHECKING:
    from allotment.platform.simulated import SimulatedPlatform

MIB, GIB = 2**20, 2**30


@pytest.fixture(params=["python", "compiled"])
def engine(request: pytest.FixtureRequest) -> str:
    if request.param == "compiled" and compiled_module() is None:
        pytest.skip("the compiled engine was not built here")
    return str(request.param)


@pytest.fixture
def caching(simulated: SimulatedPlatform, engine: str) -> al.AccountedAllocator:
    """Put the allocator in force on the first device and return it."""
    allocator = al.get_allocator("caching", "cuda:0", engine=engine)
    al.set_device_allocator("cuda:0", allocator)
    return allocator


def mebibytes(count: int) -> al.Array:
    return al.empty(count * MIB, dtype=np.uint8, device="cuda:0")


def test_active_peak_and_cached_memory_add_up_to_what_is_held(caching: al.AccountedAllocator) -> None:
    kept, dropped = mebibytes(10), mebibytes(20)
    del dropped

    assert (al.get_active_memory(), al.get_peak_memory()) == (10 * MIB, 30 * MIB)
    assert al.get_active_memory() + al.get_cache_memory() == caching.statistics().reserved
    assert al.get_cache_memory() >= 20 * MIB
    al.reset_peak_memory()
    assert al.get_peak_memory() == kept.nbytes


def test_clearing_the_cache_gives_all_that_is_idle_back(caching: al.AccountedAllocator) -> None:
    device = al.get_device("cuda:0")
    before = device.free_memory
    mebibytes(30)
    held = before - device.free_memory

    assert al.clear_cache() == held >= 30 * MIB
    assert (device.free_memory, al.get_cache_memory()) == (before, 0)


def test_the_limits_are_the_devices_memory_unless_configured(caching: al.AccountedAllocator) -> None:
    total = al.get_device("cuda:0").total_memory

    assert (al.get_memory_limit(), al.get_cache_limit()) == (total, total)


def test_limits_come_from_configuration(simulated: SimulatedPlatform, engine: str) -> None:
    al.configure(
        allocator="caching", allocators={"caching": {"engine": engine, "limit": "1 GiB", "cache_limit": "50%"}}
    )

    assert al.get_memory_limit("cuda:1") == GIB
    assert al.get_cache_limit("cuda:1") == al.get_device("cuda:1").total_memory // 2


def test_a_request_above_the_limit_is_refused_and_says_it_until_it_is_raised(caching: al.AccountedAllocator) -> None:
    before = al.set_memory_limit("100 MiB")
    with pytest.raises(al.OutOfMemoryError, match="Raise the limit") as refusal:
        mebibytes(120)
    assert refusal.value.limit == 100 * MIB

    assert al.set_memory_limit(before) == 100 * MIB

    assert mebibytes(120).nbytes == 120 * MIB


def test_idle_memory_makes_room_within_the_limit(caching: al.AccountedAllocator) -> None:
    al.set_memory_limit("100 MiB")
    for count in (60, 70, 80, 90):
        mebibytes(count)

    assert caching.statistics().peak_reserved <= 100 * MIB


def test_lowering_the_limit_keeps_arrays_and_refuses_more(caching: al.AccountedAllocator) -> None:
    array = al.full(MIB, 7, dtype=np.uint8, device="cuda:0")
    al.set_memory_limit(MIB // 2)

    with pytest.raises(al.OutOfMemoryError):
        mebibytes(8)

    assert (array.numpy() == 7).all()


def test_the_cache_shrinks_to_its_limit_in_the_course_of_calls(caching: al.AccountedAllocator) -> None:
    mebibytes(100)
    al.set_cache_limit("8 MiB")
    for _ in range(2048):
        caching.deallocate(caching.allocate(1000), 1000)

    assert al.get_cache_memory() <= 8 * MIB


def test_each_device_has_limits_of_its_own(caching: al.AccountedAllocator, engine: str) -> None:
    other = al.get_allocator("caching", "cuda:1", engine=engine)
    al.set_memory_limit("1 GiB")

    assert al.get_memory_limit(allocator=other) == al.get_device("cuda:1").total_memory


def test_another_allocator_is_pointed_to_this_one(simulated: SimulatedPlatform) -> None:
    with pytest.raises(al.UnsupportedError, match=r"'mempool' on 'cuda:0' has no limits .* there: .*caching"):
        al.set_memory_limit("1 GiB", "cuda:0")
