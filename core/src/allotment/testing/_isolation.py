"""A test's own world: fresh settings, registry, devices and platform."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from allotment import configuration, device, registry
from allotment import platform as platforms
from allotment.platform.simulated import SimulatedPlatform

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class SharedScan(registry.Registry):
    """A registry that begins with what another one found on the same path: reading metadata takes most of a test."""

    __slots__ = ()

    def _scan(self) -> Any:
        return _found_on(tuple(sys.path))


@lru_cache(maxsize=1)
def _found_on(_: tuple[str, ...]) -> Any:
    return registry.Registry()._scan()


@contextmanager
def isolation(plugins: type[registry.Registry] = registry.Registry) -> Iterator[None]:
    """Forget settings, plugins, the platform and the devices before and after a test.

    Parameters
    ----------
    plugins
        What makes the registry of the test.
    """
    with configuration.use(configuration.Configuration.isolated()), registry.use(plugins()):
        _forget()
        try:
            yield
        finally:
            _forget()


def _forget() -> None:
    platforms.close()
    device.forget_devices()


@contextmanager
def simulation(profile: str | Path) -> Iterator[SimulatedPlatform]:
    """Put a simulated machine in force, and give its memory back afterwards."""
    platform = SimulatedPlatform.from_profile(profile)
    token = platforms.use(platform)
    try:
        yield platform
    finally:
        platforms.reset(token)
        platform.close()
