"""What CuPy gets: memory of the current device for the current stream, which returns to its allocator once."""

import gc
import threading
from weakref import ref

import numpy as np
import pytest

import allotment as al

SUPPLIERS = ["default", "mempool", "managed", "caching"]


@pytest.fixture(autouse=True)
def installed(sim):
    al.install("cupy")


@pytest.mark.parametrize("name", SUPPLIERS)
def test_an_array_holds_a_block_until_its_last_view_is_gone(cupy, drawn, name):
    al.set_device_allocator("cuda:0", name)
    array = cupy.ndarray((10, 10), "f4")
    view = array[2:4].reshape(-1)
    del array
    assert drawn() == {name: 400}
    del view

    assert drawn() == {name: 0}


def test_the_memory_is_that_of_the_current_device(cupy, sim, drawn):
    with al.ScopedDevice("cuda:1"):
        array = cupy.ndarray(100, "u1")
    assert (array.data.device_id, drawn("cuda:0"), drawn("cuda:1")) == (1, {}, {"mempool": 100})
    del array

    assert drawn("cuda:1") == {"mempool": 0}


@pytest.mark.parametrize("name", ["mempool", "caching"])
def test_the_memory_is_for_the_current_stream_whatever_is_in_force(cupy, sim, name):
    al.configure(layers=["track"])
    al.set_device_allocator("cuda:0", name)
    stream = al.Stream("cuda:0")
    sim.streams.use(stream)
    with al.ScopedStream(al.Stream("cuda:0")):
        array = cupy.ndarray(100, "u1")
    (block,) = al.live_blocks()

    assert (block.stream, block.nbytes) == (stream.handle, array.nbytes)


def test_a_stream_is_kept_as_long_as_memory_is_allocated_on_it(cupy, sim):
    stream = ref(sim.streams.use(al.Stream("cuda:0")))
    array = cupy.ndarray(100, "u1")
    sim.streams.use()
    cupy.ndarray(100, "u1")
    gc.collect()
    assert stream() is not None
    del array
    gc.collect()

    assert stream() is None


def test_an_array_of_no_elements_holds_nothing(cupy, drawn):
    array = cupy.ndarray((0, 5), "f8")

    assert (array.data.ptr, array.data.device_id, drawn()) == (0, 0, {})


@pytest.mark.parametrize("size", [-1, 2**63, "many", 1.5])
def test_a_size_that_is_none_is_refused(cupy, size):
    with pytest.raises((TypeError, ValueError)):
        cupy.cuda.alloc(size)


def test_a_size_of_numpy_is_a_size(cupy, drawn):
    pointer = cupy.cuda.alloc(np.int64(100))

    assert drawn() == {"mempool": pointer.mem.size}


# Failure


def test_out_of_memory_is_cupys_error_and_carries_ours(cupy, sim):
    with pytest.raises(cupy.cuda.memory.OutOfMemoryError, match=r"Out of memory allocating.*mempool.*cuda:0") as caught:
        cupy.ndarray(2**50, "u1")

    assert isinstance(caught.value.__cause__, al.OutOfMemoryError)
    assert caught.value.__cause__.requested == 2**50
    assert isinstance(caught.value, MemoryError)


def test_a_limit_is_told_as_cupy_tells_one(cupy, sim):
    al.configure(layers=[{"limit": 1000}])
    array = cupy.ndarray(600, "u1")

    with pytest.raises(cupy.cuda.memory.OutOfMemoryError, match=r"so far: 600 bytes, limit set to: 1,000 bytes"):
        cupy.ndarray(600, "u1")
    del array


def test_a_free_that_fails_is_told_and_the_block_stays_on_the_books(cupy, sim, drawn):
    al.set_device_allocator("cuda:0", "default")
    array = cupy.ndarray(100, "u1")
    sim.fail("free")
    with pytest.warns(al.FreeFailedWarning, match="100 bytes at .* could not be given back to allocator 'default'"):
        del array

    assert drawn() == {"default": 100}


# When and where it is freed


@pytest.mark.parametrize("name", SUPPLIERS)
def test_another_thread_may_free(cupy, drawn, name):
    al.set_device_allocator("cuda:0", name)
    arrays = [cupy.ndarray(100 * n, "u1") for n in range(1, 20)]
    thread = threading.Thread(target=arrays.clear)
    thread.start()
    thread.join()

    assert drawn() == {name: 0}


