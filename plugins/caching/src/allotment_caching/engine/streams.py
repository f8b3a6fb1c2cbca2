"""The streams that memory is cached for, or that use memory of others."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from allotment import Stream


class Streams:
    """Keeps streams alive as long as they may be asked whether their work is done.

    A stream is forgotten when nothing is cached for it any more, unless it used memory of another one: then it is kept.
    """

    def __init__(self) -> None:
        self._known: dict[int, Stream] = {}
        self._used: set[int] = set()

    def see(self, stream: Stream, *, is_used: bool = False) -> None:
        """Know a stream, for ever if it uses memory of another one."""
        self._known.setdefault(stream.handle, stream)
        if is_used:
            self._used.add(stream.handle)

    def find(self, handle: int) -> Stream | None:
        """Return the stream of a handle."""
        return self._known.get(handle)

    def forget(self, handle: int) -> None:
        """Let a stream go that nothing is cached for any more."""
        if handle not in self._used:
            self._known.pop(handle, None)
