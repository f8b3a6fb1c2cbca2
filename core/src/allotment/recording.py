"""Writing down what a program allocates and frees, while a part of it runs or all the time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Self

from allotment.device import device_registry
from allotment.errors import UnsupportedError
from allotment.layers.onlookers import onlookers
from allotment.layers.recorder import DEFAULT_DEPTH, Recorder
from allotment.units import not_negative, positive

if TYPE_CHECKING:
    from os import PathLike
    from types import TracebackType


class Recording:
    """What `record` returns: a recording that is begun by a ``with`` block, or by `start`.

    Parameters
    ----------
    path, last, depth
        See `record`.
    """

    def __init__(self, path: Path | None, last: int | None, depth: int) -> None:
        self.path, self.last, self.depth = path, last, depth
        self._recorder: Recorder | None = None
        self._is_running = False

    def __repr__(self) -> str:
        state = "running" if self._is_running else "at rest"
        where = "in memory" if self.path is None else f"to {str(self.path)!r}"
        return f"<recording {where}, {state}: {self.events:,} events>"

    @property
    def events(self) -> int:
        """How many events were seen since it began."""
        return 0 if self._recorder is None else self._recorder.events

    def start(self) -> None:
        """Begin, and forget what was recorded before.

        Raises
        ------
        UnsupportedError
            If it runs.
        TraceError
            If the file cannot be written.
        """
        if self._is_running:
            raise UnsupportedError("this recording runs already; make another with allotment.record()")
        self._recorder = Recorder(self.path, last=self.last, depth=self.depth)
        onlookers.begin(self._recorder)
        self._is_running = True
        for account in onlookers.accounts():
            if account.device.registry is device_registry():  # none of another platform, which may be a simulated one
                self._recorder.hold(account)

    def stop(self) -> None:
        """End, and finish the file; what is kept in memory can still be saved.

        Raises
        ------
        TraceError
            If the file could not be written.
        """
        if self._is_running and self._recorder is not None:
            onlookers.end(self._recorder)
            self._is_running = False
            self._recorder.close()

    def save(self, path: str | PathLike[str]) -> None:
        """Write what is kept in memory to a file, also while it runs.

        Raises
        ------
        UnsupportedError
            If nothing is kept in memory: it was not begun, or writes all to a file of its own.
        TraceError
            If the file cannot be written.
        """
        if self._recorder is None:
            raise UnsupportedError("this recording was not begun, so there is nothing to save: call start() first")
        if self.path is not None and self.last is None:
            raise UnsupportedError(f"this recording writes to {str(self.path)!r}; only one with last=… can be saved")
        self._recorder.save(Path(path))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def record(
    path: str | PathLike[str] | None = None, *, last: int | None = None, depth: int = DEFAULT_DEPTH
) -> Recording:
    """Record what all allocators allocate and free, on all devices and in all threads, in a ``with`` block.

    Parameters
    ----------
    path
        The file, JSON lines, compressed if it ends in ``.gz``. It is overwritten. Without ``last`` it is written as
        events come; with it, at the end and when memory is not to be had.
    last
        How many events to keep, the last ones. Memory is bounded by it, so that such a recording can run all the time.
    depth
        How many frames of the program are kept of each call site; 0 for none.

    Returns
    -------
    Recording
        For a ``with`` block, or to `Recording.start` and `Recording.stop` by hand.

    Raises
    ------
    TypeError, ValueError
        For a number that is none, or too small, and for neither a path nor ``last``.

    Notes
    -----
    The blocks that are live at the beginning are in the trace as held. Memory that belongs to graphs is not.

    Examples
    --------
    >>> import allotment as al
    >>> with al.record(last=1000) as recording:
    ...     array = al.zeros(256, device="cpu")
    >>> recording.save("run.jsonl.gz")  # doctest: +SKIP
    """
    if path is None and last is None:
        raise ValueError("say where to record to, record('run.jsonl.gz'), or how much to keep, record(last=100_000)")
    return Recording(
        None if path is None else Path(path), None if last is None else positive(last), not_negative(depth)
    )
