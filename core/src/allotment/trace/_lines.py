"""Reading traces of JSON lines, as `allotment.layers.trace_file` writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from allotment.layers.call_site import Frame
from allotment.layers.trace_file import FORMAT, FORMAT_VERSION
from allotment.trace._event import EventKind, TraceEvent, TraceSite, TraceSource
from allotment.units import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable


class _Line(msgspec.Struct, gc=False):
    """All that a line can say."""

    op: str | None = None
    id: int | None = None
    t: int | None = None
    size: int | None = None
    source: int | None = None
    stream: int = 0
    label: int | None = None
    site: int | None = None
    define: str | None = None
    frames: tuple[tuple[str, int, str], ...] = ()
    library: str | None = None
    device: str = ""
    allocator: str = ""
    name: str | None = None
    format: str | None = None
    version: int | None = None


_decode: Final = msgspec.json.Decoder(_Line).decode
_KINDS: Final = {kind.value: kind for kind in EventKind}


def recognises(head: bytes) -> bool:
    """Return whether a file that begins like this is such a trace."""
    line = head.lstrip(b"\xef\xbb\xbf").partition(b"\n")[0]
    return line.startswith(b"{") and f'"{FORMAT}"'.encode() in line


class LineReader:
    """Makes events of lines, one after the other."""

    def __init__(self) -> None:
        self._defined: dict[int, Any] = {}
        self._sizes: dict[int, tuple[int, int, TraceSource | None]] = {}

    def read(self, text: str) -> TraceEvent | None:
        """Return the event of a line; ``None`` for a line that is none.

        Raises
        ------
        ValueError
            If the line is malformed, with the reason.
        """
        try:
            line = _decode(text)
        except msgspec.DecodeError as error:
            raise ValueError(str(error)) from error
        if line.op is not None:
            return self._event(line)
        if line.define is not None:
            self._define(line)
        elif line.format is not None:
            _check_format(line)
        else:
            raise ValueError("it is neither an event (op) nor a definition (define)")
        return None

    def _event(self, line: _Line) -> TraceEvent:
        kind = _KINDS.get(line.op or "")
        if kind is None:
            raise ValueError(f"op is {line.op!r}, and can be {', '.join(map(repr, _KINDS))}")
        number = -1 if kind is EventKind.OUT_OF_MEMORY else _whole("id", line.id)
        site = self._find("site", line.site)
        if kind is EventKind.FREE:
            # A free says only what it frees; one of a block that is unknown is the ledger's to refuse.
            size, stream, source = self._sizes.pop(number, (0, 0, None))
            return TraceEvent(kind, number, size, stream, line.t, source, None, site)
        size, source = _whole("size", line.size), self._find("source", line.source)
        if kind.brings_a_block:
            self._sizes.setdefault(number, (size, line.stream, source))
        return TraceEvent(kind, number, size, line.stream, line.t, source, self._find("label", line.label), site)

    def _define(self, line: _Line) -> None:
        make = _DEFINED.get(line.define or "")
        if make is None:
            raise ValueError(f"define is {line.define!r}, and can be {', '.join(map(repr, _DEFINED))}")
        self._defined[_whole("id", line.id)] = make(line)

    def _find(self, kind: str, number: int | None) -> Any:
        if number is None:
            return None
        if number not in self._defined:
            raise ValueError(f"{kind} {number} is not defined before")
        return self._defined[number]


_DEFINED: Final[dict[str, Callable[[_Line], Any]]] = {
    "site": lambda line: TraceSite(tuple(Frame(*frame) for frame in line.frames), line.library),
    "source": lambda line: TraceSource(line.device, line.allocator),
    "label": lambda line: line.name,
}


def _whole(name: str, number: int | None) -> int:
    if number is None or not 0 <= number <= MAX_BYTES:
        raise ValueError(f"{name} is {number!r}, and must be a whole number from 0 to 2^63 - 1")
    return number


def _check_format(line: _Line) -> None:
    if line.format != FORMAT:
        raise ValueError(f"its format is {line.format!r}, not {FORMAT!r}")
    if line.version != FORMAT_VERSION:
        raise ValueError(
            f"it has version {line.version!r} of the format, and this release reads version {FORMAT_VERSION}"
        )
