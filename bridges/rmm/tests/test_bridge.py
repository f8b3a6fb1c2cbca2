"""The bridge to RMM: its users draw from Allotment, on every device, for the stream that they name."""

import gc
import threading

import pytest

import allotment as al


def status():
    (found,) = (each for each in al.status() if each.library == "rmm")
    return found


def current(ordinal=0):
    """Return the resource that is current in RMM for a device, without keeping it."""
    from rmm import mr

    return mr.get_per_device_resource(ordinal)


@pytest.fixture
def used():
    """Return a function that says how many bytes each allocator of a device has handed out."""

    def ask(device="cuda:0"):
        return {name: stats.current for name, stats in al.memory_stats(device)[device].items() if stats.allocations}

    return ask


@pytest.mark.parametrize("ordinal", [0, 1])
def test_each_device_has_a_resource_that_draws_from_its_allocator(sim, rmm_stream, used, ordinal):
    al.install("rmm")
    stream = rmm_stream()
    ptr = current(ordinal).allocate(1000, stream)  # whichever device is current
    assert used(f"cuda:{ordinal}") == {"mempool": 1000}
    current(ordinal).deallocate(ptr, 1000, stream)

    assert used(f"cuda:{ordinal}") == {"mempool": 0}


def test_a_device_buffer_of_rmm_draws_from_allotment(sim, rmm_stream, used):
    from rmm import DeviceBuffer

    al.install("rmm", allocator="caching")
    stream = al.Stream("cuda:0")
    buffer = DeviceBuffer(size=1000, stream=rmm_stream(stream), mr=current())
    assert (used(), buffer.size) == ({"caching": 1000}, 1000)
    del buffer

    assert used() == {"caching": 0}


def test_the_allocator_in_force_is_asked_at_each_allocation(sim, rmm_stream, used):
    al.install("rmm")
    stream, blocks = rmm_stream(), []
    with al.ScopedAllocator("cuda:0", "managed"):
        blocks.append(current().allocate(100, stream))
    al.set_device_allocator("cuda:0", "default")
    blocks.append(current().allocate(200, stream))

    assert used() == {"managed": 100, "default": 200}
    for ptr, size in zip(blocks, (100, 200), strict=True):
        current().deallocate(ptr, size, stream)
    assert used() == {"managed": 0, "default": 0}


@pytest.mark.parametrize("name", ["mempool", "caching"])
def test_a_block_is_for_the_stream_that_is_named(sim, rmm_stream, name):
    al.configure(layers=["track"])
    al.install("rmm", allocator=name)
    stream = al.Stream("cuda:0")
    with al.ScopedStream(al.Stream("cuda:0")):
        ptr = current().allocate(100, rmm_stream(stream))
    (block,) = al.live_blocks()

    assert (block.stream, block.call_site.library) == (stream.handle, "rmm")
    current().deallocate(ptr, 100, rmm_stream(stream))


def test_a_free_on_another_stream_waits_for_its_work(sim, rmm_stream):
    al.install("rmm")
    first, second = al.Stream("cuda:0"), al.Stream("cuda:0")
    ptr = current().allocate(100, rmm_stream(first))
    current().deallocate(ptr, 100, rmm_stream(second))
    waits = sim.calls.named("wait_for_stream")

    assert [(call.arguments["waiting"], call.arguments["awaited"]) for call in waits] == [(first.handle, second.handle)]


def test_no_bytes_are_a_null_pointer(sim, rmm_stream, used):
    al.install("rmm")
    assert current().allocate(0, rmm_stream()) == 0
    current().deallocate(0, 0, rmm_stream())

    assert used() == {}


def test_out_of_memory_is_rmm_s_error_and_says_what_ours_says(sim, rmm_stream):
    al.install("rmm")

    with pytest.raises(MemoryError, match=r"std::bad_alloc.*allocator 'mempool' on 'cuda:0'. In use 0 bytes"):
        current().allocate(2**50, rmm_stream())


def test_another_failure_is_rmm_s_error_with_its_text(sim, rmm_stream):
    al.install("rmm")
    sim.fail("malloc_from_pool", code="cudaErrorLaunchFailure")

    with pytest.raises(RuntimeError, match="cudaErrorLaunchFailure"):
        current().allocate(100, rmm_stream())


def test_a_free_that_fails_is_told_and_goes_no_further(sim, rmm_stream, used):
    al.install("rmm", allocator="default")
    ptr = current().allocate(100, rmm_stream())
    sim.fail("free")
    with pytest.warns(al.FreeFailedWarning, match="100 bytes"):
        current().deallocate(ptr, 100, rmm_stream())

    assert used() == {"default": 100}


def test_another_thread_may_free(sim, rmm_stream, used):
    al.install("rmm")
    stream = rmm_stream()
    ptrs = [current().allocate(100, stream) for _ in range(20)]
    resource = current()
    thread = threading.Thread(target=lambda: [resource.deallocate(ptr, 100, stream) for ptr in ptrs])
    thread.start()
    thread.join()

    assert used() == {"mempool": 0}


@pytest.mark.parametrize("name", ["default", "mempool", "caching"])
def test_a_collection_in_a_capture_frees_after_it(sim, rmm_stream, used, name):
    from rmm import DeviceBuffer

    al.install("rmm", allocator=name)
    cycle = [DeviceBuffer(size=100, stream=rmm_stream(), mr=current())]
    cycle.append(cycle)
    del cycle
    with al.ScopedCapture("cuda:0") as capture:
        gc.collect()

    assert (used(), capture.graph is not None) == ({name: 0}, True)


