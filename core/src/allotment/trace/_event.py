"""One line of a trace."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class EventKind(Enum):
    """What happened, as a trace writes it."""

    ALLOCATE = "a"
    FREE = "f"


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """An allocation or a free that a program made.

    Parameters
    ----------
    kind
        Which of the two.
    id
        The number of the allocation; a free has that of the block it frees.
    size
        The size that was asked for, in bytes.
    stream
        The number of the stream it was made on; 0 is the program's default stream.
    """

    kind: EventKind
    id: int
    size: int
    stream: int = 0
