"""Memory from another allocator: each block goes back to its maker, and its kind is the true one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import allotment as al

GIB = 2**30
MIB = 2**20


def falling_back(to="managed", name="mempool", limit="100 MiB"):
    return al.get_allocator(name, "cuda:0", layers=[{"fallback": to}, {"limit": limit}])


def kinds(account, *sizes):
    with al.ScopedAllocator("cuda:0", account):
        arrays = [al.empty(size, "uint8", "cuda:0") for size in sizes]
    return arrays, [array.memory_kind.name for array in arrays]


def test_what_does_not_fit_comes_from_the_other_allocator(sim):
    account = falling_back()
    arrays, found = kinds(account, 60 * MIB, 60 * MIB, 30 * MIB)

    assert found == ["CUDA_MEMPOOL", "CUDA_MANAGED", "CUDA_MEMPOOL"]
    assert account.layers[0].blocks == 1
    assert account.layers[0].other.statistics().current == 60 * MIB
    del arrays

    assert [each.statistics().live for each in (account, account.layers[0].other)] == [0, 0]
    assert account.layers[1].budget.used == 0


def test_the_driver_running_out_falls_back_too(sim):
    account = al.get_allocator("mempool", "cuda:0", layers=[{"fallback": "managed"}])
    _, found = kinds(account, 100 * GIB, 100 * GIB)

    assert found == ["CUDA_MEMPOOL", "CUDA_MANAGED"]


def test_more_than_the_device_has_goes_to_the_other_at_once(sim):
    account = al.get_allocator("mempool", "cuda:0", layers=[{"fallback": "managed"}])
    _, found = kinds(account, account.device.total_memory + 1)

    assert found == ["CUDA_MANAGED"]
    assert not any(call.name == "malloc_from_pool" for call in sim.calls)


def test_the_ladder_is_climbed_before(sim):
    account = al.get_allocator("mempool", "cuda:0", layers=[{"fallback": "managed"}, "ladder", {"limit": "1 MiB"}])
    _, found = kinds(account, 2 * MIB)

    assert found == ["CUDA_MANAGED"]
    assert account.layers[1].figures.in_vain == 1


def test_when_both_are_out_of_memory_the_error_tells_of_the_other(sim):
    account = al.get_allocator(
        "mempool", "cuda:0", layers=[{"fallback": "default"}, {"ladder": ["garbage"]}, {"limit": "1 MiB"}]
    )
    sim.fail("malloc", code="cudaErrorMemoryAllocation")
    with pytest.raises(al.OutOfMemoryError) as caught:
        account.allocate(2 * MIB)

    assert (caught.value.allocator, caught.value.limit) == ("mempool", MIB)
    assert caught.value.tried == ("garbage", "allocator 'default'")
    assert isinstance(caught.value.__cause__, al.OutOfMemoryError)


def test_an_allocator_that_cannot_be_captured_is_no_help_during_a_capture(sim):
    account = falling_back(limit=0)
    with (
        al.ScopedStream(al.Stream("cuda:0", non_blocking=True)),
        al.ScopedCapture("cuda:0"),
        al.ScopedStream(al.Stream("cuda:0", non_blocking=True), sync_enter=False),
        pytest.raises(al.OutOfMemoryError) as caught,
    ):
        account.allocate(100)

    assert (caught.value.limit, caught.value.tried) == (0, ("allocator 'managed'",))


def test_another_failure_is_no_reason_to_fall_back(sim):
    account = falling_back()
    sim.fail("malloc_from_pool", code="cudaErrorUnknown")
    with pytest.raises(al.PlatformError, match="cudaErrorUnknown"):
        account.allocate(10)


def test_a_kind_that_both_have_is_known_without_asking(sim):
    managed = al.get_allocator("managed", "cuda:0", layers=[{"fallback": "managed"}])

    assert managed.memory_kind is al.MemoryKind.CUDA_MANAGED
    assert falling_back().memory_kind is al.MemoryKind.UNKNOWN
    assert falling_back().declared_kind is al.MemoryKind.CUDA_MEMPOOL


def test_a_name_that_cannot_be_used_is_an_error_when_the_allocator_is_chosen(sim):
    with pytest.raises(al.UnknownAllocatorError, match=r"'manged' is not installed.*Did you mean 'managed'"):
        falling_back("manged")


def test_a_failed_free_stays_with_its_maker(sim):
    account = falling_back(limit=0)
    ptr = account.allocate(100)
    sim.fail("free", code="cudaErrorUnknown")
    with pytest.raises(al.PlatformError):
        account.deallocate(ptr, 100)
    assert account.layers[0].blocks == 1
    account.deallocate(ptr, 100)

    assert (account.layers[0].blocks, account.layers[0].other.statistics().live) == (0, 0)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 60)), max_size=40))
def test_each_block_goes_back_to_its_maker(steps):
    with al.simulate("h200"):
        account = al.get_allocator("mempool", "cuda:0", layers=[{"fallback": "default"}, {"limit": 100}])
        (fallback, limit), held = account.layers, []
        for is_free, number in steps:
            if is_free and held:
                account.deallocate(*held.pop(number % len(held)))
            else:
                held.append((account.allocate(number), number))
            assert limit.budget.used + fallback.other.statistics().current == account.statistics().current
            assert limit.budget.used <= 100
        for block in held:
            account.deallocate(*block)

        assert (fallback.blocks, limit.budget.used, fallback.other.statistics().live) == (0, 0, 0)


# ---------------------------------------------------------------------------------------------------------------------
# Page-locked memory, where an array of a device is in memory of the host


@pytest.fixture
def stand_in(sim):
    """An array on a device, in page-locked memory."""
    with al.ScopedAllocator("cuda:0", falling_back("pinned", limit=0)):
        return al.array(np.arange(10, dtype=np.int32), device="cuda:0")


def test_page_locked_memory_can_stand_in_for_a_devices(stand_in):
    assert (stand_in.memory_kind, stand_in.device.alias) == (al.MemoryKind.PINNED, "cuda:0")
    stand_in[2:4] = 7
    stand_in[5].fill_(9)

    assert stand_in.numpy().tolist() == [0, 1, 7, 7, 4, 9, 6, 7, 8, 9]
    assert al.can_access("cuda:0", stand_in)


@pytest.mark.parametrize("device", ["cuda:0", "cuda:1", "cpu"])
def test_it_can_be_copied_to_and_fro(stand_in, device):
    copy = al.empty(10, "int32", device)
    al.copy(copy, stand_in)
    stand_in.zero_()
    al.copy(stand_in, copy)

    assert stand_in.numpy().tolist() == list(range(10))


def test_it_is_not_used_again_before_the_work_of_its_stream_is_done(sim, stand_in):
    stream = al.Stream("cuda:0", non_blocking=True)
    account, size = stand_in.account, 4096
    with sim.delayed(stream.handle), al.ScopedStream(stream, sync_enter=False):
        ptr = account.allocate(size)
        sim.launch(lambda: None, stream.handle, 0)
        account.deallocate(ptr, size)

        assert account.allocate(size) != ptr
