"""An allocator that is compared: what it is called, how it is opened, and what it can take part in."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchmarks.allocators.session import Session


class Side(Enum):
    """Whose allocator it is."""

    OURS = "Allotment"
    PEER = "peer"
    FLOOR = "floor"
    """Nobody's: what the loop around every allocator costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Contenders that are opened by children of one process, which has imported their libraries for them.

    Parameters
    ----------
    name
        What the process is called.
    libraries
        What it imports, as far as it is installed.
    environment
        Variables that are set before.
    """

    name: str
    libraries: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """An allocator.

    Parameters
    ----------
    name
        What it is called on the page.
    open
        Opens it in this process, given the most bytes that it may hold or ``None``; raises
        `benchmarks.allocators.session.MissingError` with the reason where it cannot.
    family
        The process that its own are children of.
    side
        Whose it is.
    groups
        The groups of workloads that it takes part in; all of them if empty.
    takes_limit
        It can be held to an amount of memory.
    """

    name: str
    open: Callable[[int | None], Session]
    family: Family
    side: Side = Side.PEER
    groups: frozenset[str] = frozenset()
    takes_limit: bool = False

    def takes_part(self, group: str) -> bool:
        """Return whether it is compared in a group of workloads."""
        return (not self.groups or group in self.groups) and (self.takes_limit or group != "pressure")