def test_a_buffer_outlives_the_bridge_and_returns_to_its_allocator(sim, rmm_stream, used):
    from rmm import DeviceBuffer

    al.install("rmm", allocator="managed")
    buffer = DeviceBuffer(size=100, stream=rmm_stream(), mr=current())
    al.uninstall("rmm")
    gc.collect()
    al.set_device_allocator("cuda:0", "default")
    assert used() == {"managed": 100}
    del buffer

    assert used() == {"managed": 0}


# Installing it


def test_each_device_has_its_resource_back_afterwards(mr, sim):
    before = [current(ordinal) for ordinal in (0, 1)]
    al.install("rmm")
    assert status().state is al.BridgeState.INSTALLED
    al.uninstall("rmm")

    assert [current(ordinal) for ordinal in (0, 1)] == before


def test_a_resource_that_somebody_sets_later_is_told_and_left_alone(mr, sim):
    al.install("rmm")
    other = mr.ManagedMemoryResource()
    mr.set_per_device_resource(1, other)

    assert (status().state, status().allocator) == (al.BridgeState.DISPLACED, "ManagedMemoryResource on device 1")
    al.uninstall("rmm")
    assert current(1) is other


def test_a_resource_over_ours_draws_from_us_still(mr, sim, rmm_stream, used):
    al.install("rmm")
    ours = current()
    mr.set_per_device_resource(0, mr.StatisticsResourceAdaptor(ours))
    ptr = current().allocate(100, rmm_stream())

    assert (status().state, used()) == (al.BridgeState.INSTALLED, {"mempool": 100})
    with pytest.raises(al.BridgeError, match=r"StatisticsResourceAdaptor was put over .* device 0. Take it off"):
        al.uninstall("rmm")
    current().deallocate(ptr, 100, rmm_stream())
    mr.set_per_device_resource(0, ours)


@pytest.mark.parametrize("by", ["allocator", "setting"])
def test_an_allocator_that_draws_from_rmm_s_current_resource_is_refused(sim, mr, by):
    class Following:
        """As the allocator over RMM of the guides says of itself."""

        name = "rmm"
        follows_current_resource = True

        def allocate(self, size_in_bytes):
            return 4096

        def deallocate(self, ptr, size_in_bytes):
            pass

    before = current()
    if by == "setting":
        al.set_device_allocator("cuda:1", Following())
    with pytest.raises(al.BridgeError, match=r"bridge to 'rmm'.*allocator 'rmm'.*each would ask the other"):
        al.install("rmm", allocator=Following() if by == "allocator" else None)

    assert current() is before


def test_blocks_that_are_aligned_to_less_than_rmm_promises_are_refused(sim):
    small = al.get_allocator("caching", "cuda:0", policy="mlx", mlx_scalar_alignment=8)

    with pytest.raises(al.BridgeError, match="'caching' on 'cuda:0' aligns to 8 bytes, and RMM promises 256"):
        al.install("rmm", allocator=small)


def test_simulated_memory_is_refused_where_rmm_has_real_devices(sim, monkeypatch):
    monkeypatch.setattr("allotment_rmm_bridge._bridge.sees_devices", lambda: True)

    with pytest.raises(al.BridgeError, match="real devices, and the platform in force is 'sim:2xh200'"):
        al.install("rmm")


def test_without_a_device_there_is_nothing_to_draw_from(mr):
    al.init(platform="host", quiet=True)

    with pytest.raises(al.BridgeError, match="Allotment sees no CUDA device"):
        al.install("rmm")


def test_rmm_is_asked_whether_it_has_devices(mr):
    from allotment_rmm_bridge._bridge import sees_devices

    assert isinstance(sees_devices(), bool)


# Both directions at once


def test_the_allocator_over_rmm_does_not_take_our_resource(sim, mr):
    allocators = pytest.importorskip("allotment_rmm", reason="the allocator over RMM is not installed")
    al.install("rmm")

    with pytest.raises(al.UnsupportedError, match=r"allocator 'rmm' cannot draw.*bridge to 'rmm'"):
        allocators.RmmAllocator(device=al.get_device("cuda:0"))


def test_the_guides_allocator_over_rmm_is_refused_on_both_sides(sim, mr, rmm_stream):
    pytest.importorskip("allotment_rmm", reason="the allocator over RMM is not installed")
    with pytest.raises(al.BridgeError, match="each would ask the other"):
        al.install("rmm", allocator=al.utils.AllocatorRmm())
    al.install("rmm")
    al.set_device_allocator("cuda:0", al.utils.AllocatorRmm())

    with pytest.raises(RuntimeError, match="each would ask the other"):
        current().allocate(100, rmm_stream())


def test_the_guides_allocator_draws_from_rmm_and_frees_to_the_resource_that_made_it(sim, mr):
    """RMM itself, with a callback resource over the simulation for its current one."""
    pytest.importorskip("allotment_rmm", reason="the allocator over RMM is not installed")
    calls = []

    def make(name):
        def allocate(nbytes, stream):
            calls.append((name, "allocate", nbytes, stream.__cuda_stream__()[1]))
            return sim.malloc(nbytes)

        def deallocate(ptr, nbytes, stream):
            calls.append((name, "free", nbytes, stream.__cuda_stream__()[1]))
            sim.free(ptr)

        return mr.CallbackMemoryResource(allocate, deallocate)

    before, stream = current(), al.Stream("cuda:0")
    mr.set_per_device_resource(0, make("first"))
    al.set_cuda_allocator(al.utils.AllocatorRmm())
    with al.ScopedStream(stream):
        array = al.ones(100, "uint8", "cuda:0")
    mr.set_per_device_resource(0, make("second"))
    assert (array.numpy() == 1).all()
    del array
    mr.set_per_device_resource(0, before)

    assert calls == [("first", "allocate", 100, stream.handle), ("first", "free", 100, stream.handle)]
