"""What holds for every test of the workspace, and what those begin with that ask for it.

A test that needs CUDA devices says why it is skipped without them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from textwrap import dedent
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from allotment.platform import Platform


class Surroundings(NamedTuple):
    """What the tests of a member run in; its ``conftest.py`` may say otherwise with a fixture of this name."""

    hidden: tuple[str, ...] = ("ALLOTMENT_",)
    """How the environment variables begin that are kept out."""
    options: tuple[str, ...] = ()
    """What Python is told that runs a script."""
    variables: Mapping[str, str] = MappingProxyType({})
    """What a script's environment has besides."""
    timeout: float = 180
    """Seconds that a script may take."""


@pytest.fixture
def surroundings() -> Surroundings:
    """Return what most tests run in."""
    return Surroundings()


@pytest.fixture
def begin_anew() -> Callable[[], None]:
    """Return a function that lets this process begin as if nothing were configured, registered or chosen."""
    from allotment import configuration, device, platform, registry

    def forget() -> None:
        configuration.reset()
        registry.reset()
        platform.close()
        device.forget_devices()

    return forget


@pytest.fixture
def isolation(
    monkeypatch: pytest.MonkeyPatch, surroundings: Surroundings, begin_anew: Callable[[], None]
) -> Iterator[None]:
    """Keep the developer's environment and files out, and leave nothing behind for the next test."""
    from allotment import configuration

    for variable in [name for name in os.environ if name.startswith(surroundings.hidden)]:
        monkeypatch.delenv(variable)
    begin_anew()
    with configuration.use(configuration.Configuration.isolated(quiet=True)):
        yield
    begin_anew()


@pytest.fixture
def isolation_of_bridges(isolation: None) -> Iterator[None]:  # noqa: ARG001 - around which it is
    """Leave no bridge behind either."""
    from allotment.bridges._installation import installations

    yield
    for name in reversed(installations.names()):
        installations.uninstall(name)


@pytest.fixture
def sim() -> Iterator[Platform]:
    """Put two simulated H200 in force."""
    import allotment as al

    with al.simulate("2xh200") as simulated:
        yield simulated


@pytest.fixture
def run_script(tmp_path: Path, surroundings: Surroundings) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs a script in a Python of its own, away from the developer's configuration."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(surroundings.hidden)}
    clean |= {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    clean |= surroundings.variables
    clean.pop("PYTHONUNBUFFERED", None)  # as users have it: what a script prints before it forks is in both processes

    def run(
        script: str, *options: str, timeout: float = surroundings.timeout, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603 - a script of a test
            [sys.executable, *surroundings.options, *options, "-c", dedent(script)],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            cwd=tmp_path,
            env=clean | environment,
        )

    return run


@pytest.fixture
def output_of(run_script: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., list[str]]:
    """Return a function that runs a script, which must end with 0 or a given status and say nothing on stderr."""

    def output(script: str, *options: str, status: int = 0, **environment: Any) -> list[str]:
        done = run_script(script, *options, **environment)
        assert (done.returncode, done.stderr) == (status, ""), f"it ended with {done.returncode}:\n{done.stderr}"
        return done.stdout.splitlines()

    return output


@cache
def cuda_devices() -> tuple[int, str]:
    """Return how many CUDA devices answer, and what they are or why there is none. Opens no context."""
    from allotment.errors import PlatformUnavailableError
    from allotment.platform import choose

    try:
        platform = choose("cuda")
    except PlatformUnavailableError as unavailable:
        return 0, f"no CUDA device: {unavailable.reason}"
    count = platform.device_count()
    return count, f"{count} × {platform.device_properties(0).name}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine has too few devices for."""
    for item in items:
        needed = devices_needed(item)
        if item.get_closest_marker("gpu") is None and needed:
            item.add_marker(pytest.mark.gpu)
        if needed and cuda_devices()[0] < needed:
            item.add_marker(pytest.mark.skip(reason=shortage(needed)))


def pytest_report_collectionfinish(items: list[pytest.Item]) -> str:
    """Say, before the first test, what becomes of those that need a device."""
    needs = [needed for item in items if (needed := devices_needed(item))]
    if not needs:
        return "gpu tests: none selected"
    count, answer = cuda_devices()
    skipped = sum(needed > count for needed in needs)
    return f"gpu tests: {len(needs) - skipped} to run, {skipped} skipped ({answer})"


def devices_needed(item: pytest.Item) -> int:
    """Return the number of CUDA devices that a test is marked to need."""
    if item.get_closest_marker("multi_gpu"):
        return 2
    return 1 if item.get_closest_marker("gpu") else 0


def shortage(needed: int) -> str:
    """Return why a test is skipped."""
    count, answer = cuda_devices()
    return answer if count == 0 else f"needs {needed} CUDA devices, found {answer}"
