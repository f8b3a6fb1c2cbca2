"""What every test of core begins with: nothing configured, nothing registered, no platform chosen."""

from __future__ import annotations

import os
import subprocess
import sys
from textwrap import dedent

import pytest

import allotment as al
from allotment import configuration, device, platform, registry
from allotment.platform.simulated import _host_mapping

PREFIX = "ALLOTMENT_"


@pytest.fixture(autouse=True)
def isolated(monkeypatch):
    """Keep the developer's environment and files out, and leave nothing behind for the next test."""
    for variable in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(variable)
    forget_everything()
    with configuration.use(configuration.Configuration.isolated(quiet=True)):
        yield
    forget_everything()


def forget_everything():
    registry.reset()
    platform.close()
    device.forget_devices()


@pytest.fixture
def sim():
    """Two simulated H200 in force."""
    with al.simulate("2xh200") as simulated:
        yield simulated


class RecordingAllocator:
    """An allocator as a user would write one: plain memory of the current device, and a record of the calls."""

    def __init__(self, simulated):
        self._simulated = simulated
        self.allocated = []
        self.freed = []

    def allocate(self, size_in_bytes):
        ptr = self._simulated.malloc(size_in_bytes)
        self.allocated.append((ptr, size_in_bytes))
        return ptr

    def deallocate(self, ptr, size_in_bytes):
        self.freed.append((ptr, size_in_bytes))
        self._simulated.free(ptr)


class MappingAllocator:
    """An allocator that maps its memory, which follows peer access; also written into scripts that run on GPUs."""

    traits = al.AllocatorTraits(memory_kind=al.MemoryKind.CUDA_DEVICE, mapped=True)

    def __init__(self, device):
        self._platform, self._ordinal = device.platform, device.ordinal
        self._granule = self._platform.mapping_granularity(self._ordinal)
        self._readers = [self._ordinal]
        self._blocks = {}
        self.told = []

    def allocate(self, size_in_bytes):
        nbytes = -(-size_in_bytes // self._granule) * self._granule
        ptr = self._platform.address_range(nbytes)
        handle = self._platform.create_physical(self._ordinal, nbytes)
        self._platform.map_physical(ptr, nbytes, handle)
        self._platform.release_physical(handle)
        for reader in self._readers:
            self._open(ptr, nbytes, reader, enable=True)
        self._blocks[ptr] = nbytes
        return ptr

    def deallocate(self, ptr, size_in_bytes):
        nbytes = self._blocks.pop(ptr)
        self._platform.unmap_physical(ptr, nbytes)
        self._platform.free_address_range(ptr, nbytes)

    def set_peer_access(self, peer, *, enable):
        changed = []
        try:
            for block in self._blocks.items():
                self._open(*block, peer.ordinal, enable=enable)
                changed.append(block)
        except al.PlatformError:
            for block in changed:
                self._open(*block, peer.ordinal, enable=not enable)
            raise
        (self._readers.append if enable else self._readers.remove)(peer.ordinal)
        self.told.append((peer.alias, enable))

    def _open(self, ptr, nbytes, reader, *, enable):
        access = al.PoolAccess.READ_WRITE if enable else al.PoolAccess.NONE
        self._platform.set_mapping_access(ptr, nbytes, reader, access)


@pytest.fixture
def recording(sim):
    """Return a function that makes recording allocators."""
    return lambda: RecordingAllocator(sim)


@pytest.fixture
def mapping():
    """The class of allocators that map their memory; an object of it serves one device."""
    if not _host_mapping.IS_AVAILABLE:
        pytest.skip("the simulation of virtual memory needs Linux")
    return MappingAllocator


@pytest.fixture
def run_script(tmp_path):
    """Return a function that runs a script in a Python of its own, away from the developer's configuration."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    clean |= {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(script, *options, timeout=60, **environment):
        return subprocess.run(
            [sys.executable, *options, "-c", dedent(script)],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            cwd=tmp_path,
            env=clean | environment,
        )

    return run


@pytest.fixture
def output_of(run_script):
    """Return a function that runs a script which must end well and say nothing on stderr; return its lines."""

    def output(script, *options, **environment):
        done = run_script(script, *options, **environment)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    return output
