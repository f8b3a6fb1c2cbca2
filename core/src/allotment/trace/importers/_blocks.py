"""Blocks and streams that a log knows by address or handle, and a trace by number."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable


class NumberedBlocks:
    """The live blocks of a log, each with a number that no other gets.

    Attributes
    ----------
    strays : int
        How many frees were of blocks that are not here.
    """

    def __init__(self) -> None:
        self._live: dict[Hashable, tuple[int, int]] = {}
        self._next = 0
        self.strays = 0

    def enter(self, address: Hashable, size: int) -> int:
        """Return the number of a new block.

        Raises
        ------
        ValueError
            If a block is live there.
        """
        if address in self._live:
            where = hex(address) if isinstance(address, int) else address
            raise ValueError(f"a block at {where} is allocated, and one is live there: its free is missing")
        self._live[address] = self._next, size
        self._next += 1
        return self._next - 1

    def leave(self, address: Hashable) -> tuple[int, int] | None:
        """Return the number and the size of a block that is freed; ``None``, and count it, if there is none."""
        block = self._live.pop(address, None)
        self.strays += block is None
        return block

    def size(self, address: Hashable) -> int | None:
        """Return the size of a live block, ``None`` if there is none."""
        block = self._live.get(address)
        return None if block is None else block[1]


class NumberedStreams(dict[int, int]):
    """The numbers of streams by handle: 0 for the default stream, then 1, 2, ...

    Parameters
    ----------
    *default
        The handles of the default stream.
    """

    def __init__(self, *default: int) -> None:
        super().__init__(dict.fromkeys(default, 0))
        self._next = 1

    def __missing__(self, handle: int) -> int:
        self[handle] = number = self._next
        self._next += 1
        return number
