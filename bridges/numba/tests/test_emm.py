"""Numba's memory manager without a GPU: its interface, called as Numba calls it, on the simulated platform."""

import gc
import threading
from contextlib import suppress

import pytest

import allotment as al


def in_use(device="cuda:0"):
    return sum(stats.current for stats in al.memory_stats(device)[device].values())


def test_numba_reads_the_version_from_a_manager_without_a_context(driver):
    from allotment_numba_bridge import AllotmentNumbaManager

    assert AllotmentNumbaManager(context=None).interface_version == 1


def test_a_reset_may_come_before_initialize(driver):
    from allotment_numba_bridge import AllotmentNumbaManager

    AllotmentNumbaManager(context=None).reset()


def test_memory_is_booked_and_returns_with_its_pointer(make_manager):
    pointer = make_manager().memalloc(100)
    assert (pointer.size, pointer.device_pointer_value % 256, in_use()) == (100, 0, 100)
    del pointer
    assert in_use() == 0


def test_memory_is_of_the_context_s_device(make_manager):
    pointer = make_manager(number=1).memalloc(100)
    assert (in_use("cuda:0"), in_use("cuda:1")) == (0, 100)
    del pointer


@pytest.mark.parametrize("name", ["default", "mempool", "managed", "caching"])
def test_memory_returns_to_the_allocator_that_it_came_from(make_manager, name):
    manager = make_manager()
    with al.ScopedAllocator("cuda:0", name):
        pointer = manager.memalloc(100)
    assert al.get_allocator(name, "cuda:0").statistics().current == 100
    al.set_device_allocator("cuda:0", "default" if name != "default" else "mempool")
    del pointer
    assert al.get_allocator(name, "cuda:0").statistics().frees == 1


def test_a_view_keeps_the_memory(make_manager):
    pointer = make_manager().memalloc(100)
    view = pointer.view(10)
    del pointer
    gc.collect()
    assert in_use() == 100
    del view
    assert in_use() == 0


def test_a_pointer_may_be_freed_before_it_is_gone(make_manager):
    pointer = make_manager().memalloc(100)
    pointer.free()
    assert in_use() == 0
    with pytest.raises(RuntimeError, match="Freeing dead memory"):
        pointer.free()
    del pointer
    assert in_use() == 0


def test_no_bytes_are_a_null_pointer(make_manager):
    pointer = make_manager().memalloc(0)
    assert (pointer.device_pointer_value, pointer.size, in_use()) == (None, 0, 0)


def test_a_reset_takes_all_back_and_pointers_that_outlive_it_do_nothing(make_manager):
    manager = make_manager()
    pointers = [manager.memalloc(100) for _ in range(3)]
    manager.reset()
    again = manager.memalloc(100)
    del pointers
    assert in_use() == 100
    del again
    assert in_use() == 0


def test_a_reset_gives_idle_memory_back_to_the_driver(make_manager, sim):
    manager = make_manager()
    with al.ScopedAllocator("cuda:0", "caching"):
        pointer = manager.memalloc(100)
    manager.reset()
    assert al.get_allocator("caching", "cuda:0").statistics().reserved == 0
    del pointer


def test_nothing_is_freed_while_cleanup_is_deferred(make_manager):
    manager = make_manager()
    pointer = manager.memalloc(100)
    with manager.defer_cleanup():
        with manager.defer_cleanup():
            del pointer
            assert in_use() == 100
        assert in_use() == 100
    assert in_use() == 0


def test_deferred_memory_is_freed_after_an_exception(make_manager):
    manager = make_manager()
    held = [manager.memalloc(100)]
    with suppress(KeyError), manager.defer_cleanup():
        held.clear()
        raise KeyError
    assert in_use() == 0


def test_a_reset_frees_what_is_deferred(make_manager):
    manager = make_manager()
    pointer = manager.memalloc(100)
    with manager.defer_cleanup():
        del pointer
        manager.reset()
        assert in_use() == 0


