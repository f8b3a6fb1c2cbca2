"""Beginning: choosing the platform, saying so, and simulating another one for a while."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from allotment import configuration
from allotment import platform as platforms
from allotment.bridges import install_configured
from allotment.device import device_registry, hide_scoped_devices, reveal_scoped_devices
from allotment.report import startup_report

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from allotment.platform.simulated import SimulatedPlatform


def init(platform: str | None = None, *, quiet: bool | None = None) -> None:
    """Choose the platform now, find its devices, install the configured bridges, and print the startup report.

    Without bridges nothing needs it: the first use of a device does the same without a word.

    Parameters
    ----------
    platform
        ``"auto"``, ``"cuda"``, ``"host"`` or ``"sim:<profile>"``; what is configured if not given.
    quiet
        Whether to print nothing; what is configured if not given.

    Raises
    ------
    PlatformUnavailableError
        If the platform is not to be had here. What was in force stays.
    BridgeError
        If a bridge of ``[bridges] install`` cannot be installed.
    """
    if platform is not None:
        chosen = platforms.choose(platform, origin="init()")
        configuration.configure(platform=platform)
        platforms.close()
        platforms.use(chosen)
    device_registry()
    install_configured()
    if not (configuration.current().values.quiet if quiet is None else quiet):
        print(startup_report())  # noqa: T201 - the report is what the call is for


@contextmanager
def simulate(profile: str | Path = "2xh200") -> Iterator[SimulatedPlatform]:
    """Put a simulated CUDA platform in force for the whole process until the block is left.

    Parameters
    ----------
    profile
        The name of a profile (``"2xh200"``, ``"rtx4090"``, …) or a TOML file with one.

    Yields
    ------
    SimulatedPlatform
        The platform, with its log of calls, its faults on demand and its delayed streams.

    Notes
    -----
    Devices and settings of the block are its own. Arrays made in it may outlive it.

    Examples
    --------
    >>> import allotment as al
    >>> with al.simulate("2xh200"):
    ...     al.zeros(4, device="cuda:1").numpy()
    array([0., 0., 0., 0.])
    """
    from allotment.platform.simulated import SimulatedPlatform

    platform = SimulatedPlatform.from_profile(str(profile))
    platform.why = "simulated by allotment.simulate()"
    token = platforms.use(platform)
    hide_scoped_devices(token)
    try:
        yield platform
    finally:
        reveal_scoped_devices(token)
        platforms.reset(token)
