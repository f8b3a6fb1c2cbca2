"""What the tests of the bridge to Numba begin with."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import allotment as al

QUIET = {"NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS": "0", "NUMBA_CUDA_WARN_ON_IMPLICIT_COPY": "0"}


@pytest.fixture
def surroundings(surroundings):
    return surroundings._replace(hidden=("ALLOTMENT_", "NUMBA_"), variables=QUIET, timeout=120)


@pytest.fixture(autouse=True)
def isolated(isolation_of_bridges):
    """Keep the developer's environment and files out, and leave no bridge behind."""


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

    def make(number=0, device=None):
        class Context(SimpleNamespace):
            """What a memory manager is told of a context."""

        contexts.append(Context(device=device or SimpleNamespace(id=number)))
        manager = AllotmentNumbaManager(context=contexts[-1])
        manager.initialize()
        return manager

    AllotmentNumbaManager.draw_from(al.Delivery("numba"))
    yield make
    AllotmentNumbaManager.delivery = None
