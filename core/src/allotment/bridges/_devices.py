"""The devices that a library has in common with Allotment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allotment.device import get_cuda_devices
from allotment.errors import BridgeError
from allotment.report import startup_report

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment.device import Device


def require_devices(bridge: str, library: str, sees_devices: Callable[[], bool]) -> list[Device]:
    """Return the CUDA devices whose memory a bridge can deliver.

    Parameters
    ----------
    bridge
        The bridge's name.
    library
        What the library is called in a sentence.
    sees_devices
        Returns whether the library has devices to work on, which are real ones.

    Raises
    ------
    BridgeError
        If there is none, or they are simulated and those of the library are not.
    """
    devices = get_cuda_devices()
    if not devices:
        raise BridgeError(bridge=bridge, cause="Allotment sees no CUDA device", remedy=startup_report())
    platform = devices[0].platform.name
    if platform != "cuda" and sees_devices():
        cause = (
            f"{library} works on real devices, and the platform in force is {platform!r}, whose memory is not theirs"
        )
        raise BridgeError(bridge=bridge, cause=cause, remedy=startup_report())
    return devices
