"""The platform, and what keeps CUDA from being used."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from allotment import configuration
from allotment import platform as platforms
from allotment.cli.doctor._driver import driver_version
from allotment.cli.doctor._finding import ok, problem, warning
from allotment.errors import AllotmentError, PlatformUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allotment.cli.doctor._finding import Finding

_VISIBLE_DEVICES: Final = "CUDA_VISIBLE_DEVICES"
_ASK_DRIVER: Final = "nvidia-smi"
_OLDEST_DRIVER: Final = 12000
_NEWEST_EXTRA: Final = 13000
"""The CUDA version of the newest extra; drivers run what was built for older versions."""
_SIMULATE: Final = "ALLOTMENT_PLATFORM=sim:2xh200 allotment devices"


def examine_platform(asked: str | None = None) -> Iterator[Finding]:
    """Yield which platform is in force and why, or why the one that is asked for is not to be had."""
    try:
        platform = platforms.current() if asked is None else platforms.choose(asked, origin="--platform")
    except AllotmentError as error:
        expects_cuda = isinstance(error, PlatformUnavailableError) and error.platform == "cuda"
        yield problem("platform", str(error), _way_to_cuda().command if expects_cuda else None)
        return
    yield ok("platform", f"{platform.description} ({platform.why})")
    if (asked or configuration.current().value("platform").value) == "auto" and platform.device_count() == 0:
        yield from _examine_cuda()


def _examine_cuda() -> Iterator[Finding]:
    """Yield why there is no GPU to be used here: no problem, unless somebody expects one."""
    try:
        platforms.choose("cuda", origin="doctor")
    except PlatformUnavailableError as unavailable:
        way = _way_to_cuda()
        yield warning("GPU", f"none can be used here: {unavailable.reason}{way.found}", way.command)
        yield ok("GPU", "what needs one can be tried on a simulated one", _SIMULATE)


@dataclass(frozen=True, slots=True)
class _Way:
    """What to type so that CUDA can be used, and what was found that makes it so."""

    command: str
    found: str = ""


def _way_to_cuda() -> _Way:
    visible = os.environ.get(_VISIBLE_DEVICES)
    if visible is not None and visible.split(",")[0].strip() in ("", "-1"):
        return _Way(f"unset {_VISIBLE_DEVICES}")
    driver = driver_version()
    if driver is None:
        return _Way(_ASK_DRIVER, "; there is no NVIDIA driver either: install one if this machine has a GPU of theirs")
    if driver < _OLDEST_DRIVER:
        return _Way(_ASK_DRIVER, f"; the driver is for CUDA {driver // 1000}: update it to 12 or newer")
    if find_spec("cupy") is None:
        return _Way(f'pip install "allotment[cuda{min(driver, _NEWEST_EXTRA) // 1000}]"')
    return _Way(_ASK_DRIVER)
