"""Graphs: captured work that can be done again and again."""

import numpy as np
import pytest

from allotment.errors import PlatformError
from allotment.platform import CaptureMode

KIB = 2**10


@pytest.fixture
def stream(platform):
    return platform.create_stream(0, non_blocking=True, priority=0)


@pytest.fixture
def other(platform):
    return platform.create_stream(0, non_blocking=True, priority=0)


@pytest.fixture
def memory(platform):
    """1 KiB of device 0, all zeros."""
    ptr = platform.malloc(KIB)
    platform.fill(ptr, 0, KIB, 0, 0)
    return ptr


@pytest.fixture
def graph(platform, stream, memory):
    """A graph that fills the memory with fives."""
    platform.begin_capture(stream, 0, CaptureMode.GLOBAL)
    platform.fill(memory, 5, KIB, stream, 0)
    return platform.end_capture(stream, 0)


def test_an_executable_outlives_its_graph(platform, read, graph, stream, memory):
    executable = platform.instantiate_graph(graph)
    platform.destroy_graph(graph)
    platform.launch_graph(executable, stream, 0)
    assert (read(memory, KIB) == 5).all()


def test_a_launch_outlives_its_executable(platform, read, graph, stream, memory):
    executable = platform.instantiate_graph(graph)
    with platform.delayed(stream):
        platform.launch_graph(executable, stream, 0)
        platform.destroy_graph_executable(executable)
        assert not read(memory, KIB).any()
    assert (read(memory, KIB) == 5).all()


def test_a_graph_without_memory_of_its_own_has_any_number_of_executables(platform, graph, stream, other):
    for queue in (stream, other):
        platform.launch_graph(platform.instantiate_graph(graph), queue, 0)


def test_a_graph_is_launched_on_any_stream_in_its_order(platform, read, graph, other, memory):
    executable = platform.instantiate_graph(graph)
    platform.launch_graph(executable, other, 0)
    platform.fill(memory, 6, KIB, other, 0)
    assert (read(memory, KIB) == 6).all()


def test_a_fault_in_a_graph_is_met_by_later_calls(platform, stream):
    platform.begin_capture(stream, 0, CaptureMode.GLOBAL)
    platform.launch(lambda: platform.check_kernel_access(0, 0, 4), stream, 0)
    executable = platform.instantiate_graph(platform.end_capture(stream, 0))
    platform.launch_graph(executable, stream, 0)
    with pytest.raises(PlatformError, match="cudaErrorIllegalAddress"):
        platform.synchronize_stream(stream, 0)


def test_a_graph_is_made_by_hand(platform, read, stream, memory):
    data = np.full(KIB, 9, np.uint8)
    graph = platform.create_graph()
    platform.add_copy_node(graph, memory, data.ctypes.data, KIB)
    assert platform.graph_node_count(graph) == 1
    platform.launch_graph(platform.instantiate_graph(graph), stream, 0)
    assert (read(memory, KIB) == 9).all()


def test_a_copy_of_a_graph_does_the_same_and_stands_alone(platform, read, graph, stream, memory):
    copy = platform.clone_graph(graph)
    platform.destroy_graph(graph)
    platform.launch_graph(platform.instantiate_graph(copy), stream, 0)
    assert (read(memory, KIB) == 5).all()


def test_a_graph_launched_in_a_capture_is_part_of_the_other_graph(platform, read, stream, other, memory):
    platform.begin_capture(other, 0, CaptureMode.GLOBAL)
    platform.fill(memory, 5, KIB, other, 0)
    child = platform.instantiate_graph(platform.end_capture(other, 0))
    platform.begin_capture(stream, 0, CaptureMode.GLOBAL)
    platform.launch_graph(child, stream, 0)
    graph = platform.end_capture(stream, 0)
    assert not read(memory, KIB).any()
    platform.launch_graph(platform.instantiate_graph(graph), stream, 0)
    assert (read(memory, KIB) == 5).all()


@pytest.mark.parametrize("handle", [0, 12345])
def test_graphs_that_are_not_there_are_refused(platform, stream, handle):
    for call in (
        lambda: platform.instantiate_graph(handle),
        lambda: platform.destroy_graph(handle),
        lambda: platform.destroy_graph_executable(handle),
        lambda: platform.launch_graph(handle, stream, 0),
    ):
        with pytest.raises(PlatformError, match="cudaErrorInvalidValue"):
            call()
