"""pool: accounting, thresholds, reuse, kinds of pools."""

from __future__ import annotations

import ctypes

from allotment.memory_kind import MemoryKind
from allotment.platform import HOST_LOCATION, PoolAttribute

from .machine import SUCCESS, GiB, KiB, MiB
from .registry import replays

MAXIMUM = 2**64 - 1
SIZES = {
    "1 B": 1, "512 B": 512, "513 B": 513, "1 KiB": KiB, "64 KiB": 64 * KiB, "1 MiB": MiB, "2 MiB": 2 * MiB,
    "3 MiB": 3 * MiB, "32 MiB": 32 * MiB, "33 MiB": 33 * MiB, "40 MiB": 40 * MiB, "100 MiB": 100 * MiB, "1 GiB": GiB,
}  # fmt: skip


@replays(r"pool/accounting (?P<which>\w+) (?P<amount>.+)")
def accounting(gpu, which, amount):
    sim, stream, nbytes = gpu.sim, gpu.stream(), SIZES[amount]
    pool = sim.default_pool(0) if which == "default" else gpu.own_pool(0)

    def allocate():
        return sim.malloc_from_pool(nbytes, pool, stream)

    yield "new", gpu.pool_state(pool)
    first = allocate()
    yield "one allocated, no sync", gpu.pool_state(pool)
    gpu.sync(stream)
    yield "after sync", gpu.pool_state(pool)
    second = allocate()
    yield "two allocated", gpu.pool_state(pool)
    for label, ptr in (("first", first), ("both", second)):
        sim.free_async(ptr, stream)
        yield f"{label} freed, no sync", gpu.pool_state(pool)
        gpu.sync(stream)
        yield f"{label} freed, after sync", gpu.pool_state(pool)
    third = allocate()
    yield "allocated again", gpu.pool_state(pool)
    yield "address of the first again", third == first
    sim.free_async(third, stream)
    gpu.sync(stream)
    sim.trim_pool(pool, 0)
    yield "freed, synced, trimmed to 0", gpu.pool_state(pool)


@replays("pool/threshold (?P<amount>.+)")
def threshold(gpu, amount):
    sim, stream, pool = gpu.sim, gpu.stream(), gpu.sim.default_pool(0)
    nbytes = {"0": 0, "64 MiB": 64 * MiB, "maximum": MAXIMUM}[amount]
    yield "threshold at first", sim.pool_attribute(pool, PoolAttribute.RELEASE_THRESHOLD)
    yield "set", gpu.error(gpu.set_threshold, pool, nbytes)
    yield "threshold now", sim.pool_attribute(pool, PoolAttribute.RELEASE_THRESHOLD)
    held = [gpu.malloc_async(mebibytes * MiB, stream) for mebibytes in (1, 40, 100, 1)]
    gpu.sync(stream)
    yield "1, 40, 100, 1 MiB live", gpu.pool_state(pool)
    for number in (2, 1, 0, 3):
        sim.free_async(held[number], stream)
        yield f"freed number {number}, no sync", gpu.pool_state(pool)
        gpu.sync(stream)
        yield f"freed number {number}, stream sync", gpu.pool_state(pool)
    gpu.sync_device()
    yield "device sync", gpu.pool_state(pool)
    for keep in (48, 1, 0):
        yield f"trimTo {keep} MiB", gpu.error(sim.trim_pool, pool, keep * MiB)
        yield f"after trimTo {keep} MiB", gpu.pool_state(pool)
    for label, mark in (("Reserved", PoolAttribute.RESERVED_HIGH), ("Used", PoolAttribute.USED_HIGH)):
        for value in (1, 0):
            yield f"set {label}MemHigh to {value}", gpu.error(sim.set_pool_attribute, pool, mark, value)
    yield "after resetting the high marks", gpu.pool_state(pool)
    yield "set UsedMemCurrent to 0", gpu.error(sim.set_pool_attribute, pool, PoolAttribute.USED_CURRENT, 0)


