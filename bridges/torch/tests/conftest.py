"""What the tests of the bridge to PyTorch begin with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from pytorch_model import Torch

import allotment as al
from allotment import configuration, platform, registry
from allotment import device as devices
from allotment.bridges import c_callbacks
from allotment.bridges._installation import installations
from allotment_torch_bridge import _pools, _replacement, _route
from allotment_torch_bridge._receiver import RECEIVER

PREFIXES = ("ALLOTMENT_", "PYTORCH_")
QUIET = ("-W", "ignore:Attempting to run cuBLAS:UserWarning")
"""What PyTorch says of its own threads, with the bridge and without."""


@pytest.fixture(autouse=True)
def isolated(monkeypatch):
    """Keep the developer's environment and files out, and leave no bridge behind."""
    for variable in [name for name in os.environ if name.startswith(PREFIXES)]:
        monkeypatch.delenv(variable)
    forget_everything()
    with configuration.use(configuration.Configuration.isolated(quiet=True)):
        yield
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


@pytest.fixture
def torch(sim, monkeypatch):
    """A model of PyTorch; whatever bridge is installed to it goes with it."""
    model = Torch(sim)
    monkeypatch.setitem(sys.modules, "torch", model)
    monkeypatch.setattr(_pools, "REST", 0.005)
    monkeypatch.setattr(_route, "GRACE", 0.01)
    monkeypatch.setattr(_pools, "_allocators", [])
    monkeypatch.setattr(_replacement, "exception_addresses", lambda torch: (0,) * 7)
    yield model
    installed = installations._installed.pop("torch", None)
    if installed is not None and isinstance(installed.bridge._installed, _pools.Pools):
        installed.bridge._installed.uninstall()
        installed.bridge._installed._stop()
    for ordinal in range(2):
        c_callbacks().serve(ordinal, 0, 0)
    c_callbacks().connect(None)
    c_callbacks().take_freed()
    RECEIVER.__init__()


@pytest.fixture
def used():
    """Return a function for the bytes that an allocator has handed out."""

    def bytes_of(name="mempool", device="cuda:0"):
        return al.get_allocator(name, device).statistics().current

    return bytes_of


@pytest.fixture
def run_script(tmp_path):
    """Return a function that runs a script in a Python of its own, away from the developer's configuration."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(PREFIXES)}
    clean |= {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(script, timeout=180, **environment):
        return subprocess.run(
            [sys.executable, "-X", "faulthandler", *QUIET, "-c", dedent(script)],
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

    def output(script, status=0, **environment):
        done = run_script(script, **environment)
        assert (done.returncode, done.stderr) == (status, "")
        return done.stdout.splitlines()

    return output
