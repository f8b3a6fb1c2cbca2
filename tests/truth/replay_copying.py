"""copy: copies between all kinds of memory, with and without grants, direct and captured."""

from __future__ import annotations

from allotment.platform import CaptureMode

from .machine import SUCCESS, KiB
from .registry import replays

NBYTES = 64 * KiB
ENDS = {
    "malloc 0": ("malloc", 0),
    "pool 0": ("pool", 0),
    "managed": ("managed", 0),
    "pinned": ("pinned", 0),
    "pageable": ("pageable", 0),
    "malloc 1": ("malloc", 1),
    "pool 1": ("pool", 1),
}
DIRECT = {
    "memcpy, device 0 current": 0,
    "memcpy, device 1 current": 1,
    "memcpyAsync, stream of device 0": 0,
    "memcpyAsync, stream of device 1": 1,
    "memcpyPeer": 0,
    "memcpyPeerAsync, stream of device 0": 0,
    "memcpyPeerAsync, stream of device 1": 1,
    "memcpyAsync D2D kind, stream of device 0": 0,
}
CAPTURED = {
    "memcpyAsync, stream of device 0": 0,
    "memcpyAsync, stream of device 1": 1,
    "memcpyPeerAsync, stream of device 0": 0,
    "graph node": 0,
}


@replays(r"copy/(?P<how>direct|captured)/(?P<grants>[^/]+)/from (?P<source>.+)")
def between_all_kinds(gpu, how, grants, source):
    gpu.start(1, 0)
    gpu.grant_both_ways(grants.replace("+", " "))
    streams = []
    for ordinal in (0, 1):
        gpu.start(ordinal)
        streams.append(gpu.stream(blocking=False))
    kind, device = ENDS[source]
    src = gpu.allocate(kind, device, NBYTES)
    targets = {end: gpu.allocate(*ENDS[end], NBYTES) for end in ENDS}
    ways, copy = (DIRECT, direct) if how == "direct" else (CAPTURED, captured)
    value = 0
    for end, dst in targets.items():
        dst_kind, dst_device = ENDS[end]
        for way, current in ways.items():
            value += 1
            gpu.start(device)
            gpu.write(kind, src, bytes([value]) * NBYTES)
            gpu.start(dst_device)
            gpu.write(dst_kind, dst, bytes(NBYTES))
            gpu.start(current)
            found = copy(gpu, way, (dst, dst_device), (src, device), streams[current])
            gpu.forget_error()
            gpu.start(dst_device)
            found["right_data"] = gpu.read(dst_kind, dst, NBYTES) == bytes([value]) * NBYTES
            yield f"to {end}: {way}", found


def direct(gpu, way, target, source, stream):
    (dst, dst_device), (src, src_device) = target, source
    if way.startswith("memcpyPeer"):
        on = 0 if way == "memcpyPeer" else stream
        return {"call": gpu.error(gpu.sim.copy_peer, dst, dst_device, src, src_device, NBYTES, on)}
    if way.startswith("memcpy,"):
        return {"call": gpu.error(gpu.copy, dst, src, NBYTES)}
    copy = gpu.sim.copy_on_device if "D2D" in way else gpu.sim.copy
    return {"call": gpu.error(copy, dst, src, NBYTES, stream, gpu.of(stream))}


def captured(gpu, way, target, source, stream):
    (dst, dst_device), (src, src_device) = target, source
    sim, ordinal = gpu.sim, gpu.of(stream)
    if way == "graph node":
        graph = sim.create_graph()
        found = {"call": gpu.error(sim.add_copy_node, graph, dst, src, NBYTES)}
        if found["call"] != SUCCESS:
            return found
    else:
        sim.begin_capture(stream, ordinal, CaptureMode.THREAD_LOCAL)
        if "Peer" in way:
            found = {"call": gpu.error(sim.copy_peer, dst, dst_device, src, src_device, NBYTES, stream)}
        else:
            found = {"call": gpu.error(sim.copy, dst, src, NBYTES, stream, ordinal)}
        found["status"] = gpu.status(stream)
        ended = gpu.ask(sim.end_capture, stream, ordinal)
        found["end"] = ended.error
        if ended.error != SUCCESS:
            return found
        graph = ended.value
    executable = gpu.ask(sim.instantiate_graph, graph, auto_free=False)
    found["instantiate"] = executable.error
    found["launch"] = gpu.error(sim.launch_graph, executable.value, stream, ordinal)
    found["sync"] = gpu.sync(stream)
    return found


