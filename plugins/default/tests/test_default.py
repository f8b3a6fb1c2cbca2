"""What is particular to the ``default`` allocator: each call is the driver's."""

import random

import pytest

import allotment as al


@pytest.fixture
def default(simulated):
    """Return the allocator of the first device."""
    return al.get_allocator("default", "cuda:0")


def test_each_call_is_one_call_of_the_driver(simulated, default):
    simulated.calls.clear()

    ptr = default.allocate(1000)
    default.deallocate(ptr, 1000)

    assert [(call.name, call.arguments) for call in simulated.calls.named("malloc", "free")] == [
        ("malloc", {"nbytes": 1000}),
        ("free", {"ptr": ptr}),
    ]


def test_nothing_is_kept_when_a_block_is_freed(default):
    free = default.device.free_memory

    default.deallocate(default.allocate(2**30), 2**30)

    assert default.device.free_memory == free
    assert default.statistics().reserved == 0


@pytest.mark.parametrize("order", ["first", "last", "any"])
def test_blocks_are_freed_in_any_order(simulated, default, order):
    free = default.device.free_memory
    blocks = [(default.allocate(size), size) for size in (1, 4096, 3 * 2**20, 512, 2**25, 70_000) * 5]
    if order == "last":
        blocks.reverse()
    elif order == "any":
        random.Random(5).shuffle(blocks)

    for block in blocks:
        default.deallocate(*block)

    assert default.statistics().live == 0
    assert default.device.free_memory == free


def test_a_free_waits_for_the_work_of_the_device(simulated, default):
    stream, done = al.Stream("cuda:0", non_blocking=True), []
    ptr = default.allocate(1000)

    with simulated.delayed(stream.handle):
        simulated.launch(lambda: done.append(True), stream.handle, 0)
        default.deallocate(ptr, 1000)
        assert done == [True]


def test_each_device_has_an_allocator_of_its_own(simulated):
    first, second = (al.get_allocator("default", device) for device in ("cuda:0", "cuda:1"))

    pointers = [(account, account.allocate(1000)) for account in (first, second, first, second)]

    assert [simulated.pointer_attributes(ptr).device for _, ptr in pointers] == [0, 1, 0, 1]
    for account, ptr in pointers:
        account.deallocate(ptr, 1000)
    assert simulated.current_device() == 0


def test_a_free_is_issued_under_the_blocks_device(simulated):
    account = al.get_allocator("default", "cuda:1")
    ptr = account.allocate(1000)

    account.deallocate(ptr, 1000)

    (call,) = simulated.calls.named("free")
    assert call.device == 1
    assert simulated.current_device() == 0


def test_memory_can_be_had_again_after_it_ran_out(default):
    half = default.device.total_memory // 2 + 2**30
    ptr = default.allocate(half)

    with pytest.raises(al.OutOfMemoryError) as refusal:
        default.allocate(half)
    default.deallocate(ptr, half)
    default.deallocate(default.allocate(half), half)

    assert (refusal.value.requested, refusal.value.in_use) == (half, half)
    assert refusal.value.free < half < refusal.value.total


def test_a_device_that_runs_out_leaves_the_other_alone(simulated):
    first, second = (al.get_allocator("default", device) for device in ("cuda:0", "cuda:1"))
    most = first.device.total_memory - 2**21
    ptr = first.allocate(most)
    with pytest.raises(al.OutOfMemoryError, match="'cuda:0'"):
        first.allocate(2**30)

    second.deallocate(second.allocate(most), most)
    first.deallocate(ptr, most)


def test_its_memory_can_be_shared_with_other_processes_as_it_declares(default):
    assert default.traits.ipc is al.IpcKind.LEGACY


@pytest.mark.parametrize("simulated", ["no-pools", "wsl", "jetson-orin"], indirect=True)
def test_it_is_available_on_every_cuda_device(simulated):
    account = al.get_allocator("default", "cuda:0")

    account.deallocate(account.allocate(1000), 1000)


def test_the_host_is_refused(simulated):
    with pytest.raises(al.PluginUnavailableError, match="memory of a CUDA device"):
        al.get_allocator("default", "cpu")
