"""A trace's file as bytes, plain or compressed, and what is told of its faults."""

from __future__ import annotations

import io
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeAlias, cast

from allotment.errors import TraceError
from allotment.layers.trace_file import GZIP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from importlib.resources.abc import Traversable
    from pathlib import Path

    OnProblem: TypeAlias = Callable[[TraceError], object]

_GZIP_MAGIC: Final = b"\x1f\x8b"

UNREADABLE: Final = (OSError, EOFError, zlib.error)
"""What reading a damaged file raises."""


@contextmanager
def opened(source: Path | Traversable) -> Iterator[io.BufferedReader[Any]]:
    """Open a file, decompressed where its content is; the name does not matter.

    Raises
    ------
    TraceError
        If it cannot be opened.
    """
    try:
        binary = cast("BinaryIO", source.open("rb"))
    except OSError as error:
        raise TraceError(origin=str(source), problem=f"it cannot be read: {reason_of(error)}") from error
    with binary, io.BufferedReader(cast("io.RawIOBase", binary)) as content:
        if content.peek(2).startswith(_GZIP_MAGIC):
            with io.BufferedReader(cast("io.RawIOBase", _Decompressed(content))) as plain:
                yield plain
        else:
            yield content


def reason_of(error: BaseException) -> str:
    """Return why a file cannot be read."""
    return getattr(error, "strerror", None) or str(error)


def refuse(error: TraceError) -> None:
    """Raise the first problem, where nobody wants to hear of it and read on."""
    raise error


class _Decompressed(io.RawIOBase):
    """The content of a gzip file, all that is there of it: a file that was cut off fails at its end, not before."""

    def __init__(self, compressed: io.BufferedReader[Any]) -> None:
        self._compressed = compressed
        self._inflate = zlib.decompressobj(GZIP)
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        while not self._left:
            if self._is_at_end():
                return 0
            self._left = memoryview(self._next_piece())
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count

    def _is_at_end(self) -> bool:
        return self._inflate.eof and not self._rest() and not self._compressed.peek(1)

    def _rest(self) -> bytes:
        """Return what follows the end of a compressed file, but for zeros that it is filled up with."""
        return self._inflate.unused_data.lstrip(b"\0")

    def _next_piece(self) -> bytes:
        if self._inflate.eof:
            piece = self._rest() or self._compressed.read1()
            self._inflate = zlib.decompressobj(GZIP)  # another one follows it in the same file
        else:
            piece = self._compressed.read1()
            if not piece:
                raise EOFError("it ends in the middle, as a file does that was cut off")
        return self._inflate.decompress(piece)