@replays("pool/high-mark-reset-while-used")
def marks_reset_while_used(gpu):
    sim, stream, pool = gpu.sim, gpu.stream(), gpu.sim.default_pool(0)
    kept, freed = (gpu.malloc_async(40 * MiB, stream) for _ in range(2))
    sim.free_async(freed, stream)
    gpu.sync(stream)
    yield "before", gpu.pool_state(pool)
    for mark in (PoolAttribute.RESERVED_HIGH, PoolAttribute.USED_HIGH):
        sim.set_pool_attribute(pool, mark, 0)
    yield "after reset", gpu.pool_state(pool)
    sim.free_async(kept, stream)
    gpu.sync(stream)
    yield "all freed", gpu.pool_state(pool)


@replays("pool/which-sync-releases")
def which_call_releases(gpu):
    sim, pool = gpu.sim, gpu.sim.default_pool(0)
    calls = {
        "streamSynchronize": lambda scene: gpu.sync(scene["stream"]),
        "deviceSynchronize": lambda scene: gpu.sync_device(),
        "eventSynchronize": lambda scene: sim.synchronize_event(scene["event"]),
        "streamQuery": lambda scene: gpu.query(scene["stream"]),
        "eventQuery": lambda scene: sim.event_is_done(scene["event"]),
        "memcpy to the host": lambda scene: gpu.read("malloc", scene["spare"]),
        "cudaFree of something": lambda scene: sim.free(scene["spare"]),
        "streamSynchronize of another stream": lambda scene: gpu.sync(scene["other"]),
        "cudaMalloc": lambda scene: sim.malloc(4096),
        "mallocAsync of 1 B": lambda scene: gpu.malloc_async(1, scene["other"]),
        "memGetInfo": lambda scene: sim.memory_info(0),
        "cuCtxSynchronize": lambda scene: gpu.sync_device(),
    }
    for label, call in calls.items():
        scene = {"stream": gpu.stream(blocking=False), "other": gpu.stream(blocking=False)}
        scene |= {"spare": sim.malloc(4096), "event": sim.create_event(0)}
        sim.free_async(gpu.malloc_async(100 * MiB, scene["stream"]), scene["stream"])
        sim.record_event(scene["event"], scene["stream"], 0)
        before = gpu.pool_state(pool)
        answer = call(scene)
        yield label, {"before": before, "after": gpu.pool_state(pool)}
        if label == "mallocAsync of 1 B":
            sim.free_async(answer, scene["other"])
        gpu.sync_device()
        sim.trim_pool(pool, 0)


@replays(r"pool/reuse (?P<mebibytes>\d+) MiB/(?P<how>.+)")
def reuse(gpu, mebibytes, how):
    sim, pool, nbytes = gpu.sim, gpu.sim.default_pool(0), int(mebibytes) * MiB
    gpu.set_threshold(pool, MAXIMUM)
    off = how.startswith("all")
    for attribute, is_off in (
        (PoolAttribute.REUSE_ALLOW_OPPORTUNISTIC, off or "opportunistic off" in how),
        (PoolAttribute.REUSE_ALLOW_INTERNAL_DEPENDENCIES, off or "internal dependencies off" in how),
        (PoolAttribute.REUSE_FOLLOW_EVENT_DEPENDENCIES, off),
    ):
        sim.set_pool_attribute(pool, attribute, int(not is_off))
    mine, other = gpu.stream(blocking=False), gpu.stream(blocking=False)
    ptr = gpu.malloc_async(nbytes, mine)
    gpu.sync_device()
    if "busy" in how:
        gpu.keep_busy(mine)
    sim.free_async(ptr, mine)
    if "event" in how:
        event = sim.create_event(0)
        sim.record_event(event, mine, 0)
        sim.wait_for_event(event, other, 0)
    if "after stream sync" in how or "after sync" in how:
        gpu.sync(mine)
    stream = mine if "same stream" in how else other
    again = gpu.malloc_async(nbytes, stream)
    yield "same_address", again == ptr
    yield "reserved", gpu.pool_state(pool)["reserved"]
    yield "freeing_stream", gpu.query(mine)
    yield "allocating_stream", gpu.query(other)
    sim.free_async(again, stream)
    yield "sync", gpu.sync_device()


