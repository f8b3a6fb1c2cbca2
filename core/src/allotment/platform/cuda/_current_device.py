"""Making a device current for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from allotment.platform.cuda._calls import Calls


class CurrentDevice:
    """Context manager under which a device is current in the calling thread.

    Nothing is done if it is current already. Afterwards the thread has the context that it had before, which may be
    none.

    Parameters
    ----------
    calls
        The calls to CUDA.
    ordinal
        The device.
    """

    __slots__ = ("_before", "_calls", "_ordinal")

    def __init__(self, calls: Calls, ordinal: int) -> None:
        self._calls = calls
        self._ordinal = ordinal
        self._before: int | None = None

    def __enter__(self) -> None:
        if self._calls.current_device() != self._ordinal:
            self._before = self._calls.switch_device(self._ordinal)

    def __exit__(
        self, error: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._before is not None:
            self._calls.restore_context(self._before)
