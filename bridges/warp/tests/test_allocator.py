"""What Warp calls for memory, without a GPU: on the simulated platform, for a device that stands in for Warp's."""

import gc

import pytest

import allotment as al
from allotment.errors import InvalidPointerError


def used(device="cuda:0"):
    return sum(stats.current for stats in al.memory_stats(device)[device].values())


def test_a_block_is_booked_and_taken_back(make):
    allocator = make()
    ptr = allocator.allocate(100)
    assert used() == 100
    allocator.deallocate(ptr, 100)
    assert used() == 0


@pytest.mark.parametrize("name", ["default", "mempool", "managed", "caching"])
def test_a_block_returns_to_the_allocator_that_made_it(make, name):
    allocator = make()
    with al.ScopedAllocator("cuda:0", name):
        ptr = allocator.allocate(100)
    al.set_device_allocator("cuda:0", "default" if name != "default" else "mempool")
    allocator.deallocate(ptr, 100)
    assert al.get_allocator(name, "cuda:0").statistics().frees == 1


def test_a_block_is_for_the_current_stream_of_warp(make, device):
    al.configure(layers=["track"])
    allocator = make()
    ptr = allocator.allocate(100)
    (block,) = al.live_blocks()
    assert (block.stream, block.call_site.library) == (device.stream.stream.handle, "warp")
    allocator.deallocate(ptr, 100)


def test_a_block_of_the_null_stream_of_warp(make, device):
    al.configure(layers=["track"])
    device.stream, allocator = device.null_stream, make()
    ptr = allocator.allocate(100)
    (block,) = al.live_blocks()
    assert block.stream == 0
    allocator.deallocate(ptr, 100)


@pytest.mark.parametrize(("name", "marks"), [("mempool", 1), ("caching", 1), ("default", 0)])
def test_a_free_keeps_order_with_all_streams_of_warp(make, sim, name, marks):
    allocator = make(name)
    ptr = allocator.allocate(100)
    before = len(sim.calls)
    allocator.deallocate(ptr, 100)
    recorded = [call for call in list(sim.calls)[before:] if call.name == "record_event"]
    assert [call.arguments["stream"] for call in recorded] == [0] * marks


@pytest.mark.parametrize(
    ("name", "kind"), [("default", "CUDA_DEVICE"), ("mempool", "CUDA_MEMPOOL"), ("managed", "CUDA_MANAGED")]
)
def test_its_kind_is_that_of_the_memory(make, name, kind):
    allocator = make()
    with al.ScopedAllocator("cuda:0", name):
        assert allocator.memory_kind.name == kind


def test_mapped_memory_is_of_no_kind_that_warp_could_judge(make, device):
    class Mapping:
        traits = al.AllocatorTraits(memory_kind=al.MemoryKind.CUDA_DEVICE, mapped=True)

        def allocate(self, size): ...

        def deallocate(self, ptr, size): ...

    assert make(Mapping()).memory_kind is al.MemoryKind.UNKNOWN


def test_a_block_is_freed_once(make):
    allocator = make()
    ptr = allocator.allocate(100)
    allocator.deallocate(ptr, 100)
    with pytest.raises(InvalidPointerError, match="the bridge to warp"):
        allocator.deallocate(ptr, 100)


def test_a_free_that_fails_is_told_and_stays_on_the_books(make, sim):
    allocator, account = make("default"), al.get_allocator("default", "cuda:0")
    ptr = allocator.allocate(100)
    sim.fail("free")
    with pytest.warns(al.FreeFailedWarning, match="100 bytes at .* could not be given back to allocator 'default'"):
        allocator.deallocate(ptr, 100)
    assert account.statistics().current == 100
    account.deallocate(ptr, 100)


def test_a_request_that_cannot_be_met_is_warp_s_error_and_carries_ours(make):
    with pytest.raises(RuntimeError, match=f"Failed to allocate {2**50} bytes on device 'cuda:0'") as caught:
        make().allocate(2**50)
    assert isinstance(caught.value.__cause__, al.OutOfMemoryError)


def test_memory_made_in_a_capture_of_warp_s_is_warp_s_own(make, device):
    allocator = make()
    device.captures["stream"] = "graph"
    ptr = allocator.allocate(100)
    assert (device.current_allocator.live[ptr], used(), allocator.memory_kind.name) == (100, 0, "CUDA_MEMPOOL")
    device.captures.clear()
    allocator.deallocate(ptr, 100)
    assert not device.current_allocator.live


def test_what_warp_says_of_an_allocation_in_a_capture_is_passed_on(make, device):
    class Refusing:
        def allocate(self, size):
            raise RuntimeError("memory pools are not enabled")

    device.captures["stream"], device.current_allocator = "graph", Refusing()
    with pytest.raises(RuntimeError, match="memory pools are not enabled"):
        make().allocate(100)


@pytest.mark.parametrize("name", ["default", "mempool", "caching"])
def test_a_block_dropped_in_a_capture_of_warp_s_returns_after_it(make, device, name):
    allocator = make(name)
    ptr = allocator.allocate(100)
    device.captures["stream"] = "graph"
    allocator.deallocate(ptr, 100)
    assert used() == 100
    device.captures.clear()
    allocator.deallocate(allocator.allocate(10), 10)
    assert used() == 0


def test_a_capture_of_ours_makes_memory_of_ours(make, device):
    allocator = make("mempool")
    stream = al.Stream("cuda:0", non_blocking=True)
    before = allocator.allocate(50)
    with al.ScopedCapture(stream=stream) as capture:
        device.stream = type(device.stream)(device, stream)
        ptr = allocator.allocate(100)
        allocator.deallocate(before, 50)
    assert not device.current_allocator.live
    capture.graph.launch(stream)
    allocator.deallocate(ptr, 100)
    capture.graph.close()
    gc.collect()
    assert used() == 0


def test_nothing_is_asked_of_warp_after_shutdown_began(make, device):
    allocator = make("mempool")
    ptr = allocator.allocate(100)
    al.get_device("cuda:0").is_retired = True
    del device.stream, device.captures
    try:
        allocator.deallocate(ptr, 100)
    finally:
        al.get_device("cuda:0").is_retired = False
