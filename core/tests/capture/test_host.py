"""Captures of the host: arrays are there at once, work is recorded, and launches reuse the memory."""

# ruff: noqa: PT012 - what happens inside of blocks is what is tried here

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

import allotment as al
from allotment.interchange import from_numpy


@pytest.fixture(params=["host", "sim:2xh200"])
def platform(request):
    """The host alone, and beside simulated devices."""
    if request.param == "host":
        al.init("host", quiet=True)
        yield None
    else:
        with al.simulate("2xh200") as sim:
            yield sim


pytestmark = pytest.mark.usefixtures("platform")
BESIDE_DEVICES = pytest.mark.parametrize("platform", ["sim:2xh200"], indirect=True)


def ramp(values):
    values[:] = np.arange(len(values))


def test_arrays_made_inside_are_there_at_once_and_filled_by_a_launch():
    with al.ScopedCapture("cpu") as capture:
        array = al.empty(4, device="cpu")
        assert array.ptr
        array.numpy()[:] = -1
        array.fill_(2)
        assert array.numpy().tolist() == [-1.0] * 4
    capture.graph.launch()

    assert array.numpy().tolist() == [2.0] * 4


def test_fills_copies_and_launches_are_recorded_in_their_order():
    before, result = al.zeros(4, device="cpu"), al.zeros(4, device="cpu")
    with al.ScopedCapture("cpu") as capture:
        inside = al.zeros(4, device="cpu")
        al.launch(ramp, dim=4, inputs=[inside], device="cpu")
        al.copy(result, inside)
        inside.zero_()
        before[1:3] = 5.0
    assert result.numpy().tolist() == before.numpy().tolist() == [0.0] * 4
    al.capture_launch(capture.graph)

    assert result.numpy().tolist() == [0.0, 1.0, 2.0, 3.0]
    assert before.numpy().tolist() == [0.0, 5.0, 5.0, 0.0]
    assert inside.numpy().tolist() == [0.0] * 4


def test_a_copy_that_converts_reads_at_the_launch():
    source, target = from_numpy(np.zeros(3, "i4")), al.zeros(3, device="cpu")
    with al.ScopedCapture("cpu") as capture:
        al.copy(target, source)
    source.fill_(7)
    capture.graph.launch()

    assert target.numpy().tolist() == [7.0] * 3


def test_a_copy_that_cannot_be_is_refused_when_it_is_captured():
    with al.ScopedCapture("cpu"), pytest.raises(ValueError, match="are not copied into elements"):
        al.copy(al.empty(3, "i4", "cpu"), al.empty(3, "f8", "cpu"))


def test_fifty_launches_allocate_nothing():
    with al.ScopedCapture("cpu") as capture:
        array = al.zeros(1000, device="cpu")
        scratch = al.full(1000, 2.0, device="cpu")
        al.copy(array, scratch)
        del scratch
    account = array.account
    before = account.statistics()
    for _ in range(50):
        array.numpy()[:] = 0
        capture.graph.launch()
        assert array.numpy()[-1] == 2.0

    assert account.statistics() == before
    assert capture.graph.launches == 50


def test_arrays_made_inside_live_as_long_as_the_graph():
    with al.ScopedCapture("cpu") as capture:
        array = al.zeros(2**20, device="cpu")
        used = weakref.ref(array)
        al.empty(1000, device="cpu")
        del array
    account = al.get_allocator(device="cpu")
    assert capture.graph.owned_bytes == 2**23 + 8000
    assert used() is not None
    capture.graph.launch()
    capture.graph.close()
    gc.collect()

    assert used() is None
    assert capture.graph.owned_bytes == 0
    assert not account.graph_blocks
    assert account.statistics().current == 0


@pytest.mark.parametrize("order", ["array first", "graph first"])
def test_memory_is_freed_when_array_and_graph_are_both_gone(order):
    freed = []

    class Host:
        def allocate(self, size_in_bytes):
            self.kept = np.zeros(size_in_bytes, np.uint8)
            return self.kept.ctypes.data

        def deallocate(self, ptr, size_in_bytes):
            freed.append(size_in_bytes)

    with al.ScopedAllocator("cpu", Host()), al.ScopedCapture("cpu") as capture:
        array = al.empty(100, device="cpu")
    if order == "array first":
        del array
        assert freed == []
        del capture
    else:
        capture.graph.close()
        assert freed == []
        assert array.fill_(1).numpy()[0] == 1.0
        del array
    gc.collect()

    assert freed == [800]


