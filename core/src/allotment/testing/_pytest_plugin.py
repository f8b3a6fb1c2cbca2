"""What pytest learns from Allotment: markers, fixtures, and options that run the kit on an installed allocator.

The markers are for real devices, the fixtures for tests of code that uses arrays.

pytest imports this module wherever Allotment is installed, so it imports nothing else before it is used.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allotment.platform.simulated import SimulatedPlatform

_MARKERS = (
    "gpu: needs a real CUDA device",
    "multi_gpu: needs two real CUDA devices",
)


_BY_NAME: Final = Path(__file__).with_name("_by_name.py")
"""The file that stands for the tests of allocators that are named on the command line."""
_SUITES: Final = pytest.StashKey[ModuleType]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options by which the kit runs on an installed allocator."""
    group = parser.getgroup("allotment")
    group.addoption(
        "--allotment-allocator",
        action="append",
        default=[],
        metavar="NAME",
        help="Run the conformance kit on the installed allocator NAME; alone if no file is given. Can be repeated.",
    )
    group.addoption(
        "--allotment-platform",
        action="append",
        default=[],
        metavar="NAME",
        help="Run it on cuda, host or sim:PROFILE only. Can be repeated.",
    )
    group.addoption(
        "--allotment-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="Say this about the allocator, as configuration does. Can be repeated.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and add the kit to what is collected if an allocator is named."""
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)
    if config.getoption("allotment_allocator"):
        config.stash[_SUITES] = _suites(config)
        given = config.args if config.args_source is config.ArgsSource.ARGS else []
        config.args = [*(argument for argument in given if argument != str(_BY_NAME)), str(_BY_NAME)]


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Let the kit's file hold a class of tests for each allocator that is named."""
    suites = parent.config.stash.get(_SUITES, None)
    if suites is None or module_path != _BY_NAME:
        return None
    module: pytest.Module = pytest.Module.from_parent(parent, path=module_path)
    module.obj = suites
    return module


def _suites(config: pytest.Config) -> ModuleType:
    """Return a module with the classes of tests for the allocators that are named."""
    from allotment.errors import AllotmentError

    asked = (config.getoption(f"allotment_{part}") for part in ("allocator", "platform", "option"))
    try:
        from allotment.testing._by_name import suites

        return suites(*asked)
    except (AllotmentError, ImportError, ValueError) as error:
        raise pytest.UsageError(str(error)) from error


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
