"""What pytest learns from Allotment: markers for real devices, and fixtures for tests of code that uses arrays.

pytest imports this module wherever Allotment is installed, so it imports nothing else before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allotment.platform.simulated import SimulatedPlatform

_MARKERS = (
    "gpu: needs a real CUDA device",
    "multi_gpu: needs two real CUDA devices",
)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)


@pytest.fixture
def isolated() -> Iterator[None]:
    """Give a test its own settings, registry, platform and devices, untouched by environment and files."""
    from allotment.testing._isolation import isolation

    with isolation():
        yield


@pytest.fixture
def simulated(request: pytest.FixtureRequest, isolated: None) -> Iterator[SimulatedPlatform]:  # noqa: ARG001
    """Put a simulated machine in force: ``2xh200``, or what the test is parametrised with.

    >>> @pytest.mark.parametrize("simulated", ["wsl", "jetson-orin"], indirect=True)
    ... def test_it_works_without_concurrent_managed_access(simulated): ...
    """
    from allotment.testing._isolation import simulation

    with simulation(getattr(request, "param", "2xh200")) as platform:
        yield platform


@pytest.fixture
def no_leaks() -> Iterator[None]:
    """Fail a test that leaves blocks live which it allocated, on any device of the platform in force at its end."""
    from allotment.testing._leaks import live_blocks

    before = live_blocks()
    yield
    left = {place: count - before.get(place, 0) for place, count in live_blocks().items()}
    leaked: dict[Any, int] = {place: count for place, count in left.items() if count > 0}
    assert not leaked, f"blocks are still live, by device and allocator: {leaked}"
