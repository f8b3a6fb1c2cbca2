"""Reading traces of CSV, with the header ``op,id,size,stream``.

``a`` (allocate) or ``f`` (free), the number of the allocation, the size in bytes that was asked for, and the number of
the stream.
"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Final

from allotment.errors import TraceError
from allotment.trace._event import EventKind, TraceEvent
from allotment.units import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HEADER: Final = ("op", "id", "size", "stream")
_KINDS: Final = {kind.value: kind for kind in (EventKind.ALLOCATE, EventKind.FREE)}


def numbered_rows(lines: Iterable[str], origin: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows below the header with the number of their line.

    Raises
    ------
    TraceError
        For another header, and for what is no CSV, after which nothing can be read.
    """
    rows = csv.reader(lines)
    try:
        header = next(rows, [])
        if tuple(header) != HEADER:
            found = ",".join(header) or "nothing"
            raise TraceError(
                origin=origin, line=1, problem=f"expected the header '{','.join(HEADER)}', found {found!r}"
            )
        for line, row in enumerate(rows, start=2):
            if row:  # no empty line
                yield line, row
    except csv.Error as error:
        raise TraceError(origin=origin, line=rows.line_num, problem=f"it is not CSV: {error}") from error


def event_of(row: list[str]) -> TraceEvent:
    """Return the event of a row; raise `ValueError` for a malformed one."""
    if len(row) != len(HEADER):
        raise ValueError(f"expected {len(HEADER)} columns, found {len(row)}")
    kind = _KINDS.get(row[0])
    if kind is None:
        raise ValueError(f"op is {row[0]!r}, and can be 'a' (allocate) or 'f' (free)")
    number, size, stream = (_number(name, text) for name, text in zip(HEADER[1:], row[1:], strict=True))
    return TraceEvent(kind, number, size, stream)


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= MAX_BYTES):
        raise ValueError(f"{name} is {text!r}, and must be a whole number from 0 to 2^63 - 1")
    return int(text)
