"""What the tests of the allocator over RMM begin with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import allotment as al
from allotment import configuration, device, platform, registry

sys.path.insert(0, str(Path(__file__).parent))

import fake_rmm


@pytest.fixture(autouse=True)
def isolated(monkeypatch):
    """Keep the developer's environment and files out, and leave nothing behind."""
    for variable in [name for name in os.environ if name.startswith("ALLOTMENT_")]:
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


@pytest.fixture
def rmm(sim, monkeypatch):
    """RMM as its documentation has it, on the simulated devices."""
    modules = fake_rmm.modules()
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr("allotment_rmm._allocator.is_installed", lambda: True)
    monkeypatch.setattr("allotment_rmm._allocator._REAL", sim.name)
    return modules["rmm"]


@pytest.fixture
def output_of(tmp_path):
    """Return a function that runs a script in a Python of its own, which must end well and say nothing on stderr."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ALLOTMENT_")}
    clean |= {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(script, timeout=180):
        done = subprocess.run(
            [sys.executable, "-c", dedent(script)],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            cwd=tmp_path,
            env=clean,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    return run
