"""Making a device current for a while."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType


@dataclass(frozen=True, slots=True)
class ThreadContext:
    """What is current in a thread.

    Parameters
    ----------
    device
        The ordinal that the runtime works with.
    context
        The ``CUcontext``; 0 in a thread that has none, where the device is only current by default.
    """

    device: int
    context: int

    @classmethod
    def read(cls, runtime: Any, driver: Any) -> ThreadContext:
        """Return what is current in the calling thread, through CuPy's modules."""
        return cls(runtime.getDevice(), driver.ctxGetCurrent())

    def restore(self, runtime: Any, driver: Any) -> None:
        """Make it current in the calling thread again, without opening a context that was not open."""
        driver.ctxSetCurrent(self.context)
        if runtime.getDevice() != self.device:
            runtime.setDevice(self.device)


class CurrentDevice:
    """Context manager under which a device is current in the calling thread.

    Nothing is done if it is current already. Afterwards the thread has the context that it had before, which may be
    none.

    Parameters
    ----------
    runtime, driver
        CuPy's modules.
    ordinal
        The device.
    """

    __slots__ = ("_before", "_driver", "_ordinal", "_runtime")

    def __init__(self, runtime: Any, driver: Any, ordinal: int) -> None:
        self._runtime = runtime
        self._driver = driver
        self._ordinal = ordinal
        self._before: ThreadContext | None = None

    def __enter__(self) -> None:
        if self._runtime.getDevice() != self._ordinal:
            self._before = ThreadContext.read(self._runtime, self._driver)
            self._runtime.setDevice(self._ordinal)

    def __exit__(
        self, error: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._before is not None:
            self._before.restore(self._runtime, self._driver)
