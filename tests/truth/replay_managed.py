"""managed: advice, prefetch, coherence."""

from __future__ import annotations

import ctypes

from allotment.platform import HOST_LOCATION, MemoryAdvice

from .machine import SUCCESS, MiB
from .registry import replays

PLACES = {"device 0": 0, "host": HOST_LOCATION, "device 99": 99, "device 1": 1}
NOWHERE = -2


def attributes(gpu, ptr):
    state = gpu.sim.managed_state(ptr)
    accessed_by = sorted(state.accessed_by)
    return {
        "ReadMostly": int(state.read_mostly),
        "PreferredLocation": state.preferred_location,
        "AccessedBy": accessed_by + [NOWHERE] * (2 - len(accessed_by)),
        "LastPrefetchLocation": state.last_prefetch,
    }


def advice_name(advice):
    return advice.name.title().replace("_", "")


@replays("managed/advice")
def advice(gpu):
    ptr = gpu.allocate("managed", nbytes=MiB)
    for advice in MemoryAdvice:
        for label, place in PLACES.items():
            yield f"{advice_name(advice)} {label}", gpu.error(gpu.sim.advise, ptr, MiB, advice, place)
            gpu.forget_error()
    yield "attributes", attributes(gpu, ptr)
    for kind in ("malloc", "pool", "pinned", "pageable"):
        other = gpu.allocate(kind, nbytes=MiB)
        error = gpu.error(gpu.sim.advise, other, MiB, MemoryAdvice.SET_PREFERRED_LOCATION, 0)
        yield f"SetPreferredLocation of {kind} memory", error
    yield "afterwards", gpu.health()


@replays("managed/prefetch")
def prefetch(gpu):
    stream, ptr = gpu.stream(), gpu.allocate("managed", nbytes=MiB)

    def prefetched(ptr, nbytes=MiB, place=0, on=stream):
        return gpu.error(gpu.sim.prefetch, ptr, nbytes, place, on, 0)

    for label, place in PLACES.items():
        yield f"to {label}", prefetched(ptr, place=place)
        yield f"sync {label}", gpu.sync(stream)
    for kind in ("malloc", "pool", "pinned", "pageable"):
        yield f"of {kind} memory", prefetched(gpu.allocate(kind, nbytes=MiB))
    yield "beyond its end", prefetched(ptr, 64 * MiB)
    yield "on the null stream", prefetched(ptr, on=0)
    yield "afterwards", gpu.health()


@replays("managed/coherence")
def coherence(gpu):
    ptr = gpu.allocate("managed", nbytes=MiB)

    def write(value):
        ctypes.memmove(ptr, value.to_bytes(4, "little"), 4)

    write(1)
    yield "kernel reads what the host wrote", gpu.peek(0, ptr, 1)
    yield "host reads what the kernel wrote", gpu.poke(0, ptr, 2)
    gpu.sim.prefetch(ptr, MiB, 0, 0, 0)
    gpu.sync_device()
    yield "host reads after prefetch to the device", gpu.host_reads(ptr) == "2"
    yield "host reads what the kernel wrote after prefetch", gpu.poke(0, ptr, 3)
    gpu.sim.advise(ptr, MiB, MemoryAdvice.SET_READ_MOSTLY, 0)
    yield "read-mostly: kernel writes", gpu.poke(0, ptr, 4)
    write(5)
    yield "read-mostly: kernel reads what the host wrote", gpu.peek(0, ptr, 5)


@replays("managed/host-access-while-busy")
def host_access_while_busy(gpu):
    stream, ptr = gpu.stream(), gpu.allocate("managed", nbytes=MiB)
    ctypes.memmove(ptr, (1).to_bytes(4, "little"), 4)
    gpu.sim.prefetch(ptr, MiB, 0, stream, 0)
    gpu.sync(stream)
    gpu.keep_busy(stream)
    yield "host sees its value", gpu.host_reads(ptr) == "1"
    yield "kernel was still running", gpu.query(stream)
    yield "sync", gpu.sync(stream)


@replays("managed/other-device")
def other_device(gpu):
    ptr = gpu.allocate("managed", 0, MiB)
    ctypes.memmove(ptr, (1).to_bytes(4, "little"), 4)
    yield "device 1 reads", gpu.peek(1, ptr, 1)
    yield "device 1 writes, host reads", gpu.poke(1, ptr, 2)
    yield "device 0 reads", gpu.peek(0, ptr, 2)
    gpu.sim.prefetch(ptr, MiB, 0, 0, 0)
    gpu.sync_device()
    yield "resident on device 0, device 1 reads", gpu.peek(1, ptr, 2)
    yield "prefer device 0", gpu.error(gpu.sim.advise, ptr, MiB, MemoryAdvice.SET_PREFERRED_LOCATION, 0)
    yield "preferred on device 0, device 1 reads", gpu.peek(1, ptr, 2)
    yield "accessed by device 1", gpu.error(gpu.sim.advise, ptr, MiB, MemoryAdvice.SET_ACCESSED_BY, 1)
    yield "accessed by device 1, device 1 reads", gpu.peek(1, ptr, 2)
    gpu.start(0)
    yield "freed with device 0 current", gpu.error(gpu.sim.free, ptr)


@replays("managed/attributes")
def one_advice_at_a_time(gpu):
    sim = gpu.sim
    steps = {
        "nothing": lambda ptr: SUCCESS,
        "read-mostly": lambda ptr: sim.advise(ptr, MiB, MemoryAdvice.SET_READ_MOSTLY, 0),
        "preferred device 0": lambda ptr: sim.advise(ptr, MiB, MemoryAdvice.SET_PREFERRED_LOCATION, 0),
        "preferred host": lambda ptr: sim.advise(ptr, MiB, MemoryAdvice.SET_PREFERRED_LOCATION, HOST_LOCATION),
        "accessed by device 0": lambda ptr: sim.advise(ptr, MiB, MemoryAdvice.SET_ACCESSED_BY, 0),
        "accessed by host": lambda ptr: sim.advise(ptr, MiB, MemoryAdvice.SET_ACCESSED_BY, HOST_LOCATION),
        "prefetched to device 0": lambda ptr: sim.prefetch(ptr, MiB, 0, 0, 0),
        "prefetched to host": lambda ptr: sim.prefetch(ptr, MiB, HOST_LOCATION, 0, 0),
    }
    for label, step in steps.items():
        ptr = gpu.allocate("managed", nbytes=MiB)
        step(ptr)
        yield label, attributes(gpu, ptr)
