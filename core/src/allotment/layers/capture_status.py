"""Whether a graph is captured that a call could end or become part of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allotment.stream import stream_in_force

if TYPE_CHECKING:
    from allotment.device import Device
    from allotment.stream import Stream


def is_captured(device: Device, *stream: Stream) -> bool:
    """Return whether a graph is captured, also by another library.

    Parameters
    ----------
    device
        The device.
    *stream
        The stream that is asked about; the one in force if not given.
    """
    if device.captures.on_devices:
        return True
    if device.is_cpu:
        return False
    if device.is_retired:  # its driver is not asked any more
        return True
    handle = (stream[0] if stream else stream_in_force(device)).handle
    return device.captures.beside.is_captured(handle, device.ordinal)
