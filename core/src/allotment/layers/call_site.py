"""Where in the program something was called."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from types import CodeType
    from typing import TypeAlias

    RawSite: TypeAlias = tuple[tuple[CodeType, int], ...]
    """The frames as they are kept, each with its instruction: no line is looked up until somebody asks."""


class Frame(NamedTuple):
    """A line of the program that was being run."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


@dataclass(frozen=True, slots=True)
class CallSite:
    """The lines that led to a call, without those of Allotment and its plugins.

    Parameters
    ----------
    frames
        The frames, the innermost first.
    library
        The library that asked, through its bridge; ``None`` for the program itself.
    """

    frames: tuple[Frame, ...] = ()
    library: str | None = None

    def __str__(self) -> str:
        return " < ".join(map(str, self.frames)) or "an unknown place"

    @property
    def innermost(self) -> str:
        """The line that made the call, as text."""
        return str(self.frames[0]) if self.frames else str(self)


def capture_site(depth: int) -> RawSite:
    """Return where the program is now, in at most ``depth`` frames."""
    frame: Any = sys._getframe(1)  # the cheap way, which `inspect` takes too
    found: list[tuple[CodeType, int]] = []
    while frame is not None and len(found) < depth:
        name = frame.f_globals.get("__name__")
        if name == "runpy":  # outside of it is what started the program
            break
        if type(name) is not str or name[:9] != "allotment" or _is_of_interest(name):
            found.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(found)


def _is_of_interest(module: str) -> bool:
    """Return whether a module is a bridge, which tells the library, or the program's and only called as ours are."""
    return module[9:10] not in ("", ".", "_") or _BRIDGE.match(module) is not None


_BRIDGE: Final = re.compile(r"allotment_(\w+)_bridge\b")
"""The packages of bridges, which are called as the library is."""


def read_site(raw: RawSite) -> CallSite:
    """Return a call site to look at."""
    libraries = [_bridge_of(code) for code, _ in raw]
    frames = (_read_frame(*each) for each, library in zip(raw, libraries, strict=True) if library is None)
    return CallSite(tuple(frames), next(filter(None, libraries), None))


def _read_frame(code: CodeType, instruction: int) -> Frame:
    lines = (line for start, end, line in code.co_lines() if start <= instruction < end)
    return Frame(code.co_filename, next(lines, None) or 0, code.co_qualname)


def _bridge_of(code: CodeType) -> str | None:
    """Return the library whose bridge the code is of."""
    found = _BRIDGE.search(code.co_filename)
    return found and found[1]