def test_arrays_of_before_are_freed_at_once():
    array = al.zeros(1000, device="cpu")
    statistics = array.account.statistics
    with al.ScopedCapture("cpu"):
        del array
        assert statistics().live == 0


def test_after_the_graph_is_gone_calls_go_straight_again(straight_calls):
    account = al.get_allocator(device="cpu")
    before = straight_calls(account)
    with al.ScopedCapture("cpu") as capture:
        al.zeros(4, device="cpu")
    assert straight_calls(account) != before
    del capture
    gc.collect()

    assert straight_calls(account) == before


def test_an_exception_in_the_block_records_nothing_and_keeps_nothing():
    array = al.zeros(4, device="cpu")
    with pytest.raises(ValueError, match="body"), al.ScopedCapture("cpu") as capture:
        array.fill_(1)
        al.zeros(4, device="cpu")
        raise ValueError("body")
    gc.collect()

    assert capture.graph is None
    assert array.numpy().tolist() == [0.0] * 4
    assert array.account.statistics().live == 1
    assert array.fill_(2).numpy()[0] == 2.0


def test_the_work_of_other_threads_is_done_and_not_recorded():
    array = al.zeros(4, device="cpu")
    with al.ScopedCapture("cpu") as capture:
        thread = threading.Thread(target=lambda: array.fill_(3))
        thread.start()
        thread.join()
        assert array.numpy().tolist() == [3.0] * 4
    array.zero_()
    capture.graph.launch()

    assert array.numpy().tolist() == [0.0] * 4


def test_two_threads_capture_each_its_own_work():
    arrays = [al.zeros(4, device="cpu") for _ in range(2)]
    graphs = [None, None]
    barrier = threading.Barrier(2)

    def capture(number):
        with al.ScopedCapture("cpu") as scope:
            barrier.wait()
            arrays[number].fill_(number + 1)
            barrier.wait()
        graphs[number] = scope.graph

    threads = [threading.Thread(target=capture, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    graphs[1].launch()

    assert [array.numpy()[0] for array in arrays] == [0.0, 2.0]


def test_a_graph_that_is_launched_inside_becomes_part_of_the_other():
    array = al.zeros(4, device="cpu")
    with al.ScopedCapture("cpu") as inner:
        array.fill_(1)
    with al.ScopedCapture("cpu") as outer:
        inner.graph.launch()
    assert array.numpy().tolist() == [0.0] * 4
    outer.graph.launch()

    assert array.numpy().tolist() == [1.0] * 4


def test_an_error_in_a_step_leaves_the_launch():
    array = al.zeros(4, device="cpu")

    def fail(values):
        raise ZeroDivisionError

    with al.ScopedCapture("cpu") as capture:
        al.launch(fail, dim=4, inputs=[array], device="cpu")
    with pytest.raises(ZeroDivisionError):
        capture.graph.launch()

    assert capture.graph.launches == 0


@BESIDE_DEVICES
def test_copies_to_and_from_a_device_are_recorded_too():
    host, gpu = al.zeros(4, device="cpu"), al.zeros(4, device="cuda:0")
    with al.ScopedCapture("cpu") as capture:
        host.fill_(3)
        al.copy(gpu, host)
        gpu[:2] = 1.0
        al.copy(host, gpu)
    assert host.numpy().tolist() == [0.0] * 4
    capture.graph.launch()

    assert host.numpy().tolist() == gpu.numpy().tolist() == [3.0] * 4


@BESIDE_DEVICES
def test_a_capture_of_the_host_does_not_stand_in_the_way_of_devices():
    array = al.zeros(4, device="cuda:0")
    with al.ScopedCapture("cpu"):
        array.fill_(1)
        al.synchronize()
        assert al.get_mempool_used_mem_current("cuda:0") == 32
        del array
        assert al.get_mempool_used_mem_current("cuda:0") == 0
