"""Reading traces from files, whatever format they have."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol, TypeVar

from allotment.errors import TraceError
from allotment.trace import _lines, _table
from allotment.trace._file import UNREADABLE, opened, reason_of, refuse
from allotment.trace._ledger import TraceLedger
from allotment.trace.importers import IMPORTERS

if TYPE_CHECKING:
    import io
    from collections.abc import Callable, Iterable, Iterator
    from importlib.resources.abc import Traversable

    from allotment.trace._event import TraceEvent
    from allotment.trace._file import OnProblem

T = TypeVar("T")

_HEAD_BYTES: Final = 4096
"""How much of a file is looked at to tell its format."""


class TraceFormat(Protocol):
    """A module that reads one format."""

    def recognises(self, head: bytes, /) -> bool:
        """Return whether a file that begins like this has the format."""
        ...

    def events(self, file: BinaryIO, origin: str, on_problem: OnProblem, /) -> Iterator[TraceEvent]:
        """Yield the events; tell of what cannot be read and go on."""
        ...


def shipped_trace() -> Traversable:
    """Return the trace that comes with Allotment: a ResNet-50 training recorded from PyTorch on an NVIDIA H200."""
    return files("allotment.trace") / "data" / "resnet50_train.csv.gz"


def read(path: str | Path | Traversable, on_problem: OnProblem | None = None) -> Iterator[TraceEvent]:
    """Yield the events of a trace in order, reading the file as they are taken.

    Parameters
    ----------
    path
        The file, plain or compressed by gzip; the format is told by the content.
    on_problem
        Called with a `TraceError` for each line that is malformed or cannot follow those before, which is then left
        out, and for a file that ends too early. The first such error is raised if not given.

    Raises
    ------
    TraceError
        If the file cannot be read, or is no trace; with file and line.
    """
    source = Path(path) if isinstance(path, str) else path
    origin, tell = str(source), on_problem or refuse
    with opened(source) as file:
        try:
            yield from _format_of(file).events(file, origin, tell)
        except UNREADABLE as error:
            tell(TraceError(origin=origin, problem=f"it cannot be read: {reason_of(error)}"))
        except UnicodeDecodeError as error:
            raise TraceError(origin=origin, problem=f"it is not UTF-8: {error.reason}") from error


def _format_of(file: io.BufferedReader[Any]) -> TraceFormat:
    head = file.peek(_HEAD_BYTES)[:_HEAD_BYTES]
    formats: tuple[TraceFormat, ...] = (JsonLines(), *IMPORTERS, Table())
    return next(each for each in formats if each.recognises(head))


class JsonLines:
    """What `allotment.record` writes."""

    def recognises(self, head: bytes) -> bool:
        """Return whether the first line is the header."""
        return _lines.recognises(head)

    def events(self, file: BinaryIO, origin: str, on_problem: OnProblem) -> Iterator[TraceEvent]:
        """Yield the events."""
        lines = enumerate(_text(file), start=1)
        return checked_events(lines, _lines.LineReader().read, origin, on_problem)


class Table:
    """CSV, and whatever nobody else recognises, so that the error says what is expected."""

    def recognises(self, head: bytes) -> bool:  # noqa: ARG002 - see above
        """Return that it may be tried."""
        return True

    def events(self, file: BinaryIO, origin: str, on_problem: OnProblem) -> Iterator[TraceEvent]:
        """Yield the events."""
        return checked_events(_table.numbered_rows(_text(file), origin), _table.event_of, origin, on_problem)


def checked_events(
    items: Iterable[tuple[int, T]],
    event_of: Callable[[T], TraceEvent | None],
    origin: str,
    on_problem: OnProblem,
) -> Iterator[TraceEvent]:
    """Yield the events of numbered lines that are well formed and can follow those before.

    Parameters
    ----------
    items
        The number of each line, and what stands there.
    event_of
        Returns the event, ``None`` for a line that is none; raises `ValueError` for a malformed one.
    origin, on_problem
        The file, and what is told of each line that is left out.
    """
    ledger = TraceLedger()
    for line, item in items:
        try:
            event = event_of(item)
            if event is None:
                continue
            ledger.enter(event)
        except ValueError as error:
            on_problem(TraceError(origin=origin, line=line, problem=str(error)))
        else:
            yield event


def _text(file: BinaryIO) -> Iterator[str]:
    for number, line in enumerate(file):
        yield line.decode("utf-8" if number else "utf-8-sig")