@replays("copy/graph-memory/(?P<grants>.+)")
def graph_memory(gpu, grants):
    gpu.start(1, 0)
    gpu.grant_both_ways(grants.replace("+", " "))
    for label in ("both in the graph", "source in the graph, target pool 1", "source pool 0, target in the graph"):
        yield label, copy_in_a_graph(gpu, label)


def copy_in_a_graph(gpu, label):
    sim = gpu.sim
    gpu.start(1)
    second, target = gpu.stream(blocking=False), gpu.allocate("pool", 1, NBYTES)
    source = gpu.allocate("pool", 0, NBYTES)
    first = gpu.stream(blocking=False)
    sim.begin_capture(first, 0, CaptureMode.THREAD_LOCAL)
    sim.wait_for_stream(second, first, 1, 0)
    found = {}
    if label.startswith(("both", "source in")):
        source = gpu.malloc_async(NBYTES, first)
    if label.startswith("both") or label.endswith("target in the graph"):
        with gpu.current(1):
            answer = gpu.ask(gpu.malloc_async, NBYTES, second)
        found["mallocAsync on device 1"], target = answer.error, answer.value
    sim.wait_for_stream(first, second, 0, 1)
    found["memset source"] = gpu.error(gpu.set_async, source, 5, NBYTES, first)
    found["copy"] = gpu.error(sim.copy, target, source, NBYTES, first, 0)
    ended = gpu.ask(sim.end_capture, first, 0)
    found["end"] = ended.error
    gpu.forget_error()
    executable = gpu.ask(sim.instantiate_graph, ended.value, auto_free=False)
    found["instantiate"] = executable.error
    found["launch"] = gpu.error(sim.launch_graph, executable.value, first, 0)
    found["sync"] = gpu.sync(first)
    with gpu.current(1):
        found["right_data"] = gpu.read("pool", target, NBYTES) == bytes([5]) * NBYTES
    return found


@replays("copy/memset")
def memset(gpu):
    streams = []
    for ordinal in (0, 1):
        gpu.start(ordinal)
        streams.append(gpu.stream(blocking=False))
    for end, (kind, device) in ENDS.items():
        ptr = gpu.allocate(kind, device, NBYTES)
        for current in (0, 1):
            gpu.start(current)
            found = {"memset": gpu.error(gpu.set, ptr, 3, NBYTES)}
            found["memsetAsync"] = gpu.error(gpu.set_async, ptr, 4 + current, NBYTES, streams[current])
            found["sync"] = gpu.sync_device()
            gpu.forget_error()
            gpu.start(device)
            found["right_data"] = gpu.read(kind, ptr, NBYTES) == bytes([4 + current]) * NBYTES
            yield f"{end}, device {current} current", found


@replays("copy/peer-mistakes")
def wrong_devices(gpu):
    ends = {kind: (gpu.allocate(kind, 1, NBYTES), gpu.allocate(kind, 0, NBYTES)) for kind in ("malloc", "pool")}
    gpu.start(0)
    for kind, (dst, src) in ends.items():
        for dst_device, src_device in ((1, 0), (0, 1), (0, 0), (1, 1), (99, 0)):
            error = gpu.error(gpu.sim.copy_peer, dst, dst_device, src, src_device, NBYTES, 0)
            yield f"{kind}: from device {src_device} to device {dst_device}", error
            gpu.forget_error()
    yield "afterwards", gpu.health()
