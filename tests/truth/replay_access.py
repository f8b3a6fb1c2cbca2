"""access: whether kernels and the host really read and write memory, and what comes of a fault."""

from __future__ import annotations

import subprocess
import sys
from signal import SIGSEGV

from allotment.platform import CaptureMode, PoolAttribute

from .machine import KINDS, SUCCESS, GiB, MiB, driver_name
from .registry import replays
from .replay_size import MADE_UP


def word(value):
    return value.to_bytes(4, "little")


@replays(r"access/(?P<kind>[\w-]+)/(?P<reader>own|other) device(/(?P<grants>[\w+-]+)( (?P<when>before|after))?)?")
def read_and_write(gpu, kind, reader, grants, when):
    reader, grants = int(reader == "other"), (grants or "none").split("+")
    gpu.start(reader, 0)

    def grant():
        if "peer" in grants:
            gpu.sim.enable_peer_access(reader, 0)
        if "peer-reversed" in grants:
            gpu.sim.enable_peer_access(0, reader)
        if "pool" in grants:
            gpu.grant(gpu.sim.default_pool(0), reader)
            gpu.grant(gpu.own_pool(0), reader)

    if when == "before":
        grant()
    ptr = gpu.allocate(kind, 0, MiB)
    gpu.write(kind, ptr, word(41))
    if when == "after":
        grant()
    read = gpu.peek(reader, ptr, 41)
    yield "read", read
    if read["sync"] == SUCCESS:
        yield "write", gpu.poke(reader, ptr, 42, kind)
    gpu.start(reader)
    yield "reader afterwards", gpu.health()
    if reader:
        gpu.start(0)
        yield "owner afterwards", gpu.health()


@replays("access/pool read-only")
def read_only(gpu):
    gpu.start(1, 0)
    pool = gpu.sim.default_pool(0)
    yield "grant", gpu.error(gpu.sim.set_pool_read_only, pool, 1)
    yield "access now", gpu.access(pool, 1)
    gpu.forget_error()
    ptr = gpu.allocate("pool", 0, MiB)
    gpu.write("pool", ptr, word(41))
    yield "read", gpu.peek(1, ptr, 41)
    yield "afterwards", gpu.health()


@replays("access/host")
def host(gpu):
    for kind in KINDS:
        ptr = gpu.allocate(kind, nbytes=MiB)
        gpu.write(kind, ptr, word(43))
        yield kind, gpu.host_reads(ptr)


@replays("access/gone/(?P<how>.+)")
def gone(gpu, how):
    sim, stream, pool = gpu.sim, gpu.stream(), gpu.sim.default_pool(0)
    match how:
        case "null":
            ptr = 0
        case "cudaMalloc 64 MiB":
            sim.free(ptr := gpu.allocate("malloc", nbytes=64 * MiB))
        case "managed":
            sim.free(ptr := gpu.allocate("managed", nbytes=4 * MiB))
        case "unregistered":
            sim.host_unregister(ptr := gpu.allocate("registered"))
        case "out of bounds of cudaMalloc 4 KiB, 1 GiB on":
            ptr = gpu.allocate("malloc") + GiB
        case _:
            gpu.set_threshold(pool, 0 if "threshold 0" in how else 2**64 - 1)
            ptr = gpu.malloc_async(64 * MiB, stream)
            gpu.set_async(ptr, 1, 64 * MiB, stream)
            sim.free_async(ptr, stream)
            gpu.sync(stream)
            if "trimmed" in how:
                sim.trim_pool(pool, 0)
            yield "reserved", gpu.pool_state(pool)["reserved"]
    yield "kernel reads it", gpu.peek(0, ptr, 0)
    yield "afterwards", gpu.health()


@replays("access/gone-copy/(?P<how>[^/]+)/(?P<act>.+)")
def gone_copy(gpu, how, act):
    sim, pool, host = gpu.sim, gpu.sim.default_pool(0), gpu.pages(4096)
    match how:
        case "malloc":
            sim.free(ptr := gpu.allocate("malloc", nbytes=64 * MiB))
        case "pool trimmed" | "pool kept":
            gpu.set_threshold(pool, 2**64 - 1 if how == "pool kept" else 0)
            sim.free_async(ptr := gpu.allocate("pool", nbytes=64 * MiB), 0)
            gpu.sync_device()
            if how == "pool trimmed":
                sim.trim_pool(pool, 0)
        case _:
            ptr = MADE_UP
    match act:
        case "memset":
            error = gpu.error(gpu.set, ptr, 0, 4)
        case "memcpy out of it, kind device to host":
            error = gpu.error(sim.copy_to_host, host, ptr, 4, 0, 0)
        case "memcpy into it, kind host to device":
            error = gpu.error(sim.copy_from_host, ptr, host, 4, 0, 0)
        case _ if ptr == MADE_UP:
            yield "process", death_by_copy(ptr)
            return
        case _:
            error = gpu.error(gpu.copy, host, ptr, 4)
    if error == "SIGSEGV":
        yield "process", "killed by SIGSEGV"
        return
    yield "call", error
    yield "sync", gpu.sync_device()
    yield "afterwards", gpu.health()


