"""Calls beside the graph captures of others, in Python: the twin of ``_beside_captures_native.c``.

A bridge frees while the library may be capturing, of which nobody tells Allotment: each free asks whether its stream is
captured, and is made in the mode that ends no capture. The compiled twin calls the driver itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from allotment.errors import PlatformError
from allotment.platform import CaptureMode, CaptureStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment.platform import Platform

_NULL_STREAM = 0


class BesideCaptures:
    """What is asked of the captures of a platform, and done beside them, whoever began them.

    Parameters
    ----------
    platform
        The platform.
    """

    __slots__ = ("_platform",)

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    def call(self, function: Callable[..., Any], /, *arguments: object) -> Any:
        """Make a call which ends no capture of this thread's, as CUDA allows it in relaxed mode."""
        before = self._platform.exchange_capture_mode(CaptureMode.RELAXED)
        try:
            return function(*arguments)
        finally:
            self._platform.exchange_capture_mode(before)

    def is_captured(self, handle: int, ordinal: int, /) -> bool:
        """Return whether a free on a stream of a device would become part of a capture, or end one."""
        try:
            return self._platform.capture_status(handle, ordinal) is not CaptureStatus.NONE
        except PlatformError:  # the null stream, while a stream is captured that keeps order with it
            return True

    def order_after_all_work(self, event: int, ordinal: int, /) -> bool:
        """Order later work of a device after all that is queued, on the streams that keep order with the null stream.

        Parameters
        ----------
        event
            An event of the device, which is recorded on the null stream.
        ordinal
            The device's number.

        Returns
        -------
        bool
            Whether that is done: not while it would end a capture.
        """
        if self.is_captured(_NULL_STREAM, ordinal):
            return False
        self.call(self._platform.record_event, event, _NULL_STREAM, ordinal)
        return True
