"""graph: memory that belongs to graphs."""

from __future__ import annotations

from dataclasses import asdict

from allotment.platform import CaptureMode

from .machine import KiB, MiB
from .registry import replays
from .replay_pool import SIZES

VALUE = 55


def capture_with_memory(gpu, stream, nbytes=MiB, *, free=False):
    """Capture an allocation, a kernel that writes to it and perhaps a free; return address and graph."""
    gpu.sim.begin_capture(stream, 0, CaptureMode.THREAD_LOCAL)
    ptr = gpu.malloc_async(nbytes, stream)
    if nbytes >= 4:
        assert gpu.poke_on(stream, ptr, VALUE) == "CUDA_SUCCESS"
    else:  # a simulated kernel faults where it runs past a block, and the recorded one did not
        gpu.set_async(ptr, VALUE, nbytes, stream)
    if free:
        gpu.sim.free_async(ptr, stream)
    return ptr, gpu.sim.end_capture(stream, 0)


def instantiate(gpu, graph):
    return gpu.ask(gpu.sim.instantiate_graph, graph, auto_free=False)


def accounts(gpu):
    return asdict(gpu.sim.graph_memory(0))


def launch(gpu, executable, stream):
    return gpu.error(gpu.sim.launch_graph, executable, stream, 0)


@replays("graph/with-free")
def with_free(gpu):
    sim, stream = gpu.sim, gpu.stream()
    yield "at first", accounts(gpu)
    ptr, graph = capture_with_memory(gpu, stream, free=True)
    yield "captured", accounts(gpu)
    answer = instantiate(gpu, graph)
    yield "instantiate", answer.error
    yield "instantiated", accounts(gpu)
    for turn in (1, 2):
        yield f"launch {turn}", launch(gpu, answer.value, stream)
        yield f"sync {turn}", gpu.sync(stream)
        yield f"after launch {turn}", accounts(gpu)
    yield "default pool", gpu.pool_state(sim.default_pool(0))
    yield "free outside of what the graph freed", gpu.error(sim.free_async, ptr, stream)
    yield "last error", gpu.forget_error()
    yield "destroy executable", gpu.error(sim.destroy_graph_executable, answer.value)
    yield "destroy graph", gpu.error(sim.destroy_graph, graph)
    yield "destroyed", accounts(gpu)
    yield "trim", gpu.error(sim.trim_graph_memory, 0)
    yield "trimmed", accounts(gpu)
    yield "reset UsedMemHigh", gpu.error(sim.reset_graph_memory_high, 0)
    yield "reset ReservedMemHigh", gpu.error(sim.reset_graph_memory_high, 0)
    yield "high marks reset", accounts(gpu)
    yield "afterwards", gpu.health()


@replays("graph/without-free")
def without_free(gpu):
    sim, stream, other = gpu.sim, gpu.stream(), gpu.stream()
    ptr, graph = capture_with_memory(gpu, stream)
    answer = instantiate(gpu, graph)
    yield "instantiate", answer.error
    yield "launch", launch(gpu, answer.value, stream)
    yield "sync", gpu.sync(stream)
    yield "value is there", gpu.word_at(ptr) == VALUE
    yield "kernel reads it outside the graph", gpu.peek(0, ptr, VALUE)
    yield "launched", accounts(gpu)
    yield "launch again without a free", launch(gpu, answer.value, stream)
    yield "last error", gpu.forget_error()
    yield "memory still there", gpu.word_at(ptr) == VALUE
    yield "freeAsync outside, on another stream", gpu.error(sim.free_async, ptr, other)
    yield "sync after free", gpu.sync(other)
    yield "freed", accounts(gpu)
    yield "freeAsync again", gpu.error(sim.free_async, ptr, other)
    yield "last error again", gpu.forget_error()
    yield "launch after the free", launch(gpu, answer.value, stream)
    yield "sync after it", gpu.sync(stream)
    yield "same address, value there", gpu.word_at(ptr) == VALUE
    yield "cudaFree of it", gpu.error(sim.free, ptr)
    yield "after cudaFree", accounts(gpu)
    yield "trim", gpu.error(sim.trim_graph_memory, 0)
    yield "trimmed", accounts(gpu)
    yield "afterwards", gpu.health()


@replays("graph/auto-free-on-launch")
def auto_free_on_launch(gpu):
    sim, stream = gpu.sim, gpu.stream()
    ptr, graph = capture_with_memory(gpu, stream)
    answer = gpu.ask(sim.instantiate_graph, graph)
    yield "instantiate", answer.error
    for turn in (1, 2, 3):
        yield f"launch {turn}", launch(gpu, answer.value, stream)
        yield f"sync {turn}", gpu.sync(stream)
        yield f"after launch {turn}", accounts(gpu)
    yield "value is there", gpu.word_at(ptr) == VALUE
    yield "freeAsync", gpu.error(sim.free_async, ptr, stream)
    yield "sync", gpu.sync(stream)
    yield "freed", accounts(gpu)
    yield "afterwards", gpu.health()


