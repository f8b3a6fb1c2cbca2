"""A block of addresses, and the memory behind it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from allotment_caching.engine.heap import Heap

ALIGNMENT = 512
"""What every block starts at a multiple of, and is a multiple of in size."""


class State(Enum):
    """What a block of addresses is."""

    USED = "used"
    """Handed out, or about to be."""
    RECENT = "recent"
    """Free, as it was freed, for the next request of its size; its neighbours do not know of it yet."""
    FREE = "free"
    """Free and joined with its neighbours; it stands in the heap's index."""
    PENDING = "pending"
    """Freed, but other streams may still work on it."""
    HOLE = "hole"
    """Addresses with nothing behind them."""
    STALE = "stale"
    """Addresses whose memory serves elsewhere; work in flight may still use them."""


@dataclass(slots=True, eq=False)
class Block:
    """A range of addresses of a heap, between its neighbours.

    Parameters
    ----------
    start, nbytes
        The range.
    state
        What it is.
    heap
        Whose it is.
    before, after
        Its neighbours in the order of addresses.
    size
        The bytes that were asked for, while it is handed out.
    is_booked
        Whether the accounts hold it.
    users
        Other streams that work on it.
    serial
        The count of frees of its heap when it became free: work queued before may still use it.
    """

    start: int
    nbytes: int
    state: State
    heap: Heap
    before: Block | None = None
    after: Block | None = None
    size: int = 0
    is_booked: bool = False
    users: tuple[int, ...] = ()
    serial: int = 0

    @property
    def stream(self) -> int:
        """The handle of the stream that it belongs to."""
        return self.heap.stream

    @property
    def end(self) -> int:
        """The first address past it."""
        return self.start + self.nbytes


def round_up(nbytes: int, multiple: int) -> int:
    """Return the least multiple that is no less than ``nbytes``."""
    return -(-nbytes // multiple) * multiple
