"""One line of a trace."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from allotment.layers.call_site import Frame


class EventKind(Enum):
    """What happened, as a trace writes it."""

    ALLOCATE = "a"
    FREE = "f"
    HELD = "h"
    """A block that was live when the recording began. It stands for the allocation that was not recorded."""
    OUT_OF_MEMORY = "o"
    """A request that was not met."""

    @property
    def brings_a_block(self) -> bool:
        """Whether a block is live from here on."""
        return self in (EventKind.ALLOCATE, EventKind.HELD)


@dataclass(frozen=True, slots=True)
class TraceSource:
    """Who gave memory.

    Parameters
    ----------
    device, allocator
        The alias of the device and the name of the allocator; empty where a trace does not tell.
    """

    device: str = ""
    allocator: str = ""


@dataclass(frozen=True, slots=True)
class TraceSite:
    """Where in the program it happened.

    Parameters
    ----------
    frames
        The lines of the program that led there, the innermost first.
    library
        The library that asked, through its bridge; ``None`` for the program itself.
    """

    frames: tuple[Frame, ...] = ()
    library: str | None = None


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """An allocation or a free that a program made.

    Parameters
    ----------
    kind
        What happened.
    id
        The number of the allocation; a free has that of the block it frees, a request that was not met has -1.
    size
        The size that was asked for, in bytes.
    stream
        The number of the stream it was made on; 0 is the program's default stream.
    time
        Nanoseconds since the trace began; ``None`` in all further fields means that the trace does not tell.
    source
        Who gave the memory.
    label
        What it is for; labels within labels are joined by slashes.
    site
        Where in the program it happened.
    """

    kind: EventKind
    id: int
    size: int
    stream: int = 0
    time: int | None = None
    source: TraceSource | None = None
    label: str | None = None
    site: TraceSite | None = None