@pytest.mark.parametrize("name", ["default", "mempool", "caching"])
def test_a_collection_in_a_capture_of_ours_frees_after_it(cupy, sim, drawn, name):
    al.set_device_allocator("cuda:0", name)
    cycle = [cupy.ndarray(100, "u1")]
    cycle.append(cycle)
    del cycle
    with al.ScopedCapture("cuda:0") as capture:
        gc.collect()

    assert capture.graph is not None
    assert drawn() == {name: 0}


@pytest.mark.parametrize("non_blocking", [False, True])
@pytest.mark.parametrize("name", ["mempool", "caching"])
@pytest.mark.parametrize("on_captured_stream", [False, True])
def test_a_collection_in_a_capture_of_cupys_does_not_end_it(cupy, sim, drawn, name, non_blocking, on_captured_stream):
    al.set_device_allocator("cuda:0", name)
    stream = al.Stream("cuda:0", non_blocking=non_blocking)
    sim.streams.use(stream if on_captured_stream else None)
    cycle = [cupy.ndarray(100, "u1")]
    cycle.append(cycle)
    del cycle
    sim.begin_capture(stream.handle, 0, al.CaptureMode.RELAXED)
    gc.collect()
    sim.end_capture(stream.handle, 0)
    cupy.ndarray(8, "u1")

    assert drawn() == {name: 0}


@pytest.fixture
def own_pool(cupy):
    """Stand in for the pool of CuPy, which needs a driver, and return what it was asked for."""
    asked = []

    def malloc(size):
        asked.append(size)
        return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(0, 0, None, 0), 0)

    before = cupy.cuda.get_allocator()
    al.uninstall("cupy")
    own = cupy.cuda.get_allocator()
    cupy.cuda.set_allocator(malloc)
    al.install("cupy")
    yield asked
    al.uninstall("cupy")
    cupy.cuda.set_allocator(own)
    assert cupy.cuda.get_allocator() is not before


@pytest.mark.parametrize("name", SUPPLIERS)
def test_what_cupy_allocates_while_it_captures_comes_from_its_own_allocator(cupy, sim, own_pool, drawn, name):
    al.set_device_allocator("cuda:0", name)
    cupy.ndarray(8, "u1")  # what is made at first is made before the capture
    stream = al.Stream("cuda:0")
    sim.streams.use(stream)
    sim.begin_capture(stream.handle, 0, al.CaptureMode.RELAXED)
    cupy.ndarray(100, "u1")
    sim.end_capture(stream.handle, 0)
    cupy.ndarray(8, "u1")

    assert (own_pool, drawn()) == ([100], {name: 0})


def test_a_capture_of_cupys_that_we_are_told_of_allocates_from_us(cupy, sim, own_pool, drawn):
    stream = al.Stream("cuda:0")
    sim.streams.use(stream)
    sim.begin_capture(stream.handle, 0, al.CaptureMode.RELAXED)
    with al.ScopedCapture("cuda:0", stream, external=True):
        array = cupy.ndarray(100, "u1")
    sim.end_capture(stream.handle, 0)

    assert (own_pool, drawn()) == ([], {"mempool": 100})
    del array


def test_what_a_scope_made_returns_to_it_after_the_scope(cupy, drawn):
    with al.ScopedAllocator("cuda:0", "caching"):
        array = cupy.ndarray(100, "u1")
    other = cupy.ndarray(100, "u1")
    del array

    assert drawn() == {"caching": 0, "mempool": other.nbytes}


# Straight to the allocator


@pytest.fixture
def caching(straight):
    account = al.get_allocator("caching", "cuda:0")
    if not account.allocator.is_compiled:
        pytest.skip("the compiled engine was not built here")
    al.set_device_allocator("cuda:0", account)
    return account


def test_cupy_calls_an_allocator_in_c_where_nothing_is_in_between(cupy, caching, straight, drawn):
    arrays = [cupy.ndarray(100, "u1") for _ in range(5)]
    assert len(straight) == 4  # once the way was known
    assert (drawn(), caching.statistics().allocations) == ({"caching": 500}, 5)
    arrays.clear()

    assert (drawn(), caching.statistics().frees) == ({"caching": 0}, 5)
    assert type(cupy.ndarray(100, "u1").data.mem).__name__ == "CFunctionAllocatorMemory"