@replays("pool/current")
def current(gpu):
    sim, stream, pool, default = gpu.sim, gpu.stream(), gpu.own_pool(0), gpu.sim.default_pool(0)

    def pool_of_new_memory(on):
        return sim.pointer_attributes(gpu.malloc_async(MiB, on)).pool

    yield "make it current", gpu.error(sim.set_current_pool, 0, pool)
    yield "mallocAsync comes from it", pool_of_new_memory(stream) == pool
    yield "mallocAsync on the null stream comes from it", pool_of_new_memory(0) == pool
    yield "default pool stays empty", gpu.pool_state(default)["used"] == 0
    yield "back to the default", gpu.error(sim.set_current_pool, 0, default)
    yield "mallocAsync comes from the default", pool_of_new_memory(stream) == default
    yield "pool of device 0 as current pool of device 1", gpu.error(sim.set_current_pool, 1, pool)


@replays("pool/attributes-of-a-new-pool")
def attributes_of_a_new_pool(gpu):
    names = {
        "ReuseFollowEventDependencies": PoolAttribute.REUSE_FOLLOW_EVENT_DEPENDENCIES,
        "ReuseAllowOpportunistic": PoolAttribute.REUSE_ALLOW_OPPORTUNISTIC,
        "ReuseAllowInternalDependencies": PoolAttribute.REUSE_ALLOW_INTERNAL_DEPENDENCIES,
        "AttrReleaseThreshold": PoolAttribute.RELEASE_THRESHOLD,
        "AttrReservedMemCurrent": PoolAttribute.RESERVED_CURRENT,
        "AttrReservedMemHigh": PoolAttribute.RESERVED_HIGH,
        "AttrUsedMemCurrent": PoolAttribute.USED_CURRENT,
        "AttrUsedMemHigh": PoolAttribute.USED_HIGH,
    }
    default = gpu.sim.default_pool(0)
    for label, pool in (("default", default), ("own", gpu.own_pool(0))):
        yield label, {name: gpu.sim.pool_attribute(pool, attribute) for name, attribute in names.items()}
    yield "current pool is the default pool", gpu.sim.current_pool(0) == default


@replays("pool/max-size")
def max_size(gpu):
    sim, stream = gpu.sim, gpu.stream()
    answer = gpu.ask(sim.create_pool_of, MemoryKind.CUDA_MEMPOOL, 64 * MiB)
    yield "create", answer.error
    pool = answer.value
    first = gpu.ask(sim.malloc_from_pool, 40 * MiB, pool, stream)
    yield "40 MiB", first.error
    yield "state", gpu.pool_state(pool)
    yield "another 40 MiB", gpu.error(sim.malloc_from_pool, 40 * MiB, pool, stream)
    yield "last error", gpu.forget_error()
    yield "free", gpu.error(sim.free_async, first.value, stream)
    yield "40 MiB after the free", gpu.error(sim.malloc_from_pool, 40 * MiB, pool, stream)
    yield "afterwards", gpu.health()