@replays("graph/twice-instantiated")
def twice_instantiated(gpu):
    sim = gpu.sim
    _, graph = capture_with_memory(gpu, gpu.stream())
    first = instantiate(gpu, graph)
    yield "instantiate", first.error
    yield "instantiate again", instantiate(gpu, graph).error
    yield "clone", gpu.error(sim.clone_graph, graph)
    yield "destroy first executable", gpu.error(sim.destroy_graph_executable, first.value)
    yield "instantiate after that", instantiate(gpu, graph).error
    yield "afterwards", gpu.health()


@replays("graph/read-before-launch")
def read_before_launch(gpu):
    stream = gpu.stream()
    ptr, graph = capture_with_memory(gpu, stream)
    instantiate(gpu, graph)
    yield "memcpy to host", gpu.error(gpu.sim.copy_to_host, gpu.pages(4096), ptr, 4, 0, 0)
    yield "last error", gpu.forget_error()
    yield "freeAsync before any launch", gpu.error(gpu.sim.free_async, ptr, stream)
    yield "last error again", gpu.forget_error()
    yield "kernel", gpu.peek(0, ptr, 0)
    yield "afterwards", gpu.health()


@replays("graph/destroyed-while-allocated")
def destroyed_while_allocated(gpu):
    sim, stream = gpu.sim, gpu.stream()
    ptr, graph = capture_with_memory(gpu, stream)
    executable = instantiate(gpu, graph).value
    launch(gpu, executable, stream)
    gpu.sync(stream)
    yield "destroy executable", gpu.error(sim.destroy_graph_executable, executable)
    yield "after executable", accounts(gpu)
    yield "destroy graph", gpu.error(sim.destroy_graph, graph)
    yield "after graph", accounts(gpu)
    yield "trim", gpu.error(sim.trim_graph_memory, 0)
    yield "after trim", accounts(gpu)
    yield "kernel reads it", gpu.peek(0, ptr, VALUE)
    yield "freeAsync", gpu.error(sim.free_async, ptr, stream)
    yield "sync", gpu.sync(stream)
    yield "freed", accounts(gpu)
    yield "trim again", gpu.error(sim.trim_graph_memory, 0)
    yield "trimmed", accounts(gpu)
    yield "afterwards", gpu.health()


@replays("graph/freed-by-another-graph")
def freed_by_another_graph(gpu):
    sim, stream = gpu.sim, gpu.stream()
    ptr, graph = capture_with_memory(gpu, stream)
    executable = instantiate(gpu, graph).value
    launch(gpu, executable, stream)
    gpu.sync(stream)
    sim.begin_capture(stream, 0, CaptureMode.THREAD_LOCAL)
    yield "freeAsync in the second capture", gpu.error(sim.free_async, ptr, stream)
    yield "status", gpu.status(stream)
    ended = gpu.ask(sim.end_capture, stream, 0)
    yield "end", ended.error
    freeing = instantiate(gpu, ended.value)
    yield "instantiate", freeing.error
    yield "launch", launch(gpu, freeing.value, stream)
    yield "sync", gpu.sync(stream)
    yield "freed", accounts(gpu)
    yield "launch the first again", launch(gpu, executable, stream)
    yield "sync again", gpu.sync(stream)
    yield "afterwards", gpu.health()


@replays("graph/accounting")
def accounting(gpu):
    sim, stream = gpu.sim, gpu.stream()
    for name, nbytes in SIZES.items():
        if nbytes not in (1, KiB, MiB, 33 * MiB, 100 * MiB):
            continue
        ptr, graph = capture_with_memory(gpu, stream, nbytes)
        executable = instantiate(gpu, graph).value
        yield f"{name} instantiated", accounts(gpu)
        launch(gpu, executable, stream)
        gpu.sync(stream)
        yield f"{name} launched", accounts(gpu)
        sim.free_async(ptr, stream)
        gpu.sync(stream)
        yield f"{name} freed", accounts(gpu)
        sim.destroy_graph_executable(executable)
        sim.destroy_graph(graph)
        sim.trim_graph_memory(0)
        yield f"{name} trimmed", accounts(gpu)


@replays("graph/same-address")
def same_address(gpu):
    sim, stream = gpu.sim, gpu.stream()
    first, _ = capture_with_memory(gpu, stream, free=True)
    second, _ = capture_with_memory(gpu, stream, free=True)
    yield "two graphs that free, same address", first == second
    third, _ = capture_with_memory(gpu, stream)
    yield "a graph that does not free, same address", third == first
    sim.begin_capture(stream, 0, CaptureMode.THREAD_LOCAL)
    addresses = []
    for _ in range(2):
        addresses.append(gpu.malloc_async(MiB, stream))
        sim.free_async(addresses[-1], stream)
    sim.end_capture(stream, 0)
    yield "allocated after a free in one graph, same address", addresses[0] == addresses[1]


@replays("graph/access (?P<grants>.+)")
def access(gpu, grants):
    sim = gpu.sim
    gpu.start(1, 0)
    if "peer" in grants:
        sim.enable_peer_access(1, 0)
    if "pool" in grants:
        gpu.grant(sim.default_pool(0), 1)
    stream = gpu.stream()
    ptr, graph = capture_with_memory(gpu, stream)
    launch(gpu, instantiate(gpu, graph).value, stream)
    gpu.sync(stream)
    if "late" in grants:
        gpu.grant(sim.default_pool(0), 1)
    yield "kernel on device 1 reads graph memory of device 0", gpu.peek(1, ptr, VALUE)
    yield "afterwards", gpu.health()
