"""Memory that belongs to graphs."""

import pytest

from allotment.errors import PlatformError
from allotment.memory_kind import MemoryKind
from allotment.platform import CaptureMode, PoolAccess

BLOCK = 32 * 2**20
MIB = 2**20


@pytest.fixture
def stream(platform):
    return platform.create_stream(0, non_blocking=True, priority=0)


class Recorder:
    """Captures allocations on a stream."""

    def __init__(self, platform, stream):
        self.platform, self.stream = platform, stream
        self.pool = platform.default_pool(0)

    def begin(self):
        self.platform.begin_capture(self.stream, 0, CaptureMode.THREAD_LOCAL)

    def allocate(self, nbytes=MIB):
        return self.platform.malloc_from_pool(nbytes, self.pool, self.stream)

    def free(self, ptr):
        self.platform.free_async(ptr, self.stream)

    def executable(self, *, auto_free=True):
        return self.platform.instantiate_graph(self.platform.end_capture(self.stream, 0), auto_free=auto_free)

    def launch(self, executable):
        self.platform.launch_graph(executable, self.stream, 0)
        self.platform.synchronize_stream(self.stream, 0)


@pytest.fixture
def graphs(platform, stream):
    return Recorder(platform, stream)


def test_two_live_blocks_of_a_graph_share_what_is_mapped(platform, graphs):
    graphs.begin()
    first, second = graphs.allocate(), graphs.allocate(100)
    assert second - first == MIB
    graphs.launch(graphs.executable())
    assert platform.graph_memory(0).reserved == BLOCK
    assert {platform.pointer_attributes(ptr).nbytes for ptr in (first, second)} == {MIB, 100}


def test_graph_memory_counts_against_the_device_from_the_launch_to_a_trim(platform, graphs):
    total = platform.memory_info(0).free
    graphs.begin()
    ptr = graphs.allocate(40 * MIB)
    executable = graphs.executable()
    assert platform.memory_info(0).free == total
    graphs.launch(executable)
    assert platform.memory_info(0).free == total - 2 * BLOCK
    graphs.free(ptr)
    assert platform.memory_info(0).free == total - 2 * BLOCK
    platform.trim_graph_memory(0)
    assert platform.memory_info(0).free == total


def test_what_one_graph_gave_up_serves_the_next(platform, graphs):
    for _ in range(3):
        graphs.begin()
        graphs.free(graphs.allocate())
        graphs.launch(graphs.executable())
    assert platform.graph_memory(0).reserved == BLOCK


def test_two_graphs_whose_memory_lives_at_once_need_memory_of_their_own(platform, graphs):
    for _ in range(2):
        graphs.begin()
        graphs.allocate()
        graphs.launch(graphs.executable())
    assert platform.graph_memory(0).reserved == 2 * BLOCK


def test_the_pools_accounts_do_not_change(platform, graphs):
    graphs.begin()
    graphs.allocate()
    graphs.launch(graphs.executable())
    assert platform.pointer_attributes(graphs.allocate()).kind is MemoryKind.CUDA_MEMPOOL


