"""What the tests of the bridge to Warp begin with."""

from __future__ import annotations

import os
import subprocess
import sys
from textwrap import dedent

import pytest

import allotment as al
from allotment import configuration, platform, registry
from allotment import device as devices
from allotment.bridges._installation import installations
from allotment_warp_bridge import AllotmentWarpAllocator

PREFIX = "ALLOTMENT_"


@pytest.fixture(autouse=True)
def isolated(monkeypatch):
    """Keep the developer's environment and files out, and leave no bridge behind."""
    for variable in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(variable)
    forget_everything()
    with configuration.use(configuration.Configuration.isolated(quiet=True)):
        yield
        for name in reversed(installations.names()):
            installations.uninstall(name)
    forget_everything()


def forget_everything():
    registry.reset()
    platform.close()
    devices.forget_devices()


@pytest.fixture
def sim():
    """Two simulated H200 in force."""
    with al.simulate("2xh200") as simulated:
        yield simulated


class WarpStream:
    """A stream of Warp's, as far as an allocator uses it, on a stream of the simulation."""

    def __init__(self, device, stream=None):
        self.device, self.stream = device, stream
        self.cached_event = None

    @property
    def cuda_stream(self):
        return self.stream.handle if self.stream else None

    def __cuda_stream__(self):
        return 0, self.cuda_stream or 0

    def record_event(self, event):
        self.device.marks += 1


class WarpDevice:
    """A CUDA device of Warp's, as far as an allocator uses it."""

    def __init__(self, simulated, ordinal=0):
        self.simulated, self.ordinal = simulated, ordinal
        self.is_primary = True
        self.captures = {}
        self.marks = 0
        self.null_stream = WarpStream(self)
        self.stream = WarpStream(self, al.Stream(f"cuda:{ordinal}"))
        self.current_allocator = WarpPool()

    def __str__(self):
        return f"cuda:{self.ordinal}"

    @property
    def is_capturing(self):
        return self.captures


class WarpPool:
    """Warp's own allocator of the device, which makes memory that belongs to graphs."""

    memory_kind = al.MemoryKind.CUDA_MEMPOOL

    def __init__(self):
        self.live = {}

    def allocate(self, size):
        self.live[0x1000 + len(self.live)] = size
        return 0x0FFF + len(self.live)

    def deallocate(self, ptr, size):
        assert self.live.pop(ptr) == size


@pytest.fixture
def device(sim):
    """A device of Warp's on the simulated platform."""
    return WarpDevice(sim)


@pytest.fixture
def make(device):
    """Return a function that makes the allocator of Warp's device."""
    return lambda allocator=None: AllotmentWarpAllocator(device, al.Delivery("warp", allocator), al.MemoryKind)


@pytest.fixture
def run_script(tmp_path):
    """Return a function that runs a script in a Python of its own, away from the developer's configuration."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    clean |= {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(script, timeout=120, **environment):
        return subprocess.run(
            [sys.executable, "-c", dedent(script)],
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

    def output(script, **environment):
        done = run_script(script, **environment)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    return output