def death_by_copy(ptr):
    """Copy from an address that nobody owns, which no simulation can survive either, in a process of its own."""
    script = (
        "from allotment.platform.simulated import SimulatedPlatform; import ctypes;"
        f"SimulatedPlatform.from_profile('2xh200').copy(ctypes.addressof(ctypes.c_int()), {ptr}, 4, 0, 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True)
    return "killed by SIGSEGV" if done.returncode == -SIGSEGV else f"exit {done.returncode}"


@replays(r"access/after-a-fault/on device (?P<ordinal>\d)")
def after_a_fault(gpu, ordinal):
    sim, stream = gpu.sim, gpu.stream()
    gpu.start(1, 0)
    owned = {kind: gpu.allocate(kind, 0, MiB) for kind in ("malloc", "pool", "managed", "pinned")}
    pool = sim.default_pool(0)
    yield "fault", gpu.peek(int(ordinal), 0, 0)
    calls = {
        "getLastError": sim.get_last_error,
        "setDevice": lambda: gpu.error(sim.set_current_device, 0),
        "memGetInfo": lambda: gpu.error(sim.memory_info, 0),
        "pointerGetAttributes": lambda: gpu.error(sim.pointer_attributes, owned["malloc"]),
        "deviceGetAttribute": lambda: gpu.error(sim.device_properties, 0),
        "deviceGetDefaultMemPool": lambda: gpu.error(sim.default_pool, 0),
        "memPoolGetAttribute": lambda: gpu.error(sim.pool_attribute, pool, PoolAttribute.USED_CURRENT),
        "memPoolTrimTo": lambda: gpu.error(sim.trim_pool, pool, 0),
        "malloc": lambda: gpu.error(sim.malloc, MiB),
        "mallocAsync": lambda: gpu.error(sim.malloc_from_pool, MiB, pool, stream),
        "mallocManaged": lambda: gpu.error(sim.malloc_managed, MiB),
        "hostAlloc": lambda: gpu.error(sim.host_alloc, MiB),
        "free": lambda: gpu.error(sim.free, owned["malloc"]),
        "free of null": lambda: gpu.error(sim.free, 0),
        "freeAsync": lambda: gpu.error(sim.free_async, owned["pool"], stream),
        "freeHost": lambda: gpu.error(sim.host_free, owned["pinned"]),
        "streamSynchronize": lambda: gpu.sync(stream),
        "streamCreate": lambda: gpu.error(sim.create_stream, 0, non_blocking=False, priority=0),
        "streamQuery": lambda: gpu.query(stream),
        "beginCapture": lambda: gpu.error(sim.begin_capture, stream, 0, CaptureMode.RELAXED),
        "deviceReset": lambda: gpu.error(sim.reset_device, 0),
        "malloc after the reset": lambda: gpu.error(sim.malloc, MiB),
    }
    for label, call in calls.items():
        yield f"device 0: {label}", call()


@replays("access/stream-of-another-device")
def stream_of_another_device(gpu):
    sim = gpu.sim
    near, far = gpu.allocate("malloc", 0), gpu.allocate("malloc", 1)
    stream = gpu.stream()
    gpu.start(0)
    yield "kernel", driver_name(gpu.error(sim.launch, lambda: None, stream, 0))
    event = sim.create_event(0)
    yield "memset of device-0 memory", gpu.error(gpu.set_async, near, 1, 64, stream)
    yield "memset of device-1 memory", gpu.error(gpu.set_async, far, 1, 64, stream)
    yield "event of device 0 recorded there", gpu.error(sim.record_event, event, stream, 1)
    yield "wait there for an event of device 0", gpu.error(sim.wait_for_event, event, stream, 1)
    yield "streamSynchronize", gpu.sync(stream)
    gpu.forget_error()
    yield "afterwards", gpu.health()


@replays("access/peer-revoked-while-live")
def peer_access_revoked(gpu):
    ptr = gpu.allocate("malloc", 0, MiB)
    gpu.write("malloc", ptr, word(41))
    gpu.sim.enable_peer_access(1, 0)
    yield "enabled", gpu.peek(1, ptr, 41)
    yield "disable", gpu.error(gpu.sim.disable_peer_access, 1, 0)
    yield "disabled", gpu.peek(1, ptr, 41)
    yield "afterwards", gpu.health()


@replays("access/pool-revoked-while-live")
def pool_access_revoked(gpu):
    pool = gpu.sim.default_pool(0)
    gpu.grant(pool, 1)
    ptr = gpu.allocate("pool", 0, MiB)
    gpu.write("pool", ptr, word(41))
    yield "granted", gpu.peek(1, ptr, 41)
    yield "revoke", gpu.error(gpu.revoke, pool, 1)
    yield "access now", gpu.access(pool, 1)
    yield "revoked", gpu.peek(1, ptr, 41)
    yield "afterwards", gpu.health()
