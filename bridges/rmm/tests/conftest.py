"""What the tests of the bridge to RMM begin with."""

from __future__ import annotations

import os
import subprocess
import sys
from textwrap import dedent

import pytest

import allotment as al
from allotment import configuration, device, platform, registry
from allotment.bridges._installation import installations


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
def mr():
    """RMM's resources, which can be made and given callbacks without a driver."""
    pytest.importorskip("rmm", reason="RMM is not installed")
    import rmm.mr

    return rmm.mr


@pytest.fixture
def sim(mr, monkeypatch):
    """Two simulated H200 in force."""
    with al.simulate("2xh200") as simulated:
        monkeypatch.setattr("allotment_rmm_bridge._bridge.sees_devices", lambda: False)
        yield simulated


@pytest.fixture
def rmm_stream(mr):
    """Return a function that makes the stream of a handle as RMM has it."""
    from rmm.pylibrmm.stream import Stream

    return lambda stream=None: Stream(stream or Null())


class Null:
    """The null stream."""

    def __cuda_stream__(self):
        return 0, 0


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
