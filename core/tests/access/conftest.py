import re
from contextlib import contextmanager
from pathlib import Path

import pytest

import allotment as al
from allotment.access import kinds_of
from allotment.platform import PoolAccess, simulated

PROFILES = Path(simulated.__file__).with_name("profiles")
NAMES = {
    al.MemoryKind.CUDA_DEVICE: "default",
    al.MemoryKind.CUDA_MEMPOOL: "mempool",
    al.MemoryKind.CUDA_MANAGED: "managed",
}
"""The allocator of each kind of memory."""


@pytest.fixture
def machine(tmp_path):
    """Return what simulates a machine like one of the profiles, with some flags of all or of one device turned."""

    @contextmanager
    def simulate(profile, *, device=None, **flags):
        heads, *devices = (PROFILES / f"{profile}.toml").read_text().split("[[devices]]")
        for index in range(len(devices)):
            for flag, value in flags.items() if device in (None, index) else ():
                devices[index] = re.sub(rf"{flag} = \w+", f"{flag} = {str(value).lower()}", devices[index])
        path = tmp_path / "machine.toml"
        path.write_text("[[devices]]".join([heads, *devices]))
        with al.simulate(path) as platform:
            yield platform

    return simulate


def make(owner, kind, size=8):
    """Return an array of a kind of memory of a device."""
    owner = al.get_device(owner)
    if owner.is_cpu:
        return al.ones(size, device=owner, pinned=kind is al.MemoryKind.PINNED)
    with al.ScopedAllocator(owner, NAMES[kind]):
        return al.ones(size, device=owner)


def made(owner):
    """Return an array of each kind of memory that a device has."""
    return [make(owner, kind) for kind in kinds_of(owner)]


def add_one(array):
    array += 1


def runs(device, array):
    """Launch a kernel that reads and writes an array; return whether it did, or faulted."""
    device = al.get_device(device)
    try:
        al.launch(add_one, array.size, [array], device=device)
        device.synchronize()
    except al.PlatformError as error:
        if error.code not in ("cudaErrorIllegalAddress", "SIGSEGV"):
            raise
        return False
    return True


@contextmanager
def busy(device):
    """Let a device be at work, as far as the host can tell."""
    device = al.get_device(device)
    stream = al.Stream(device, non_blocking=True)
    with device.platform.delayed(stream.handle, device.ordinal):
        al.launch(lambda: None, 1, device=device, stream=stream)
        yield


def grant_directly(platform, target, peer, *, pool):
    """Grant access as another library would: by the platform's own calls."""
    if pool:
        platform.set_pool_access(pool, peer.ordinal, PoolAccess.READ_WRITE)
    else:
        platform.enable_peer_access(peer.ordinal, target.ordinal)


@pytest.fixture
def access():
    """The functions above."""

    class Access:
        make, made, runs, busy, grant_directly = map(staticmethod, (make, made, runs, busy, grant_directly))

    return Access
