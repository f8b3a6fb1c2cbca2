"""What the tests of the allocator over RMM begin with."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import fake_rmm


@pytest.fixture(autouse=True)
def isolated(isolation):
    """Keep the developer's environment and files out, and leave nothing behind."""


@pytest.fixture
def rmm(sim, monkeypatch):
    """RMM as its documentation has it, on the simulated devices."""
    modules = fake_rmm.modules()
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr("allotment_rmm._allocator.is_installed", lambda: True)
    monkeypatch.setattr("allotment_rmm._allocator._REAL", sim.name)
    return modules["rmm"]
