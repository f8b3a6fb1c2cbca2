"""A code block of a guide, and what it needs."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ALLOCATORS = "Allocators"
ACCESS = "Memory Allocation and Access"
BOTH = (ALLOCATORS, ACCESS)


@dataclass(frozen=True, kw_only=True)
class Block:
    """A code block.

    Parameters
    ----------
    section
        The section of the guide that it stands in.
    number
        Its place there, where there are several.
    guides
        The guides that have it.
    code
        What it says. Programs' output is a block too.
    before
        Code that makes what the block takes for granted beyond the common names.
    check
        Called with the names after the block has run.
    devices
        How many CUDA devices it needs.
    profiles
        The simulated machines that it is run on.
    later
        Why it is not run yet; empty if it is.
    """

    section: str
    code: str
    number: int = 1
    guides: tuple[str, ...] = BOTH
    before: str = ""
    check: Callable[[dict[str, Any]], object] = lambda names: None
    devices: int = 1
    profiles: tuple[str, ...] = ("2xh200",)
    later: str = ""

    def __post_init__(self) -> None:
        for name in ("code", "before"):
            object.__setattr__(self, name, dedent(getattr(self, name)).strip() + "\n")

    @property
    def name(self) -> str:
        return f"{self.section}-{self.number}"
