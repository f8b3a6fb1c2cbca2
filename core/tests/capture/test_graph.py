"""Graphs: launching them, what they keep alive, and whose memory is freed when."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

import allotment as al
from allotment.interchange import from_numpy


@pytest.fixture(autouse=True)
def _nothing_left(nothing_left):
    """Hold for every test here."""


def captured_array(value=1.0, size=4, device="cuda:0"):
    with al.ScopedCapture(device) as capture:
        array = al.full(size, value, device=device)
    return capture.graph, array


def frees(sim):
    return [call.arguments["ptr"] for call in sim.calls.named("free_async")]


# Launching


def test_a_graph_counts_its_launches_and_says_what_it_is(sim):
    graph, _ = captured_array()
    for _ in range(3):
        al.capture_launch(graph)

    assert graph.launches == 3
    assert repr(graph) == "<Graph on 'cuda:0', launched 3 times>"
    graph.close()
    assert repr(graph) == "<Graph on 'cuda:0', closed>"


def test_a_graph_is_made_executable_once(sim):
    graph, _ = captured_array()
    assert sim.calls.named("instantiate_graph") == []
    graph.launch()
    graph.launch()

    assert len(sim.calls.named("instantiate_graph")) == 1


def test_a_launch_is_in_the_order_of_the_stream_in_force_or_the_one_given(sim):
    array = al.zeros(4)
    with al.ScopedCapture() as capture:
        array.fill_(1)
    one, other = al.Stream("cuda:0", non_blocking=True), al.Stream("cuda:0", non_blocking=True)
    with al.ScopedStream(one):
        capture.graph.launch()
    capture.graph.launch(other)
    al.capture_launch(capture.graph, other)

    assert [call.arguments["stream"] for call in sim.calls.named("launch_graph")] == [
        one.handle,
        other.handle,
        other.handle,
    ]


def test_threads_launch_the_same_graph(sim):
    graph, array = captured_array()
    threads = [threading.Thread(target=graph.launch) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert graph.launches == 8
    assert array.numpy().tolist() == [1.0] * 4


def test_a_stream_of_another_device_is_refused(sim):
    graph, _ = captured_array()
    with pytest.raises(al.CaptureError, match="cannot be launched on a stream of 'cuda:1'"):
        graph.launch(al.Stream("cuda:1"))


def test_a_launch_inside_a_capture_is_refused_before_the_driver_is_asked(sim):
    graph, _ = captured_array()
    with al.ScopedCapture() as capture:
        sim.calls.clear()
        with pytest.raises(al.CaptureError, match="cannot be launched inside a capture"):
            graph.launch()
        assert sim.calls.named("instantiate_graph", "launch_graph") == []
    capture.graph.launch()


def test_a_launch_on_another_stream_is_possible_while_a_graph_is_captured(sim):
    graph, array = captured_array()
    other = al.Stream("cuda:0", non_blocking=True)
    with al.ScopedCapture() as capture:
        graph.launch(other)
    capture.graph.launch()

    assert array.numpy().tolist() == [1.0] * 4


def test_memory_that_is_not_to_be_had_at_the_launch_is_out_of_memory(sim):
    free = sim.memory_info(0).free
    held = al.empty(free - 2**30, dtype="u1")
    with al.ScopedCapture() as capture:
        array = al.empty(2**28)
        array[0] = 1.0
    graph = capture.graph
    with pytest.raises(al.OutOfMemoryError, match="Each launch allocates what the graph owns") as raised:
        graph.launch()
    assert raised.value.requested == graph.owned_bytes == 2**31
    with pytest.raises(al.CaptureError, match="no memory yet"):
        array.numpy()
    del held
    al.trim_mempool("cuda:0")
    sim.calls.clear()
    graph.launch()

    assert array[:1].numpy().tolist() == [1.0]


# Memory


@pytest.mark.parametrize("order", ["array first", "graph first"])
@pytest.mark.parametrize("launches", [1, 3])
def test_memory_is_freed_when_array_and_graph_are_both_gone(sim, order, launches):
    graph, array = captured_array()
    for _ in range(launches):
        graph.launch()
    ptr = array.ptr
    sim.calls.clear()
    if order == "array first":
        del array
        assert frees(sim) == []
        graph.launch()
        del graph
    else:
        del graph
        gc.collect()
        assert frees(sim) == []
        assert array.numpy().tolist() == [1.0] * 4
        del array

    assert frees(sim) == [ptr]


def test_a_view_holds_the_memory_as_its_array_does(sim):
    graph, array = captured_array()
    graph.launch()
    view = array[2:]
    del array, graph
    gc.collect()

    assert view.numpy().tolist() == [1.0] * 2


@pytest.mark.parametrize("order", ["array first", "graph first"])
def test_of_a_graph_that_is_never_launched_there_is_nothing_to_free(sim, order):
    graph, array = captured_array()
    if order == "array first":
        del array
        del graph
    else:
        del graph
        gc.collect()
        with pytest.raises(al.CaptureError, match="its graph was thrown away before it was launched"):
            array.numpy()
        del array

    assert frees(sim) == []


def test_memory_is_freed_in_the_order_of_the_latest_launch(sim):
    graph, array = captured_array()
    stream = al.Stream("cuda:0", non_blocking=True)
    graph.launch()
    graph.launch(stream)
    graph.close()
    with sim.delayed(stream.handle, 0):
        del array
        assert [call.arguments["stream"] for call in sim.calls.named("free_async")] == [stream.handle]


def test_memory_lives_on_when_the_stream_of_the_launch_is_closed(sim):
    graph, array = captured_array()
    stream = al.Stream("cuda:0")
    graph.launch(stream)
    stream.close()
    graph.close()

    assert array.numpy().tolist() == [1.0] * 4


def test_owned_bytes_are_those_of_the_graph_and_statistics_those_of_arrays(sim):
    graph, array = captured_array(size=1000)
    statistics = array.account.statistics
    assert (graph.owned_bytes, statistics().current) == (8000, 8000)
    graph.launch()
    del array
    assert (graph.owned_bytes, statistics().current) == (8000, 0)
    assert al.get_mempool_used_mem_current("cuda:0") == 0
    graph.close()
    assert graph.owned_bytes == 0


def test_graphs_of_the_same_device_do_not_share_addresses(sim):
    made = [captured_array(float(value), 1000) for value in range(4)]
    for graph, _ in made:
        graph.launch()

    assert [array.numpy()[0] for _, array in made] == [0.0, 1.0, 2.0, 3.0]


# Closing


def test_a_closed_graph_cannot_be_launched_and_closes_again_quietly(sim):
    graph, _ = captured_array()
    graph.close()
    graph.close()
    with pytest.raises(al.ClosedError, match="was closed"):
        graph.launch()


def test_a_graph_gives_its_handles_back(sim):
    graph, _ = captured_array()
    graph.launch()
    graph.close()
    names = [call.name for call in sim.calls]

    assert names.count("destroy_graph") == names.count("destroy_graph_executable") == 1


@pytest.mark.parametrize("how", ["dropped", "closed", "collected"])
@pytest.mark.parametrize("mode", [al.CaptureMode.GLOBAL, al.CaptureMode.THREAD_LOCAL])
def test_a_graph_that_goes_while_another_is_captured_is_destroyed_afterwards(sim, how, mode):
    graph, array = captured_array()
    graph.launch()
    box = [graph]
    if how == "collected":
        box.append(box)
    with al.ScopedCapture(capture_mode=mode) as capture:
        if how == "closed":
            graph.close()
        del graph
        if how == "dropped":
            box.clear()
        del box
        gc.collect()
        assert sim.calls.named("destroy_graph", "destroy_graph_executable") == []
        del array
        assert frees(sim) == []
    assert len(sim.calls.named("destroy_graph", "destroy_graph_executable")) == 2
    assert len(frees(sim)) == 1
    capture.graph.launch()


def test_a_failing_destruction_is_a_warning_in_a_finaliser(sim):
    graph, _ = captured_array()
    sim.fail("destroy_graph", code="cudaErrorUnknown")
    with pytest.warns(al.FreeFailedWarning, match="a graph was not destroyed"):
        del graph
    sim.calls.clear()


# What captured work uses


@pytest.mark.parametrize("pinned", [False, True])
def test_host_memory_that_is_copied_from_lives_as_long_as_the_graph(sim, pinned):
    array = al.zeros(4)
    host = al.full(4, 2.0, device="cpu", pinned=pinned)
    gone = weakref.ref(host)
    with al.ScopedCapture() as capture:
        al.copy(array, host)
    del host
    gc.collect()
    for _ in range(3):
        array.zero_()
        capture.graph.launch()
        assert array.numpy().tolist() == [2.0] * 4
    assert gone() is not None
    capture.graph.close()
    gc.collect()

    assert gone() is None


@pytest.mark.parametrize("pinned", [False, True])
def test_host_memory_that_is_copied_into_is_filled_by_each_launch(sim, pinned):
    array = al.zeros(4)
    host = al.zeros(4, device="cpu", pinned=pinned)
    with al.ScopedCapture() as capture:
        al.copy(host, array)
    for value in (1.0, 2.0):
        array.fill_(value)
        capture.graph.launch()
        al.synchronize_device("cuda:0")
        assert host.numpy().tolist() == [value] * 4


def test_a_change_of_the_host_memory_between_launches_is_seen(sim):
    array, host = al.zeros(4), np.ones(4)
    with al.ScopedCapture() as capture:
        al.copy(array, from_numpy(host))
    host[:] = 5
    capture.graph.launch()

    assert array.numpy().tolist() == [5.0] * 4


def test_a_temporary_on_the_host_is_kept(sim):
    array = al.zeros(4)
    with al.ScopedCapture() as capture:
        array[:] = [1.0, 2.0, 3.0, 4.0]
        made = al.array(np.arange(4.0))
        array[1:3] = np.array([7.0, 8.0])
    gc.collect()
    capture.graph.launch()

    assert array.numpy().tolist() == [1.0, 7.0, 8.0, 4.0]
    assert made.numpy().tolist() == [0.0, 1.0, 2.0, 3.0]


def test_host_memory_that_a_launch_still_uses_goes_when_it_is_done(sim):
    array = al.zeros(4)
    stream = al.Stream("cuda:0", non_blocking=True)
    with al.ScopedCapture() as capture:
        al.copy(array, al.full(4, 2.0, device="cpu", pinned=True))
    sim.hold(stream.handle, 0)
    capture.graph.launch(stream)
    capture.graph.close()
    assert stream.is_done
    sim.release(stream.handle, 0)

    assert array.numpy().tolist() == [2.0] * 4


@pytest.mark.parametrize("layout", [lambda a: a[::2, 1:], lambda a: a.T, lambda a: a[::-1]])
def test_strided_copies_to_and_from_the_host_are_captured(sim, layout):
    values = np.arange(16.0).reshape(4, 4)
    source, target = from_numpy(values), al.zeros((4, 4))
    back = np.zeros(layout(values).shape)
    with al.ScopedCapture() as capture:
        layout(target)[...] = layout(source)
        al.copy(from_numpy(back), layout(target))
    capture.graph.launch()
    al.synchronize_device("cuda:0")

    np.testing.assert_array_equal(back, layout(values))


def test_pre_made_arrays_of_every_kind_can_be_used_inside(sim):
    arrays = []
    for name in ("default", "mempool", "managed"):
        with al.ScopedAllocator("cuda:0", name):
            arrays.append(al.zeros(4))
    with al.ScopedCapture() as capture:
        arrays[0].fill_(1)
        al.copy(arrays[1], arrays[0])
        al.copy(arrays[2], arrays[1])
    capture.graph.launch()

    assert [array.numpy().tolist() for array in arrays] == [[1.0] * 4] * 3
