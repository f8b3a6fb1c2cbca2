"""Where the demo plays: the platform of this machine, or a simulated one if that has no GPU."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from allotment import platform as platforms
from allotment.device import device_registry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allotment.device import DeviceRegistry
    from allotment.platform import Platform

STAND_IN: Final = "sim:2xh200"
"""What is simulated where there is no GPU."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Where the demo plays.

    Parameters
    ----------
    registry
        The devices.
    announcement
        Which platform it is, and why; the first line that the demo prints.
    """

    registry: DeviceRegistry
    announcement: str

    @property
    def is_simulated(self) -> bool:
        """Whether the GPUs are simulated."""
        return _is_simulated(self.registry.platform)


@contextmanager
def stage(asked: str | None) -> Iterator[Stage]:
    """Put the demo's platform in force until the block is left.

    Parameters
    ----------
    asked
        The platform; if not given, the configured one, or `STAND_IN` if that has no GPU.
    """
    platform, announcement = _choose(asked)
    token = platforms.use(platform)
    try:
        yield Stage(device_registry(), announcement)
    finally:
        platforms.reset(token)


def _choose(asked: str | None) -> tuple[Platform, str]:
    platform = platforms.current() if asked is None else platforms.choose(asked, origin="--platform")
    if asked is None and platform.device_count() == 0:
        reason = platform.why.removeprefix("no CUDA here: ")
        stand_in = platforms.choose(STAND_IN, origin="the demo")
        name = STAND_IN.partition(":")[2]
        return stand_in, f"No GPU is in use here ({reason}), so this demo runs on simulated GPUs: {name}."
    if _is_simulated(platform):
        return platform, f"This demo runs on simulated GPUs: {platform.name} ({platform.why})."
    return platform, f"This demo runs on {platform.description} ({platform.why})."


def _is_simulated(platform: Platform) -> bool:
    return platform.name.startswith("sim:")
