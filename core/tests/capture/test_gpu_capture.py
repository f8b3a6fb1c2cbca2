"""Capture on a real GPU: what the simulated platform is believed to do, the device does."""

# ruff: noqa: PT012, SIM117 - what happens inside of blocks is what is tried here

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

import allotment as al
from allotment.interchange import from_numpy

pytestmark = pytest.mark.gpu

SIZE = 2**16


@pytest.fixture(autouse=True)
def nothing_left():
    """Check in the end that all memory of the device's allocators is given back, and that the device is well."""
    yield
    gc.collect()
    al.synchronize()
    for account in list(al.get_device("cuda:0").accounts.values()):
        assert account.statistics().live == 0, account
        assert not account.graph_blocks
    assert al.ones(4, device="cuda:0").numpy().tolist() == [1.0] * 4


def full(value, name="mempool"):
    with al.ScopedAllocator("cuda:0", name):
        array = al.full(SIZE, value, device="cuda:0")
    al.synchronize()
    return array


def holds(array, value):
    return bool((array.numpy() == value).all())


@pytest.mark.parametrize("mode", al.CaptureMode)
def test_arrays_made_and_dropped_inside_hold_what_each_launch_writes(mode):
    result = full(0.0)
    with al.ScopedCapture("cuda:0", capture_mode=mode) as capture:
        for value in (1.0, 2.0, 3.0):
            temporary = al.full(SIZE, value, device="cuda:0")
            al.copy(result, temporary)
            del temporary
        kept = al.full(SIZE, 4.0, device="cuda:0")
    ptr = kept.ptr
    with pytest.raises(al.CaptureError, match="no memory yet"):
        kept.numpy()
    for _ in range(5):
        result.fill_(9)
        capture.graph.launch()
        assert holds(result, 3.0)
        assert holds(kept, 4.0)
        kept.fill_(8)
    assert kept.ptr == ptr


@pytest.mark.parametrize("last", ["array", "graph"])
def test_memory_is_there_until_array_and_graph_are_both_gone(last):
    with al.ScopedCapture("cuda:0") as capture:
        array = al.full(SIZE, 1.0, device="cuda:0")
    graph = capture.graph
    del capture
    graph.launch()
    al.synchronize()
    if last == "array":
        del graph
        gc.collect()
        assert holds(array, 1.0)
    else:
        del array
        graph.launch()
        al.synchronize()


def test_a_graph_that_is_never_launched_goes_quietly():
    with al.ScopedCapture("cuda:0") as capture:
        array = al.zeros(SIZE, device="cuda:0")
    del capture
    gc.collect()
    with pytest.raises(al.CaptureError, match="thrown away"):
        array.numpy()


def test_after_captures_that_raise_the_next_one_works_though_arrays_of_them_are_held():
    void = []
    for _ in range(3):
        with pytest.raises(ValueError, match="body"), al.ScopedCapture("cuda:0"):
            void.append(al.empty(SIZE, device="cuda:0"))
            raise ValueError("body")
    with al.ScopedCapture("cuda:0") as capture:
        arrays = [al.full(SIZE, 1.0, device="cuda:0"), al.full(SIZE, 2.0, device="cuda:0")]
    capture.graph.launch()
    del void
    gc.collect()
    al.synchronize()

    assert [holds(array, value) for array, value in zip(arrays, (1.0, 2.0), strict=True)] == [True, True]


def test_a_call_that_ends_the_capture_is_told_and_the_stream_works_again():
    platform = al.get_device("cuda:0").platform
    stream = al.Stream("cuda:0", non_blocking=True)
    with pytest.raises(al.CaptureError, match="a call that it does not bear ended it"):
        with al.ScopedCapture(stream=stream):
            array = al.empty(SIZE, device="cuda:0")
            with pytest.raises(RuntimeError):
                platform.malloc(1024)
            del array
    with al.ScopedCapture(stream=stream) as capture:
        array = al.full(SIZE, 1.0, device="cuda:0")
    capture.graph.launch(stream)
    al.synchronize()

    assert holds(array, 1.0)


@pytest.mark.parametrize("name", ["mempool", "default", "managed"])
def test_memory_of_before_can_be_used_and_dropped_and_collected_inside(name):
    used, dropped, cycle = full(0.0, name), full(1.0, name), [full(2.0, name)]
    cycle.append(cycle)
    with al.ScopedCapture("cuda:0") as capture:
        del dropped, cycle
        gc.collect()
        used.fill_(3)
    capture.graph.launch()

    assert holds(used, 3.0)


@pytest.mark.parametrize("name", ["default", "managed"])
def test_allocators_that_cannot_be_captured_are_refused_and_the_capture_lives(name):
    array, chosen = full(0.0), al.ScopedAllocator("cuda:0", name)
    with al.ScopedCapture("cuda:0") as capture:
        with chosen, pytest.raises(al.CaptureError, match="cannot allocate"):
            al.empty(SIZE, device="cuda:0")
        array.fill_(1)
    capture.graph.launch()

    assert holds(array, 1.0)


