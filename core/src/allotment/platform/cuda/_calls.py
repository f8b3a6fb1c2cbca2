"""What every part of the CUDA platform calls through."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

from allotment.errors import PlatformError, PlatformUnavailableError
from allotment.platform.cuda._availability import find_obstacle
from allotment.platform.cuda._bindings import Bindings
from allotment.platform.cuda._current_device import CurrentDevice
from allotment.platform.cuda._errors import platform_error

_SUCCESS: Final = 0
_NOT_READY: Final = 600


class Calls:
    """CuPy's modules, and cuda-bindings from the first call that needs it.

    Raises
    ------
    PlatformUnavailableError
        If CUDA cannot be used here.
    """

    def __init__(self) -> None:
        obstacle = find_obstacle()
        if obstacle is not None:
            raise PlatformUnavailableError(platform="cuda", reason=obstacle.reason, remedy=obstacle.remedy)
        import cupy

        self._cupy: Any = cupy
        self._runtime: Any = cupy.cuda.runtime
        self._driver: Any = cupy.cuda.driver

    @cached_property
    def _bindings(self) -> Bindings:
        return Bindings()

    def _on(self, ordinal: int) -> CurrentDevice:
        return CurrentDevice(self._runtime, self._driver, ordinal)

    def _is_done(self, status: int, call: str) -> bool:
        """Read the status that a query returns."""
        if status in (_SUCCESS, _NOT_READY):
            return status == _SUCCESS
        failure = platform_error(self._runtime.CUDARuntimeError(status), call)
        raise failure or PlatformError(call=call, code=str(status))
