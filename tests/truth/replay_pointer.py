"""pointer: what is said of an address."""

from __future__ import annotations

from allotment.platform import CaptureMode

from .machine import KINDS, SUCCESS, MiB
from .registry import replays
from .replay_size import MADE_UP


@replays(r"pointer/(?P<kind>malloc|pool|own-pool|managed|pinned[\w-]*|registered|pageable)")
def kind(gpu, kind):
    sim = gpu.sim
    ptr = gpu.allocate(kind, nbytes=MiB)
    yield "base", gpu.describe(ptr)
    yield "interior, 512 bytes in", gpu.describe(ptr + 512)
    yield "last byte", gpu.describe(ptr + MiB - 1)
    match kind:
        case "pool" | "own-pool":
            pool = sim.default_pool(0) if kind == "pool" else gpu.own_pool(0)
            found = sim.pointer_attributes(ptr).pool
            yield "MEMPOOL_HANDLE equals its pool", found == pool
            yield "MEMPOOL_HANDLE equals the default pool", found == sim.default_pool(0)
            other = gpu.allocate(kind, nbytes=MiB)
            sim.free_async(ptr, 0)
            yield "freed, not yet waited for", gpu.describe(ptr)
            gpu.sync()
            yield "freed", gpu.describe(ptr)
            sim.free_async(other, 0)
            gpu.sync()
            sim.trim_pool(pool, 0)
            yield "freed and the pool trimmed", gpu.describe(ptr)
        case "malloc" | "managed":
            sim.free(ptr)
            yield "freed", gpu.describe(ptr)
        case "pageable":
            pass
        case _:
            yield "hostGetDevicePointer", SUCCESS if sim.pointer_attributes(ptr).accessible else "no access"
            yield "device pointer is the host pointer", sim.pointer_attributes(ptr).accessible
            (sim.host_unregister if kind == "registered" else sim.host_free)(ptr)
            yield "freed", gpu.describe(ptr)


@replays("pointer/small-malloc")
def hundred_bytes(gpu):
    for kind in ("malloc", "pool", "managed", "pinned"):
        ptr = gpu.allocate(kind, nbytes=100)
        yield kind, gpu.describe(ptr)
        yield f"{kind} just past its 100 bytes", gpu.describe(ptr + 100)
        yield f"{kind} 512 bytes on", gpu.describe(ptr + 512)


@replays("pointer/null-and-made-up")
def nothing(gpu):
    yield "null", gpu.describe(0)
    yield "made up", gpu.describe(MADE_UP)
    yield "afterwards", gpu.health()


@replays("pointer/device1")
def other_device(gpu):
    gpu.start(1)
    for kind in ("malloc", "pool", "own-pool", "managed", "pinned"):
        ptr = gpu.allocate(kind, 1)
        gpu.start(0)
        yield kind, gpu.describe(ptr)


@replays("pointer/tells-access")
def tells_access(gpu):
    memory = {kind: gpu.allocate(kind, 0) for kind in KINDS}

    def seen_from(ordinal, ptr):
        gpu.start(ordinal)
        if gpu.sim.pointer_attributes(ptr).accessible:
            return ["same", "CUDA_SUCCESS"]
        return ["null", "CUDA_ERROR_INVALID_VALUE"]

    def seen():
        return {kind: [seen_from(ordinal, ptr) for ordinal in (0, 1)] for kind, ptr in memory.items()}

    pools = gpu.sim.default_pool(0), gpu.own_pool(0)
    yield "nothing granted", seen()
    gpu.sim.enable_peer_access(1, 0)
    yield "device 1 enabled peer access to device 0", seen()
    gpu.sim.disable_peer_access(1, 0)
    for pool in pools:
        gpu.grant(pool, 1)
    yield "only pool access granted to device 1", seen()
    for pool in pools:
        gpu.revoke(pool, 1)
    yield "pool access taken back", seen()


@replays("pointer/managed-after-prefetch")
def managed_after_prefetch(gpu):
    ptr = gpu.allocate("managed", 0, MiB)

    def seen():
        found = gpu.describe(ptr)
        return {"type": found["type"], "device": found["device"]}

    yield "made on device 0", seen()
    for label, place in (("device 1", 1), ("host", -1), ("device 0", 0)):
        yield f"prefetch to {label}", gpu.error(gpu.sim.prefetch, ptr, MiB, place, 0, 0)
        gpu.sync_device()
        yield f"after prefetch to {label}", seen()


@replays("pointer/graph-memory")
def graph_memory(gpu):
    sim, stream = gpu.sim, gpu.stream(blocking=False)
    sim.begin_capture(stream, 0, CaptureMode.RELAXED)
    ptr = gpu.malloc_async(MiB, stream)
    gpu.set_async(ptr, 7, MiB, stream)
    yield "during capture", gpu.describe(ptr)
    graph = sim.end_capture(stream, 0)
    yield "capture ended", gpu.describe(ptr)
    executable = sim.instantiate_graph(graph, auto_free=False)
    yield "instantiated", gpu.describe(ptr)
    sim.launch_graph(executable, stream, 0)
    gpu.sync(stream)
    yield "launched", gpu.describe(ptr)
    sim.free_async(ptr, stream)
    gpu.sync(stream)
    yield "freed outside the graph", gpu.describe(ptr)
    sim.destroy_graph_executable(executable)
    sim.destroy_graph(graph)
    yield "graph destroyed", gpu.describe(ptr)
