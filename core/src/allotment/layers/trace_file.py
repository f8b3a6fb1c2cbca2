"""Traces as files of JSON lines: a header, definitions of what repeats, and an event a line.

=========== =========================================================================================================
line        keys
=========== =========================================================================================================
the first   ``format`` ("allotment trace"), ``version`` (1), ``started`` (ISO 8601), ``program`` (its arguments)
definition  ``define`` ("site", "source" or "label"), ``id``, and what it is: ``frames`` (a list of file, line and
            function, the innermost first) and ``library``; ``device`` and ``allocator``; ``name``
event       ``op`` ("a" allocate, "f" free, "h" held since before, "o" out of memory), ``id`` of the block, ``t``
            (nanoseconds since the start), ``size`` (bytes), ``stream`` (a number, 0 is the default one), and the ids
            of its ``source``, ``label`` and ``site``
=========== =========================================================================================================

What does not apply is left out.
"""

from __future__ import annotations

import sys
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.json import Encoder

from allotment._version import version
from allotment.errors import TraceError
from allotment.layers.call_site import read_site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from allotment.layers.call_site import RawSite

FORMAT: Final = "allotment trace"
FORMAT_VERSION: Final = 1

GZIP: Final = 31
"""What tells zlib that the format is gzip's."""


class Row(NamedTuple):
    """An event as it is kept until it is written; ``None`` is left out."""

    op: str
    id: int | None
    t: int
    size: int | None = None
    source: int | None = None
    stream: int | None = None
    label: int | None = None
    site: int | None = None


class Definitions:
    """What repeats in a trace, each under a number."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}
        self._values: list[tuple[str, Any]] = []

    def __len__(self) -> int:
        return len(self._values)

    def source(self, device: str, allocator: str) -> int:
        """Return the number of an allocator on a device."""
        return self._number("source", (device, allocator))

    def label(self, name: str | None) -> int | None:
        """Return the number of a label."""
        return None if name is None else self._number("label", name)

    def site(self, raw: RawSite) -> int | None:
        """Return the number of a call site."""
        return self._number("site", raw) if raw else None

    def _number(self, kind: str, value: Any) -> int:
        number = self._numbers.get((kind, value))
        if number is None:
            number = self._numbers[kind, value] = len(self._values)
            self._values.append((kind, value))
        return number

    def lines(self, first: int = 0) -> Iterator[dict[str, Any]]:
        """Return the lines of all definitions from a number on."""
        for number, (kind, value) in enumerate(self._values[first:], start=first):
            yield {"define": kind, "id": number, **_DEFINED[kind](value)}


def _site_keys(raw: RawSite) -> dict[str, Any]:
    site = read_site(raw)
    keys: dict[str, Any] = {"frames": [tuple(frame) for frame in site.frames]}
    return keys if site.library is None else {**keys, "library": site.library}


_DEFINED: Final[dict[str, Callable[[Any], dict[str, Any]]]] = {
    "site": _site_keys,
    "source": lambda value: {"device": value[0], "allocator": value[1]},
    "label": lambda value: {"name": value},
}


@dataclass(frozen=True, slots=True)
class Start:
    """When a recording began.

    Parameters
    ----------
    time
        The date and time.
    nanoseconds
        The clock of the events at that moment.
    """

    time: datetime
    nanoseconds: int

    def line(self) -> dict[str, Any]:
        """Return the first line of a file."""
        return {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "allotment": version(),
            "started": self.time.isoformat(),
            "program": sys.argv,
        }


class TraceFile:
    """A trace that is being written; gzip if its name ends in ``.gz``.

    What is written is in the file at once, so that it is not lost if the process dies.

    Parameters
    ----------
    path
        Where. A file that is there is overwritten.

    Raises
    ------
    TraceError
        If it cannot be written, here and in the methods.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._encoder = Encoder()
        self._compress = zlib.compressobj(level=1, wbits=GZIP) if path.suffix == ".gz" else None
        try:
            self._file = path.open("wb", buffering=0)  # nothing may be left in a buffer that a forked child writes too
        except OSError as error:
            raise self._failed(error) from error

    def write(self, lines: Iterable[object]) -> None:
        """Write lines."""
        content = self._encoder.encode_lines(list(lines))
        if self._compress is not None:
            content = self._compress.compress(content) + self._compress.flush(zlib.Z_SYNC_FLUSH)
        self._put(content)

    def close(self) -> None:
        """Write the end."""
        try:
            if self._compress is not None:
                self._put(self._compress.flush())
        finally:
            self._file.close()

    def abandon(self) -> None:
        """Write no more, as a child that must leave its parent's file alone."""
        self._file.close()

    def _put(self, content: bytes) -> None:
        left = memoryview(content)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> TraceError:
        return TraceError(origin=str(self.path), problem=f"it cannot be written: {error.strerror or error}")


def lines_of(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """Return the lines of events."""
    for row in rows:
        yield {key: value for key, value in zip(Row._fields, row, strict=True) if value is not None}


def now() -> datetime:
    """Return the date and time, in the zone of the whole world."""
    return datetime.now(UTC).replace(microsecond=0)