def test_memory_in_c_is_for_the_current_stream(cupy, sim, caching, straight):
    cupy.ndarray(100, "u1")
    first, second = al.Stream("cuda:0"), al.Stream("cuda:0")
    sim.streams.use(first)
    ptr = cupy.ndarray(100, "u1").data.ptr
    sim.hold(first.handle)
    sim.streams.use(second)
    assert cupy.ndarray(100, "u1").data.ptr != ptr
    sim.streams.use(first)

    assert cupy.ndarray(100, "u1").data.ptr == ptr
    assert len(straight) == 3
    sim.release(first.handle)


def test_a_stream_that_memory_in_c_is_cached_for_is_kept(cupy, sim, caching, straight):
    cupy.ndarray(100, "u1")
    stream = ref(sim.streams.use(al.Stream("cuda:0")))
    cupy.ndarray(100, "u1")
    assert straight == [100]
    sim.streams.use()
    gc.collect()
    assert stream() is not None
    caching.trim()
    gc.collect()

    assert stream() is None


def test_a_scope_counts_for_memory_in_c(cupy, caching, straight, drawn):
    cupy.ndarray(100, "u1")
    with al.ScopedAllocator("cuda:0", "mempool"):
        array = cupy.ndarray(100, "u1")

    assert (straight, drawn()) == ([], {"caching": 0, "mempool": array.nbytes})


def test_another_setting_counts_at_once(cupy, caching, straight, drawn):
    cupy.ndarray(100, "u1")
    al.set_device_allocator("cuda:0", "mempool")
    array = cupy.ndarray(100, "u1")

    assert (straight, drawn()) == ([], {"caching": 0, "mempool": array.nbytes})


def test_whoever_looks_at_blocks_misses_none_that_is_made(cupy, caching, straight):
    cupy.ndarray(100, "u1")
    with al.measure() as found:
        cupy.ndarray(100, "u1")
        cupy.ndarray(200, "u1")
    assert straight == []
    assert found.result.allocations == 2
    cupy.ndarray(100, "u1")

    assert straight == [100]


def test_a_graph_has_memory_of_its_own(cupy, sim, caching, straight):
    cupy.ndarray(100, "u1")
    with al.ScopedCapture("cuda:0") as capture:
        sim.streams.use(al.get_stream("cuda:0"))
        array = cupy.ndarray(100, "u1")

    assert (straight, capture.graph is not None) == ([], True)
    del array


def test_while_cupy_captures_c_has_what_is_at_hand_and_cupy_the_rest(cupy, sim, own_pool, caching, straight):
    stream = al.Stream("cuda:0")
    cupy.ndarray(8, "u1")
    sim.streams.use(stream)
    cupy.ndarray(100, "u1")
    sim.begin_capture(stream.handle, 0, al.CaptureMode.RELAXED)
    first, second = cupy.ndarray(100, "u1"), cupy.ndarray(2**25, "u1")
    sim.end_capture(stream.handle, 0)

    assert (straight, own_pool) == ([100, 100, 2**25], [2**25])
    del first, second


def test_what_c_cannot_have_is_out_of_memory_as_ever(cupy, sim, caching, straight):
    cupy.ndarray(100, "u1")
    with pytest.raises(cupy.cuda.memory.OutOfMemoryError, match="caching"):
        cupy.ndarray(2**50, "u1")

    assert straight == [2**50]
    assert caching.statistics().failed_allocations == 1


def test_each_device_has_its_own_way(cupy, sim, straight, drawn):
    al.set_cuda_allocator("caching")
    for device in ("cuda:0", "cuda:1"):
        with al.ScopedDevice(device):
            cupy.ndarray(100, "u1")
            array = cupy.ndarray(100, "u1")
            assert (array.data.device_id, drawn(device)) == (al.get_device(device).ordinal, {"caching": 100})


def test_the_engine_in_python_is_called_the_general_way(cupy, straight, drawn):
    al.set_device_allocator("cuda:0", al.get_allocator("caching", "cuda:0", engine="python"))
    arrays = [cupy.ndarray(100, "u1") for _ in range(3)]

    assert (straight, drawn()) == ([], {"caching": 300})
    del arrays


def test_a_call_site_names_cupy(cupy):
    al.configure(layers=["track"])
    array = cupy.ndarray(100, "u1")
    (block,) = al.live_blocks()

    assert block.call_site.library == "cupy"
    assert block.call_site.frames[0].file == __file__
    del array