def test_a_launch_without_room_is_refused_and_changes_nothing(platform, graphs):
    free = platform.memory_info(0).free
    graphs.begin()
    ptrs = [graphs.allocate(free // 2) for _ in range(3)]
    executable = graphs.executable()
    with pytest.raises(PlatformError, match="cudaErrorMemoryAllocation"):
        platform.launch_graph(executable, graphs.stream, 0)
    assert platform.pointer_attributes(ptrs[0]).kind is MemoryKind.UNKNOWN
    platform.trim_graph_memory(0)
    assert platform.memory_info(0).free == free


def test_more_than_the_device_has_is_refused_in_the_capture(platform, graphs):
    graphs.begin()
    with pytest.raises(PlatformError, match="cudaErrorMemoryAllocation"):
        graphs.allocate(platform.memory_info(0).total + BLOCK)


def test_an_address_is_not_reused_on_a_stream_that_does_not_come_after_the_free(platform, graphs):
    other = platform.create_stream(0, non_blocking=True, priority=0)
    graphs.begin()
    ptr = graphs.allocate()
    platform.wait_for_stream(other, graphs.stream, 0, 0)
    graphs.free(ptr)
    assert platform.malloc_from_pool(MIB, graphs.pool, other) != ptr
    platform.wait_for_stream(other, graphs.stream, 0, 0)
    assert platform.malloc_from_pool(MIB, graphs.pool, other) == ptr


def test_an_address_used_twice_in_a_graph_lives_on_if_the_second_use_does(platform, graphs):
    graphs.begin()
    first = graphs.allocate()
    graphs.free(first)
    assert graphs.allocate() == first
    executable = graphs.executable()
    for _ in range(2):
        graphs.launch(executable)
        assert platform.pointer_attributes(first).nbytes == MIB
    graphs.free(first)
    assert platform.pointer_attributes(first).kind is MemoryKind.UNKNOWN


def test_kernels_of_a_graph_touch_memory_that_lives_only_while_it_runs(platform, graphs):
    graphs.begin()
    ptr = graphs.allocate()
    platform.launch(lambda: platform.check_kernel_access(0, ptr, MIB), graphs.stream, 0)
    graphs.free(ptr)
    executable = graphs.executable()
    graphs.launch(executable)
    graphs.launch(executable)
    assert platform.pointer_attributes(ptr).kind is MemoryKind.UNKNOWN


def test_memory_freed_behind_a_launch_that_is_not_done_is_not_given_up_before(platform, graphs):
    graphs.begin()
    ptr = graphs.allocate()
    platform.fill(ptr, 1, MIB, graphs.stream, 0)
    executable = graphs.executable()
    with platform.delayed(graphs.stream):
        platform.launch_graph(executable, graphs.stream, 0)
        graphs.free(ptr)
        platform.trim_graph_memory(0)
        assert platform.graph_memory(0).reserved == BLOCK
    platform.trim_graph_memory(0)
    assert platform.graph_memory(0).reserved == 0


def test_addresses_serve_other_graphs_once_nothing_of_a_graph_is_left(platform, graphs):
    graphs.begin()
    ptr = graphs.allocate()
    graph = platform.end_capture(graphs.stream, 0)
    executable = platform.instantiate_graph(graph)
    graphs.launch(executable)
    platform.destroy_graph(graph)
    platform.destroy_graph_executable(executable)
    graphs.begin()
    assert graphs.allocate() != ptr
    platform.end_capture(graphs.stream, 0)
    graphs.free(ptr)
    graphs.begin()
    assert graphs.allocate() == ptr


def test_a_lost_capture_gives_its_addresses_back(platform, graphs):
    graphs.begin()
    ptr = graphs.allocate()
    with pytest.raises(PlatformError):
        platform.malloc(1)
    with pytest.raises(PlatformError):
        platform.end_capture(graphs.stream, 0)
    graphs.begin()
    assert graphs.allocate() == ptr


def test_access_is_settled_by_the_grants_at_the_capture(platform, graphs):
    platform.set_pool_access(graphs.pool, 1, PoolAccess.READ_WRITE)
    graphs.begin()
    ptr = graphs.allocate()
    executable = graphs.executable()
    platform.set_pool_access(graphs.pool, 1, PoolAccess.NONE)
    graphs.launch(executable)
    platform.set_current_device(1)
    assert platform.pointer_attributes(ptr).accessible


def test_a_graph_that_frees_anothers_memory_needs_it_live(platform, graphs):
    graphs.begin()
    ptr = graphs.allocate()
    allocating = graphs.executable()
    graphs.launch(allocating)
    graphs.begin()
    graphs.free(ptr)
    freeing = graphs.executable()
    graphs.launch(freeing)
    assert platform.pointer_attributes(ptr).kind is MemoryKind.UNKNOWN
    with pytest.raises(PlatformError, match="cudaErrorInvalidValue"):
        platform.launch_graph(freeing, graphs.stream, 0)
    graphs.launch(allocating)
    graphs.launch(freeing)


def test_a_graph_that_owns_memory_cannot_be_part_of_another(platform, graphs):
    graphs.begin()
    graphs.allocate()
    owner = graphs.executable()
    graphs.begin()
    with pytest.raises(PlatformError, match="cudaErrorNotSupported"):
        platform.launch_graph(owner, graphs.stream, 0)


def test_nothing_is_freed_in_a_capture_by_freeing_null(platform, graphs):
    graphs.begin()
    graphs.free(0)
    assert platform.graph_node_count(platform.end_capture(graphs.stream, 0)) == 0
