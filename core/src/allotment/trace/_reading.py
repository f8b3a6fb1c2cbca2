"""Reading traces from files.

A trace is CSV, plain or compressed by gzip, with the header ``op,id,size,stream``: ``a`` (allocate) or ``f`` (free),
the number of the allocation, the size in bytes that was asked for, and the number of the stream.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from allotment.errors import TraceError
from allotment.trace._event import EventKind, TraceEvent
from allotment.trace._ledger import TraceLedger
from allotment.units import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

HEADER: Final = ("op", "id", "size", "stream")
_GZIP_MAGIC: Final = b"\x1f\x8b"
_KINDS: Final = {kind.value: kind for kind in EventKind}


def shipped_trace() -> Traversable:
    """Return the trace that comes with Allotment: a ResNet-50 training recorded from PyTorch on an NVIDIA H200."""
    return files("allotment.trace") / "data" / "resnet50_train.csv.gz"


def read(path: str | Path | Traversable) -> Iterator[TraceEvent]:
    """Yield the events of a trace in order, reading the file as they are taken.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    TraceError
        If the file cannot be read, or a line is malformed or cannot follow those before; with file and line.
    """
    source = Path(path) if isinstance(path, str) else path
    with _opened(source) as lines:
        rows = csv.reader(lines)
        try:
            yield from _events(rows, str(source))
        except (OSError, EOFError, zlib.error) as error:
            raise TraceError(origin=str(source), problem=f"it cannot be read: {_reason(error)}") from error
        except UnicodeDecodeError as error:
            raise TraceError(origin=str(source), problem=f"it is not UTF-8: {error.reason}") from error
        except csv.Error as error:
            raise TraceError(origin=str(source), line=rows.line_num, problem=f"it is not CSV: {error}") from error


@contextmanager
def _opened(source: Path | Traversable) -> Iterator[io.TextIOWrapper]:
    try:
        binary = cast("BinaryIO", source.open("rb"))
    except OSError as error:
        raise TraceError(origin=str(source), problem=f"it cannot be read: {_reason(error)}") from error
    with binary, io.BufferedReader(cast("io.RawIOBase", binary)) as content:
        compressed = content.peek(2).startswith(_GZIP_MAGIC)
        plain = cast("BinaryIO", gzip.GzipFile(fileobj=content) if compressed else content)
        with io.TextIOWrapper(plain, "utf-8-sig", newline="") as lines:
            yield lines


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _events(rows: Iterator[list[str]], origin: str) -> Iterator[TraceEvent]:
    header = next(rows, [])
    if tuple(header) != HEADER:
        found = ",".join(header) or "nothing"
        raise TraceError(origin=origin, line=1, problem=f"expected the header '{','.join(HEADER)}', found {found!r}")
    ledger = TraceLedger()
    for line, row in enumerate(rows, start=2):
        if not row:
            continue  # an empty line
        try:
            event = _event(row)
            ledger.enter(event)
        except ValueError as error:
            raise TraceError(origin=origin, line=line, problem=str(error)) from error
        yield event


def _event(row: list[str]) -> TraceEvent:
    if len(row) != len(HEADER):
        raise ValueError(f"expected {len(HEADER)} columns, found {len(row)}")
    kind = _KINDS.get(row[0])
    if kind is None:
        raise ValueError(f"op is {row[0]!r}, and can be 'a' (allocate) or 'f' (free)")
    return TraceEvent(kind, *(_number(name, text) for name, text in zip(HEADER[1:], row[1:], strict=True)))


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= MAX_BYTES):
        raise ValueError(f"{name} is {text!r}, and must be a whole number from 0 to 2^63 - 1")
    return int(text)