def test_memory_may_be_dropped_in_another_thread(make_manager):
    manager, held = make_manager(), []
    held.append(manager.memalloc(100))
    dropping = threading.Thread(target=held.clear)
    dropping.start()
    dropping.join()
    assert in_use() == 0


def test_a_request_that_cannot_be_met_is_numba_s_error_and_carries_ours(make_manager, driver):
    with pytest.raises(driver.CudaAPIError, match="out of memory") as caught:
        make_manager().memalloc(2**50)
    assert caught.value.code == driver.binding.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    assert isinstance(caught.value.__cause__, al.OutOfMemoryError)
    assert caught.value.__cause__.requested == 2**50


def test_a_free_that_fails_is_told_and_stays_on_the_books(make_manager, sim):
    account = al.get_allocator("default", "cuda:0")
    with al.ScopedAllocator("cuda:0", "default"):
        pointer = make_manager().memalloc(100)
    sim.fail("free")
    with pytest.warns(al.FreeFailedWarning, match="100 bytes at .* could not be given back to allocator 'default'"):
        pointer.free()
    assert account.statistics().current == 100
    account.deallocate(pointer.device_pointer_value, 100)


@pytest.mark.parametrize("non_blocking", [True, False])
@pytest.mark.parametrize("name", ["default", "mempool", "caching"])
def test_a_capture_that_nobody_told_of_survives_frees(make_manager, name, non_blocking):
    manager, platform = make_manager(), al.get_device("cuda:0").platform
    with al.ScopedAllocator("cuda:0", name):
        pointer = manager.memalloc(100)
    stream = al.Stream("cuda:0", non_blocking=non_blocking)
    platform.begin_capture(stream.handle, 0, al.CaptureMode.GLOBAL)
    del pointer
    platform.destroy_graph(platform.end_capture(stream.handle, 0))
    with al.ScopedAllocator("cuda:0", name):
        again = manager.memalloc(10)
    del again
    assert in_use() == 0


def test_memory_dropped_in_a_capture_is_freed_after_it(make_manager):
    pointer = make_manager().memalloc(100)
    stream = al.Stream("cuda:0", non_blocking=True)
    with al.ScopedCapture(stream=stream):
        del pointer
    assert in_use() == 0


def test_numba_is_told_how_much_memory_the_device_has(make_manager):
    free, total = make_manager().get_memory_info()
    assert (free, total) == tuple(getattr(al.get_device("cuda:0").memory_info, name) for name in ("free", "total"))


def test_memory_without_handles_cannot_be_shared(make_manager):
    manager = make_manager()
    pointer = manager.memalloc(100)
    with pytest.raises(al.UnsupportedError, match=r"'mempool' cannot be shared.*allocator='default'"):
        manager.get_ipc_handle(pointer.view(10))


def test_what_numba_allocates_is_told_as_numba_s(make_manager):
    al.configure(layers=["track"])
    pointer = make_manager().memalloc(100)
    (block,) = al.live_blocks()
    assert (block.call_site.library, block.call_site.frames[0].file) == ("numba", __file__)
    del pointer


@pytest.mark.parametrize("name", ["mempool", "caching"])
def test_a_free_keeps_order_with_all_streams_of_numba(make_manager, sim, name):
    manager = make_manager()
    with al.ScopedAllocator("cuda:0", name):
        pointer = manager.memalloc(100)
    before = len(sim.calls)
    del pointer
    assert any("ecord" in str(call) for call in list(sim.calls)[before:])


def test_a_context_that_somebody_else_opened_may_have_the_driver_s_device(make_manager):
    class CUdevice:
        def __int__(self):
            return 1

    pointer = make_manager(device=CUdevice()).memalloc(100)
    assert sum(stats.current for stats in al.memory_stats("cuda:1")["cuda:1"].values()) == 100
    del pointer