@replays("pool/destroy (?P<how>.+)")
def destroy(gpu, how):
    sim, stream, pool = gpu.sim, gpu.stream(), gpu.own_pool(0)
    match how:
        case "with memory live, then use" | "with memory live, then free":
            ptr = sim.malloc_from_pool(MiB, pool, stream)
            gpu.sync(stream)
            yield "destroy", gpu.error(sim.destroy_pool, pool)
            yield "memset of the memory", gpu.error(gpu.set, ptr, 0, MiB)
            if how.endswith("free"):
                yield "freeAsync", gpu.error(sim.free_async, ptr, stream)
            yield "sync", gpu.sync(stream)
        case "the default pool":
            yield "destroy", gpu.error(sim.destroy_pool, sim.default_pool(0))
        case "while current":
            yield "make it current", gpu.error(sim.set_current_pool, 0, pool)
            yield "destroy", gpu.error(sim.destroy_pool, pool)
            yield "current is the default again", sim.current_pool(0) == sim.default_pool(0)
            yield "mallocAsync", gpu.error(gpu.malloc_async, MiB, stream)
            yield "sync", gpu.sync(stream)
        case "twice":
            yield "destroy", gpu.error(sim.destroy_pool, pool)
            yield "destroy again", gpu.error(sim.destroy_pool, pool)
    yield "afterwards", gpu.health()


@replays("pool/memory-at-exit-of-device-reset")
def device_reset(gpu):
    sim, pool = gpu.sim, gpu.sim.default_pool(0)
    pooled, malloc = gpu.allocate("pool", nbytes=MiB), gpu.allocate("malloc")
    yield "before", gpu.pool_state(pool)
    yield "reset", gpu.error(sim.reset_device, 0)
    yield "free of old memory", gpu.error(sim.free, malloc)
    yield "freeAsync of old pool memory", gpu.error(sim.free_async, pooled, 0)
    yield "default pool handle is the same", sim.default_pool(0) == pool
    yield "default pool", gpu.pool_state(sim.default_pool(0))
    yield "afterwards", gpu.health()


@replays(r"pool/kind (?P<place>device|host|numa node 0) (?P<of>\w+)/device (?P<reader>\d), (?P<grants>.+)")
def kind(gpu, place, of, reader, grants):
    sim, stream, reader = gpu.sim, gpu.stream(), int(reader)
    gpu.start(reader, 0)
    if of == "Managed":
        kind = MemoryKind.CUDA_MANAGED
    else:
        kind = MemoryKind.CUDA_MEMPOOL if place == "device" else MemoryKind.PINNED
    answer = gpu.ask(sim.create_pool_of, kind)
    yield "create", answer.error
    pool = answer.value
    yield "access of device 0", gpu.access(pool, 0)
    yield "access of the host", gpu.access(pool, HOST_LOCATION)
    yield "state", gpu.pool_state(pool)
    if grants == "granted":
        yield "grant the reader", gpu.error(gpu.grant, pool, reader)
        yield "access of the reader", gpu.access(pool, reader)
    answer = gpu.ask(sim.malloc_from_pool, MiB, pool, stream)
    yield "mallocFromPoolAsync 1 MiB", answer.error
    yield "sync", gpu.sync(stream)
    yield "with 1 MiB", gpu.pool_state(pool)
    ptr, on_host = answer.value, kind is not MemoryKind.CUDA_MEMPOOL
    with gpu.current(reader):
        found = gpu.describe(ptr)
    if kind is MemoryKind.PINNED:  # the driver names another address there
        del found["nbytes"], found["offset"]
    yield "attributes, reader current", found
    yield "host can read", gpu.host_reads(ptr).isdigit()
    if on_host:
        ctypes.memmove(ptr, (77).to_bytes(4, "little"), 4)
    else:
        gpu.write("pool", ptr, (77).to_bytes(4, "little"))
    read = gpu.peek(reader, ptr, 77)
    yield "kernel reads it", read
    if read["sync"] == SUCCESS and on_host:
        yield "kernel writes, host reads", gpu.poke(reader, ptr, 78)
    gpu.start(0)
    yield "freeAsync", gpu.error(sim.free_async, ptr, stream)
    yield "sync after free", gpu.sync(stream)
    yield "after free", gpu.pool_state(pool)
    yield "afterwards", gpu.health()
