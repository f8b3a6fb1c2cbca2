"""What the tests of the bridge to RMM begin with."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def isolated(isolation_of_bridges):
    """Keep the developer's environment and files out, and leave no bridge behind."""


@pytest.fixture
def mr():
    """RMM's resources, which can be made and given callbacks without a driver."""
    pytest.importorskip("rmm", reason="RMM is not installed")
    import rmm.mr

    return rmm.mr


@pytest.fixture
def sim(mr, sim, monkeypatch):
    """Two simulated H200 in force, and none that RMM sees."""
    monkeypatch.setattr("allotment_rmm_bridge._bridge.sees_devices", lambda: False)
    return sim


@pytest.fixture
def rmm_stream(mr):
    """Return a function that makes the stream of a handle as RMM has it."""
    from rmm.pylibrmm.stream import Stream

    return lambda stream=None: Stream(stream or Null())


class Null:
    """The null stream."""

    def __cuda_stream__(self):
        return 0, 0
