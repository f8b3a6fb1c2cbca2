"""peer: the calls about peer access and access to pools."""

from __future__ import annotations

from allotment.platform import HOST_LOCATION, PoolAccess

from .machine import GiB, MiB
from .registry import replays

NONE, READ_WRITE = PoolAccess.NONE, PoolAccess.READ_WRITE
STEPS = (
    ("device 0 none", 0, NONE),
    ("device 0 read", 0, None),
    ("device 0 read-write", 0, READ_WRITE),
    ("host read-write", HOST_LOCATION, READ_WRITE),
    ("host none", HOST_LOCATION, NONE),
    ("device 99 read-write", 99, READ_WRITE),
    ("device 1 none", 1, NONE),
    ("device 1 read-write", 1, READ_WRITE),
    ("device 1 read-write again", 1, READ_WRITE),
    ("device 1 read", 1, None),
    ("device 1 none again", 1, NONE),
)


@replays("peer/calls")
def calls(gpu):
    enable, disable = gpu.sim.enable_peer_access, gpu.sim.disable_peer_access
    gpu.start(1, 0)
    yield "disable when off", gpu.error(disable, 0, 1)
    yield "last error 1", gpu.forget_error()
    yield "enable on itself", gpu.error(enable, 0, 0)
    yield "last error 2", gpu.forget_error()
    yield "enable on device 99", gpu.error(enable, 0, 99)
    gpu.forget_error()
    yield "enable", gpu.error(enable, 0, 1)
    yield "enable twice", gpu.error(enable, 0, 1)
    yield "last error 4", gpu.forget_error()
    yield "default pool of device 1 from device 0", gpu.access(gpu.sim.default_pool(1), 0)
    yield "disable", gpu.error(disable, 0, 1)
    yield "disable twice", gpu.error(disable, 0, 1)
    yield "other way, disable when off", gpu.error(disable, 1, 0)
    gpu.forget_error()
    gpu.start(1)
    yield "afterwards", gpu.health()


@replays("peer/no-context-on-the-peer")
def context_of_the_peer(gpu):
    yield "context of device 1 before", gpu.sim.has_context(1)
    yield "enable", gpu.error(gpu.sim.enable_peer_access, 0, 1)
    yield "context of device 1 after", gpu.sim.has_context(1)


@replays("peer/pool-access-without-peer-context")
def pool_access_without_peer_context(gpu):
    yield "context of device 1 before", gpu.sim.has_context(1)
    yield "grant", gpu.error(gpu.grant, gpu.sim.default_pool(0), 1)
    yield "context of device 1 after", gpu.sim.has_context(1)


@replays("peer/pool-access-calls")
def pool_access(gpu):
    sim = gpu.sim
    gpu.start(1, 0)
    default = sim.default_pool(0)

    def step(pool, place, access):
        if access is None:
            return gpu.error(sim.set_pool_read_only, pool, place)
        return gpu.error(sim.set_pool_access, pool, place, access)

    for name, pool in (("default", default), ("own", gpu.own_pool(0))):
        for label, place in (("device 0", 0), ("device 1", 1), ("host", HOST_LOCATION), ("device 99", 99)):
            yield f"{name} pool, access at first, {label}", gpu.access(pool, place)
            gpu.forget_error()
        for label, place, access in STEPS:
            yield f"{name} pool, set {label}", step(pool, place, access)
            gpu.forget_error()
            yield f"{name} pool, device 0 and 1 after {label}", [gpu.access(pool, ordinal) for ordinal in (0, 1)]
    for label, steps, after in (  # one call for each place stands for one call with all of them
        ("set both devices in one call", ((0, READ_WRITE), (1, READ_WRITE)), "after it"),
        ("one device twice in one call", ((1, NONE), (1, READ_WRITE)), "after that"),
    ):
        yield label, {step(default, place, access) for place, access in steps}.pop()
        seen = [gpu.access(default, ordinal) for ordinal in (0, 1)]
        yield after, seen if after == "after it" else seen[1]
    sim.enable_peer_access(1, 0)
    yield "own pool from device 1 with peer access enabled", gpu.access(gpu.own_pool(0), 1)
    yield "afterwards", gpu.health()


@replays("peer/free-memory")
def free_memory(gpu):
    def free():
        return [gpu.sim.memory_info(ordinal).free for ordinal in (0, 1)]

    for label, kind, grant in (
        ("peer access", "malloc", lambda: gpu.sim.enable_peer_access(1, 0)),
        ("pool access", "pool", lambda: gpu.grant(gpu.sim.default_pool(0), 1)),
    ):
        gpu.allocate(kind, 0, GiB)
        before = free()
        grant()
        yield f"{label}, change in free MiB", [(b - a) // MiB for a, b in zip(before, free(), strict=True)]
