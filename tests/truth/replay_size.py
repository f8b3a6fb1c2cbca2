"""size: sizes, frees and mistakes."""

from __future__ import annotations

from itertools import pairwise

from .machine import SUCCESS, GiB, MiB
from .registry import replays

TOTAL = 150_109_880_320
AMOUNTS = {"twice the device": 2 * TOTAL, "2^40": 2**40, "2^50": 2**50, "2^63": 2**63, "2^64-1": 2**64 - 1}
MADE_UP = 0x12_3456_0000


@replays("size/malloc-zero")
def zero_bytes(gpu):
    answer = gpu.ask(gpu.sim.malloc, 0)
    yield "malloc", answer.error
    yield "null", answer.value == 0
    yield "free", gpu.error(gpu.sim.free, answer.value)
    yield "afterwards", gpu.health()


@replays("size/alignment")
def alignment(gpu):
    for kind in ("malloc", "pool", "own-pool", "managed", "pinned"):
        for nbytes in (1, 100, 511, 513, 4096, MiB, 3 * MiB):
            found = sorted(gpu.allocate(kind, nbytes=nbytes) for _ in range(4))
            yield (
                f"{kind} {nbytes}",
                {
                    "alignment": min(min(ptr & -ptr, 2 * MiB) for ptr in found),
                    "smallest_distance": min(after - before for before, after in pairwise(found)),
                },
            )


@replays("size/malloc (?P<amount>.+)")
def refused(gpu, amount):
    answer = gpu.ask(gpu.sim.malloc, AMOUNTS[amount])
    yield "malloc", answer.error
    yield "null", not answer.value
    yield "afterwards", gpu.health()


@replays("size/async-zero")
def zero_bytes_in_order(gpu):
    stream = gpu.stream()
    for label, nbytes in (("zero", 0), ("one", 1)):
        answer = gpu.ask(gpu.malloc_async, nbytes, stream)
        yield f"mallocAsync {label}", answer.error
        yield f"{label} null", answer.value == 0
        yield f"{label} last error", gpu.forget_error()
        yield f"freeAsync {label}", gpu.error(gpu.sim.free_async, answer.value, stream)
    for label, function in (("mallocManaged 0", gpu.sim.malloc_managed), ("hostAlloc 0", gpu.sim.host_alloc)):
        answer = gpu.ask(function, 0)
        yield label, answer.error
        yield f"{label} null", answer.value == 0
    yield "hostRegister 0", gpu.error(gpu.sim.host_register, gpu.pages(4096), 0)
    gpu.forget_error()
    yield "sync", gpu.sync(stream)
    yield "afterwards", gpu.health()


@replays("size/mallocAsync (?P<amount>.+)")
def refused_in_order(gpu, amount):
    stream = gpu.stream()
    answer = gpu.ask(gpu.malloc_async, AMOUNTS[amount], stream)
    yield "mallocAsync", answer.error
    yield "null", not answer.value
    yield "sync", gpu.sync(stream)
    yield "pool", gpu.pool_state(gpu.sim.default_pool(0))
    yield "afterwards", gpu.health()


@replays("size/cudaFree (?P<how>.+)")
def wrong_free(gpu, how):
    kept, stream = gpu.allocate("malloc"), gpu.stream()
    free = gpu.sim.free
    match how:
        case "twice":
            ptr = gpu.allocate("malloc")
            yield "free", gpu.error(free, ptr)
            yield "free again", gpu.error(free, ptr)
        case "interior pointer":
            ptr = gpu.allocate("malloc", nbytes=MiB)
            yield "free", gpu.error(free, ptr + 512)
            yield "free properly", gpu.error(free, ptr)
        case "pool pointer":
            ptr = gpu.allocate("pool")
            yield "free", gpu.error(free, ptr)
            yield "freeAsync after it", gpu.error(gpu.sim.free_async, ptr, stream)
        case "null" | "made-up pointer":
            yield "free", gpu.error(free, 0 if how == "null" else MADE_UP)
        case _:
            yield "free", gpu.error(free, gpu.allocate(how.removesuffix(" pointer")))
    yield "afterwards", gpu.health()
    yield "proper free still works", gpu.error(free, kept)


@replays("size/freeAsync (?P<how>.+)")
def wrong_free_in_order(gpu, how):
    stream = gpu.stream()

    def free(ptr):
        return gpu.error(gpu.sim.free_async, ptr, stream)

    match how:
        case "null":
            yield "freeAsync", free(0)
        case "twice" | "twice after sync" | "twice while another is live":
            if how.endswith("live"):
                gpu.allocate("pool")
            ptr = gpu.allocate("pool")
            yield "freeAsync", free(ptr)
            if how == "twice after sync":
                yield "sync between", gpu.sync(stream)
            yield "freeAsync again", free(ptr)
        case "interior pointer":
            ptr = gpu.allocate("pool", nbytes=MiB)
            yield "freeAsync", free(ptr + 512)
            yield "freeAsync properly", free(ptr)
        case "cudaMalloc pointer":
            ptr = gpu.allocate("malloc")
            yield "freeAsync", free(ptr)
            yield "sync between", gpu.sync(stream)
            yield "cudaFree after it", gpu.error(gpu.sim.free, ptr)
        case _:
            yield "freeAsync", free(gpu.allocate(how.removesuffix(" pointer")))
    yield "sync", gpu.sync(stream)
    yield "afterwards", gpu.health()


