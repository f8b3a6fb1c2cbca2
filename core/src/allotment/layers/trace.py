"""The layer that writes down what happens to one allocator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

from allotment._locks import RenewedLock
from allotment._process import on_shutdown
from allotment.layers.layer import Place
from allotment.layers.recorder import DEFAULT_DEPTH, Recorder
from allotment.units import not_negative, positive

if TYPE_CHECKING:
    from allotment.device import Device
    from allotment.layers.accounting import AccountedAllocator
    from allotment.layers.layer import Calls


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """Options of the layer ``trace``.

    Parameters
    ----------
    path
        The file, compressed if it ends in ``.gz``. Allocators that name the same one write to it together.
    last
        How many events to keep, the last ones, which are written at exit and when memory is not to be had; all, written
        as they come, if not given.
    depth
        How many frames of the program are kept of each call site; 0 for none.
    """

    path: str
    last: Annotated[int, positive] | None = None
    depth: Annotated[int, not_negative] = DEFAULT_DEPTH


class Trace:
    """Writes down each allocation and free, as the program sees it. Blocks that belong to graphs are left out.

    Parameters
    ----------
    options
        See `TraceOptions`.
    device
        The device of the account.
    """

    name: ClassVar = "trace"
    Options: ClassVar = TraceOptions
    place: ClassVar = Place.TRACE

    def __init__(self, options: TraceOptions, device: Device) -> None:  # noqa: ARG002 - as every layer is made
        self._recorder = recorder_to(options)

    def wrap(self, calls: Calls, account: AccountedAllocator) -> Calls:
        """Return the calls with what writes them down around."""
        return self._recorder.wrap(calls, account)

    def refused(self, account: AccountedAllocator, size: int) -> None:
        """Write down a request for more than the device has."""
        self._recorder.refused(account, size)

    def close(self) -> None:
        """See to it that the file is up to date."""
        self._recorder.flush()


class SharedRecorders:
    """The recorders of all layers ``trace`` of the process, by file, until it exits."""

    def __init__(self) -> None:
        self._lock = RenewedLock()
        self._recorders: dict[Path, Recorder] = {}

    def find(self, options: TraceOptions) -> Recorder:
        """Return the recorder that writes to a file, made if it is not there."""
        path = Path(options.path).absolute()
        with self._lock():
            if path not in self._recorders:
                if not self._recorders:
                    on_shutdown(self.close)
                self._recorders[path] = Recorder(path, last=options.last, depth=options.depth)
            return self._recorders[path]

    def close(self) -> None:
        """Finish all files; a layer that is asked for later begins its file anew."""
        with self._lock():
            recorders, self._recorders = self._recorders, {}
        for recorder in recorders.values():
            recorder.close()


shared_recorders: Final = SharedRecorders()
recorder_to: Final = shared_recorders.find
