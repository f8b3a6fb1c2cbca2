"""What the tests of the bridge to PyTorch begin with."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from pytorch_model import Torch

import allotment as al
from allotment.bridges import c_callbacks, has_compiled_callbacks
from allotment.bridges._installation import installations
from allotment_torch_bridge import _pools, _replacement, _route
from allotment_torch_bridge._receiver import RECEIVER

QUIET = ("-W", "ignore:Attempting to run cuBLAS:UserWarning")
"""What PyTorch says of its own threads, with the bridge and without."""


@pytest.fixture
def surroundings(surroundings):
    return surroundings._replace(hidden=("ALLOTMENT_", "PYTORCH_"), options=("-X", "faulthandler", *QUIET))


@pytest.fixture(autouse=True)
def isolated(isolation):
    """Keep the developer's environment and files out, and leave nothing behind."""


@pytest.fixture
def torch(sim, monkeypatch):
    """A model of PyTorch; whatever bridge is installed to it goes with it."""
    if not has_compiled_callbacks():
        pytest.skip("PyTorch is served by functions in C alone, which were not built here")
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