@replays("size/free-host-mistakes")
def host_mistakes(gpu):
    free, register, unregister = gpu.sim.host_free, gpu.sim.host_register, gpu.sim.host_unregister
    yield "freeHost null", gpu.error(free, 0)
    pinned = gpu.allocate("pinned")
    yield "freeHost", gpu.error(free, pinned)
    yield "freeHost again", gpu.error(free, pinned)
    registered = gpu.allocate("registered")
    yield "register again", gpu.error(register, registered, 4096)
    yield "freeHost registered", gpu.error(free, registered)
    yield "unregister", gpu.error(unregister, registered)
    yield "unregister again", gpu.error(unregister, registered)
    yield "freeHost pageable", gpu.error(free, gpu.pages(4096))
    yield "freeHost cudaMalloc", gpu.error(free, gpu.allocate("malloc"))
    yield "freeHost managed", gpu.error(free, gpu.allocate("managed"))
    yield "register cudaHostAlloc memory", gpu.error(register, gpu.allocate("pinned"), 4096)
    yield "register unaligned", gpu.error(register, gpu.pages(3 * 4096) + 100, 4096)
    yield "afterwards", gpu.health()


@replays("size/free-other-device-current")
def other_device_current(gpu):
    sim = gpu.sim
    gpu.start(1, 0)
    malloc, pooled, managed, pinned = (gpu.allocate(kind) for kind in ("malloc", "pool", "managed", "pinned"))
    near, second = gpu.stream(), gpu.allocate("pool")
    gpu.start(1)
    far = gpu.stream()
    yield "cudaFree", gpu.error(sim.free, malloc)
    yield "freeAsync on null stream of device 1", gpu.error(sim.free_async, pooled, 0)
    yield "freeAsync of device-0 pool memory on a device-1 stream", gpu.error(sim.free_async, second, far)
    answer = gpu.ask(gpu.malloc_async, 4096, near)
    yield "mallocAsync on a device-0 stream, device 1 current", answer.error
    yield "its device", sim.pointer_attributes(answer.value).device
    yield "its freeAsync", gpu.error(sim.free_async, answer.value, far)
    answer = gpu.ask(sim.malloc_from_pool, 4096, sim.default_pool(0), far)
    yield "mallocFromPoolAsync device-0 pool on a device-1 stream", answer.error
    yield "its device too", sim.pointer_attributes(answer.value).device
    yield "free managed", gpu.error(sim.free, managed)
    yield "free pinned", gpu.error(sim.host_free, pinned)
    yield "current device", sim.current_device()
    yield "sync", gpu.sync_device()
    yield "afterwards", gpu.health()


@replays("size/fill-the-device")
def fill_the_device(gpu):
    stream, held = gpu.stream(), []
    while (answer := gpu.ask(gpu.sim.malloc, max(gpu.sim.memory_info(0).free // 2, 64 * MiB))).error == SUCCESS:
        held.append(answer.value)
    yield "cudaMalloc", answer.error
    yield "mallocAsync 1 GiB", gpu.error(gpu.malloc_async, GiB, stream)
    yield "last error", gpu.forget_error()
    for ptr in held:
        gpu.sim.free(ptr)
    yield "mallocAsync 1 GiB after freeing", gpu.error(gpu.malloc_async, GiB, stream)
    yield "sync", gpu.sync(stream)
    yield "afterwards", gpu.health()


@replays("size/out-of-memory-and-the-pool")
def memory_held_by_the_pool(gpu):
    sim, stream, pool = gpu.sim, gpu.stream(), gpu.sim.default_pool(0)
    gpu.set_threshold(pool, 2**64 - 1)
    nbytes = sim.memory_info(0).free * 7 // 10

    def holds_it():
        return gpu.pool_state(pool)["reserved"] >= nbytes

    answer = gpu.ask(gpu.malloc_async, nbytes, stream)
    yield "mallocAsync of 70% of the free memory", answer.error
    yield "freeAsync", gpu.error(sim.free_async, answer.value, stream)
    yield "sync", gpu.sync(stream)
    yield "pool holds it", holds_it()
    answer = gpu.ask(sim.malloc, nbytes)
    yield "cudaMalloc of the same size", answer.error
    yield "pool still holds it", holds_it()
    yield "last error", gpu.forget_error()
    sim.free(answer.value)
    other = gpu.own_pool(0)
    yield "mallocFromPoolAsync of another pool, the same size", gpu.error(sim.malloc_from_pool, nbytes, other, stream)
    yield "default pool holds it after that", holds_it()
    yield "afterwards", gpu.health()
