"""What every part of the CUDA platform calls through."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from allotment.errors import PlatformError, PlatformUnavailableError
from allotment.platform.cuda._availability import find_obstacle
from allotment.platform.cuda._bindings import Bindings
from allotment.platform.cuda._current_device import CurrentDevice
from allotment.platform.cuda._errors import platform_error

if TYPE_CHECKING:
    from collections.abc import Callable

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
        self._primary_contexts: dict[int, int] = {}
        self.current_device: Callable[[], int] = self._runtime.getDevice

    @cached_property
    def _bindings(self) -> Bindings:
        return Bindings()

    def _on(self, ordinal: int) -> CurrentDevice:
        return CurrentDevice(self, ordinal)

    def switch_device(self, ordinal: int) -> int:
        """Make a device's primary context current; return the one that was, 0 for none.

        It goes by contexts because ``cudaSetDevice`` leaves its mark: without a context, ``cudaGetDevice`` goes on to
        name the device that was set last, and setting another one opens that one's context.
        """
        context = self._primary_contexts.get(ordinal) or self._open_context(ordinal)
        before: int = self._driver.ctxGetCurrent()
        self._driver.ctxSetCurrent(context)
        return before

    def _open_context(self, ordinal: int) -> int:
        if ordinal not in range(self._runtime.getDeviceCount()):
            detail = f"there is no device {ordinal}"
            raise PlatformError(call="cudaSetDevice", code="cudaErrorInvalidDevice", detail=detail)
        context = self._primary_contexts[ordinal] = self._bindings.primary_context(ordinal)
        return context

    def restore_context(self, before: int) -> None:
        """Make the context current that was so before."""
        self._driver.ctxSetCurrent(before)

    def _is_done(self, status: int, call: str) -> bool:
        """Read the status that a query returns."""
        if status in (_SUCCESS, _NOT_READY):
            return status == _SUCCESS
        failure = platform_error(self._runtime.CUDARuntimeError(status), call)
        raise failure or PlatformError(call=call, code=str(status))
