"""attr: what the devices say of themselves."""

from __future__ import annotations

from allotment.platform import PoolAttribute

from .registry import replays


@replays(r"attr/device(?P<ordinal>\d)")
def device(gpu, ordinal):
    found = gpu.sim.device_properties(int(ordinal))
    yield "Integrated", int(found.integrated)
    yield "UnifiedAddressing", int(found.unified_addressing)
    yield "ManagedMemory", int(found.managed_memory)
    yield "ConcurrentManagedAccess", int(found.concurrent_managed_access)
    yield "PageableMemoryAccess", int(found.pageable_memory_access)
    yield "DirectManagedMemAccessFromHost", int(found.direct_managed_access_from_host)
    yield "HostNativeAtomicSupported", int(found.host_native_atomic)
    yield "MemoryPoolsSupported", int(found.memory_pools)
    yield "IpcEventSupport", int(bool(found.ipc))
    yield "ComputeCapabilityMajor", found.compute_capability[0]
    yield "ComputeCapabilityMinor", found.compute_capability[1]
    yield "MultiProcessorCount", found.sm_count
    yield "total_memory", found.total_memory
    yield "name", found.name


@replays("attr/peers")
def peers(gpu):
    for here in (0, 1):
        for there in (0, 1):
            answer = gpu.ask(gpu.sim.can_access_peer, here, there)
            yield f"{here}->{there}", {"canAccessPeer": answer.error, "able": int(answer.value)}
    yield "device that is not there", gpu.error(gpu.sim.can_access_peer, 0, 99)


@replays("attr/no-context")
def no_context(gpu):
    sim = type(gpu.sim).from_profile("2xh200")  # the machine has a context already

    def active():
        return {"active": sim.has_context(0)}

    yield "after cuInit", active()
    sim.device_count()
    yield "after cudaGetDeviceCount", active()
    sim.device_properties(0)
    yield "after attributes and properties", active()
    sim.can_access_peer(0, 1)
    yield "after canAccessPeer", active()
    pool = sim.default_pool(0)
    yield "after deviceGetDefaultMemPool", active()
    sim.pool_attribute(pool, PoolAttribute.RESERVED_CURRENT)
    yield "after memPoolGetAttribute", active()
    yield "memPoolGetAccess", gpu.error(sim.pool_access, pool, 0)
    yield "after memPoolGetAccess", active()
    yield "pointerGetAttributes", gpu.error(sim.pointer_attributes, gpu.pages(4096))
    yield "after pointerGetAttributes of pageable memory", active()
    yield "memGetInfo", gpu.error(sim.memory_info, 0)
    yield "after memGetInfo", active()
    sim.set_current_device(0)
    yield "after setDevice", active()
