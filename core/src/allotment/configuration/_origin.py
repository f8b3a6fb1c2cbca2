"""Where a value was said, and which of two places wins."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final


class OriginKind(Enum):
    """The kinds of places where a value can be said."""

    SCOPE = "scope"
    CALL = "call"
    ENVIRONMENT = "environment"
    PROJECT_FILE = "project file"
    USER_FILE = "user file"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class PrecedenceLevel:
    """One row of the precedence table.

    Parameters
    ----------
    kind
        The kind of place.
    said_by
        What a user writes there.
    lasts
        When it is read, and until when it holds.
    """

    kind: OriginKind
    said_by: str
    lasts: str


PRECEDENCE: Final = (
    PrecedenceLevel(OriginKind.SCOPE, "with al.ScopedAllocator(device, name):", "until the block is left"),
    PrecedenceLevel(
        OriginKind.CALL,
        "al.configure(...), al.config.key = value, options given to a function, setters such as set_device_allocator",
        "from the call on; None takes it back",
    ),
    PrecedenceLevel(
        OriginKind.ENVIRONMENT,
        "ALLOTMENT_KEY=value; a double underscore nests: ALLOTMENT_ALLOCATORS__NAME__OPTION=value",
        "read once, when the first setting is needed, and on reload",
    ),
    PrecedenceLevel(
        OriginKind.PROJECT_FILE,
        "the nearest allotment.toml, or [tool.allotment] in pyproject.toml, from the working directory upward; "
        "ALLOTMENT_CONFIG=path names another file",
        "read with the environment",
    ),
    PrecedenceLevel(
        OriginKind.USER_FILE,
        "allotment.toml in the user's configuration directory",
        "read with the environment",
    ),
    PrecedenceLevel(OriginKind.DEFAULT, "nothing", "always"),
)
"""The kinds of places, the strongest first. What the documentation prints is what the code sorts by."""

_RANKS: Final = {level.kind: rank for rank, level in enumerate(PRECEDENCE)}


def rank_of(kind: OriginKind) -> int:
    """Return the row of a kind of place in `PRECEDENCE`; the strongest has 0."""
    return _RANKS[kind]


@dataclass(frozen=True, slots=True)
class Origin:
    """The place where a value was said.

    Parameters
    ----------
    kind
        The kind of place.
    place
        The place itself: a file, the name of a variable, a call with its file and line.
    """

    kind: OriginKind
    place: str

    @property
    def rank(self) -> int:
        """The row of `PRECEDENCE`: of two places, the one with the lower rank wins."""
        return rank_of(self.kind)

    def __str__(self) -> str:
        return self.place


DEFAULT_ORIGIN: Final = Origin(OriginKind.DEFAULT, "default")


@dataclass(frozen=True, slots=True)
class Setting:
    """A value and where it was said.

    Parameters
    ----------
    key
        The full key, dotted.
    value
        The value. An option of an allocator is as it was written until the allocator reads it.
    origin
        Where it was said.
    shadowed
        What weaker places said about the same key, the strongest first; the default is not among them.
    """

    key: str
    value: Any
    origin: Origin
    shadowed: tuple[Setting, ...] = ()


def call_origin(call: str) -> Origin:
    """Return the origin of what is said by a call to this library, with the file and line of the caller."""
    frame = sys._getframe(1)
    while _is_ours(frame.f_globals.get("__name__", "")) and frame.f_back is not None:
        frame = frame.f_back
    return Origin(OriginKind.CALL, f"{call} at {frame.f_code.co_filename}:{frame.f_lineno}")


def _is_ours(module: str) -> bool:
    return module == "allotment" or module.startswith("allotment.")
