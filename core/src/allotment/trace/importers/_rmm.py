"""Logs of RMM, the RAPIDS Memory Manager, as its logging resource adaptor writes them.

A log is CSV with the columns Thread, Time, Action, Pointer, Size and Stream. The time is that of the day; the action is
``allocate``, ``free`` or ``allocate failure``. Which resource is logged is not said; the device is, in the name of the
file (``log.dev0.csv``).
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from allotment.trace._event import EventKind, TraceEvent, TraceSource
from allotment.trace.importers._blocks import NumberedBlocks, NumberedStreams
from allotment.trace.importers._log import parsed, report_strays, whole_number

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from allotment.trace._file import OnProblem

_HEADER: Final = "thread,time,action,pointer,size,stream"
_COLUMNS: Final = _HEADER.count(",") + 1
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_DEVICE: Final = re.compile(r"\.dev(\d+)(?=\.|$)", re.ASCII)
"""What RMM adds to the name of a file: the ordinal of the device that it logs."""
_LEGACY_STREAM: Final = 1
"""Another handle of CUDA's default stream, ``cudaStreamLegacy``."""


def recognises(head: bytes) -> bool:
    """Return whether a file that begins so is a log of RMM."""
    return head.removeprefix(_BYTE_ORDER_MARK).lower().startswith(_HEADER.encode())


def events(file: BinaryIO, origin: str, on_problem: OnProblem) -> Iterator[TraceEvent]:
    """Yield the events of a log; tell of what cannot be read and go on."""
    log = _Log(_source(origin))
    yield from parsed(file, origin, on_problem, log.parse)
    report_strays(log.blocks.strays, origin, on_problem)


def _source(origin: str) -> TraceSource:
    found = _DEVICE.search(PurePath(origin).name)
    return TraceSource(f"cuda:{found[1]}" if found else "", "RMM resource")


class _Log:
    """What the lines so far have told."""

    def __init__(self, source: TraceSource) -> None:
        self._source = source
        self.blocks = NumberedBlocks()
        self._streams = NumberedStreams(0, _LEGACY_STREAM)
        self._clock = _Clock()

    def parse(self, line: str) -> tuple[TraceEvent, ...]:
        if line.lower() == _HEADER:
            return ()
        row = [cell.strip() for cell in line.split(",")]
        if len(row) != _COLUMNS:
            raise ValueError(f"expected {_COLUMNS} columns, found {len(row)}")
        _, clock, action, pointer, size, stream = row
        nbytes, number = whole_number("size", size), self._streams[whole_number("stream", stream)]
        time = self._clock.read(clock)
        match action:
            case "allocate":
                block = self.blocks.enter(whole_number("pointer", pointer), nbytes)
                return (TraceEvent(EventKind.ALLOCATE, block, nbytes, number, time, self._source),)
            case "allocate failure":
                return (TraceEvent(EventKind.OUT_OF_MEMORY, -1, nbytes, number, time, self._source),)
            case "free":
                return self._free(whole_number("pointer", pointer), number, time)
        raise ValueError(f"the action is {action!r}, and can be 'allocate', 'free' or 'allocate failure'")

    def _free(self, pointer: int, stream: int, time: int) -> tuple[TraceEvent, ...]:
        block = self.blocks.leave(pointer)
        return () if block is None else (TraceEvent(EventKind.FREE, *block, stream, time, self._source),)


_SECOND: Final = 10**9
_DAY: Final = 24 * 3600 * _SECOND
_TIME_OF_DAY: Final = re.compile(r"(\d{1,2}):(\d{2}):(\d{2})[.:](\d{1,9})", re.ASCII)
_SECONDS: Final = re.compile(r"(\d{1,12})(?:\.(\d{1,9}))?", re.ASCII)


class _Clock:
    """Times of the day as nanoseconds since the first of them, over midnight too; never backwards."""

    def __init__(self) -> None:
        self._first: int | None = None
        self._latest = 0

    def read(self, text: str) -> int:
        moment = _nanoseconds(text)
        if self._first is None:
            self._first = moment
        elapsed = moment - self._first
        while elapsed < self._latest - _DAY // 2:
            elapsed += _DAY
        self._latest = max(self._latest, elapsed)
        return self._latest


def _nanoseconds(text: str) -> int:
    if found := _TIME_OF_DAY.fullmatch(text):
        hours, minutes, seconds = (int(part) for part in found.groups()[:3])
        return ((hours * 60 + minutes) * 60 + seconds) * _SECOND + _fraction(found[4])
    if found := _SECONDS.fullmatch(text):
        return int(found[1]) * _SECOND + _fraction(found[2] or "")
    raise ValueError(f"the time is {text!r}, and must be one as 15:47:02.841961")


def _fraction(digits: str) -> int:
    return int(digits.ljust(9, "0"))