def test_another_thread_allocates_and_frees_meanwhile():
    failures, stop = [], threading.Event()
    full(0.0)

    def work():
        try:
            with al.ScopedStream(al.Stream("cuda:0", non_blocking=True)):
                while not stop.is_set():
                    al.zeros(SIZE, device="cuda:0")
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(20):
        with al.ScopedCapture("cuda:0") as capture:
            array = al.full(SIZE, 5.0, device="cuda:0")
        capture.graph.launch()
        assert holds(array, 5.0)
    stop.set()
    thread.join()

    assert failures == []


def test_waiting_reading_and_asking_inside_are_refused_and_the_capture_lives():
    array = full(0.0)
    refused = [
        al.synchronize,
        array.numpy,
        lambda: al.get_mempool_used_mem_current("cuda:0"),
        lambda: al.trim_mempool("cuda:0"),
        lambda: al.get_stream("cuda:0").is_done,
        lambda: array.to("cpu"),
    ]
    with al.ScopedCapture("cuda:0", capture_mode=al.CaptureMode.GLOBAL) as capture:
        for call in refused:
            with pytest.raises(al.CaptureError):
                call()
        al.memory_stats("cuda:0")
        repr(array)
        array.fill_(1)
    capture.graph.launch()

    assert holds(array, 1.0)


@pytest.mark.parametrize("pinned", [False, True])
def test_host_memory_at_either_end_of_a_copy_is_kept_for_the_graph(pinned):
    array, back = full(0.0), al.zeros(SIZE, device="cpu", pinned=pinned)
    with al.ScopedCapture("cuda:0") as capture:
        al.copy(array, al.full(SIZE, 2.0, device="cpu", pinned=pinned))
        array[: SIZE // 2] = np.ones(SIZE // 2)
        al.copy(back, array)
    gc.collect()
    for _ in range(3):
        array.zero_()
        capture.graph.launch()
        al.synchronize()
        assert back.numpy()[[0, -1]].tolist() == [1.0, 2.0]


def test_page_locked_arrays_are_made_inside():
    array = full(0.0)
    with al.ScopedCapture("cuda:0") as capture:
        al.copy(array, al.full(SIZE, 6.0, device="cpu", pinned=True))
    capture.graph.launch()

    assert holds(array, 6.0)


def test_strided_work_on_a_stream_that_joined_is_captured():
    values = np.arange(float(SIZE)).reshape(256, -1)
    source, target = al.array(values, device="cuda:0"), al.zeros(values.T.shape, device="cuda:0")
    other = al.Stream("cuda:0", non_blocking=True)
    al.synchronize()
    with al.ScopedCapture("cuda:0") as capture, al.ScopedStream(other):
        al.copy(target, source.T)
        target[::2] = -1.0
    capture.graph.launch()
    expected = values.T.copy()
    expected[::2] = -1.0

    np.testing.assert_array_equal(target.numpy(), expected)


def test_a_graph_that_is_dropped_while_another_is_captured_does_not_end_it():
    with al.ScopedCapture("cuda:0") as first:
        array = al.full(SIZE, 1.0, device="cuda:0")
    first.graph.launch()
    result = full(0.0)
    with al.ScopedCapture("cuda:0") as second:
        del first, array
        gc.collect()
        result.fill_(2)
    second.graph.launch()

    assert holds(result, 2.0)


def test_arrays_join_a_capture_that_cupy_began():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    full(0.0)
    with cupy.cuda.Device(0):
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            with al.ScopedCapture("cuda:0", stream, external=True) as capture:
                array = al.full(SIZE, 3.0, device="cuda:0")
            graph = stream.end_capture()
            with pytest.raises(al.CaptureError, match="no memory yet"):
                array.numpy()
            graph.launch(stream)
            stream.synchronize()
    assert holds(array, 3.0)
    del array, capture, graph


@pytest.mark.multi_gpu
@pytest.mark.parametrize(("granting", "to"), [("cuda:0", "cuda:1"), ("cuda:1", "cuda:0")], ids=" to ".join)
@pytest.mark.parametrize("on", ["cuda:0", "cuda:1"])
def test_pool_arrays_are_copied_between_devices_with_access_one_way(granting, to, on):
    source, target = full(3.0), al.zeros(SIZE, device="cuda:1")
    with al.ScopedCapture(on), pytest.raises(al.CaptureError, match="neither device has access"):
        al.copy(target, source)
    with al.ScopedMempoolAccess(granting, to, True):
        with al.ScopedCapture(on) as capture:
            al.copy(target, source)
        capture.graph.launch()
        al.synchronize()
    assert holds(target, 3.0)


@pytest.mark.multi_gpu
def test_plain_arrays_are_copied_between_devices_without_access():
    source = full(3.0, "default")
    with al.ScopedMempool("cuda:1", False):
        target = al.zeros(SIZE, device="cuda:1")
    with al.ScopedCapture("cuda:1") as capture:
        al.copy(target, source)
    capture.graph.launch()
    al.synchronize()

    assert holds(target, 3.0)


def test_from_numpy_temporaries_are_read_at_each_launch():
    array, host = full(0.0), np.ones(SIZE)
    with al.ScopedCapture("cuda:0") as capture:
        al.copy(array, from_numpy(host))
    host[:] = 5.0
    capture.graph.launch()

    assert holds(array, 5.0)
