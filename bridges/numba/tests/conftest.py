"""What the tests of the bridge to Numba begin with."""

from __future__ import annotations

import os
import subprocess
import sys
from textwrap import dedent
from types import SimpleNamespace

import pytest

import allotment as al
from allotment import configuration, device, platform, registry
from allotment.bridges._installation import installations

PREFIXES = ("ALLOTMENT_", "NUMBA_")


@pytest.fixture(autouse=True)
def isolated(monkeypatch):
    """Keep the developer's environment and files out, and leave no bridge behind."""
    for variable in [name for name in os.environ if name.startswith("ALLOTMENT_")]:
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
    device.forget_devices()


@pytest.fixture
def sim():
    """Two simulated H200 in force."""
    with al.simulate("2xh200") as simulated:
        yield simulated


@pytest.fixture(scope="session")
def driver():
    """Numba's driver module, which imports without a driver."""
    pytest.importorskip("numba", reason="Numba is not installed")
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    return pytest.importorskip("numba.cuda.cudadrv.driver", reason="Numba's CUDA target cannot be imported")


@pytest.fixture
def make_manager(driver, sim):
    """Return a function that makes the memory manager of a device's context, as Numba does."""
    from allotment_numba_bridge import AllotmentNumbaManager

    contexts = []

    def make(number=0, allocator=None):
        class Context(SimpleNamespace):
            """What a memory manager is told of a context."""

        contexts.append(Context(device=SimpleNamespace(id=number)))
        manager = AllotmentNumbaManager(context=contexts[-1])
        manager.initialize()
        return manager

    AllotmentNumbaManager.delivery = al.Delivery("numba")
    yield make
    AllotmentNumbaManager.delivery = None


@pytest.fixture
def run_script(tmp_path):
    """Return a function that runs a script in a Python of its own, away from the developer's configuration."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(PREFIXES)}
    clean |= {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    clean |= {"NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS": "0", "NUMBA_CUDA_WARN_ON_IMPLICIT_COPY": "0"}

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
