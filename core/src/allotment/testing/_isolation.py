"""A test's own world: fresh settings, registry, devices and platform."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from allotment import configuration, device, registry
from allotment import platform as platforms
from allotment.platform.simulated import SimulatedPlatform

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def isolation() -> Iterator[None]:
    """Forget settings, plugins, the platform and the devices before and after a test."""
    with configuration.use(configuration.Configuration.isolated()), registry.use(registry.Registry()):
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
