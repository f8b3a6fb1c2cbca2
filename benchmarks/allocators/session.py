"""An allocator that is open in this process, and whether an error means that memory ran out."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Session(Protocol):
    """An allocator in use. A process has one, and gives everything back by ending."""

    @property
    def allocate(self) -> Callable[[int], Any]:
        """The thinnest call that its interface has for a block of a size, on the stream in use."""
        ...

    @property
    def free(self) -> Callable[[Any, int], object]:
        """The thinnest call that takes back a block of a size; where dropping it is enough, one that does nothing."""
        ...

    def use(self, stream: int) -> None:
        """Make later calls go to a stream: 0 is the null stream, the others are made when they are first used."""
        ...

    def pair(self, size: int) -> Callable[[], object]:
        """Return a call that allocates and frees once, as a program would write it."""
        ...

    def reserved(self) -> int | None:
        """Return the bytes that it holds of the device; ``None`` if it cannot say."""
        ...

    def peak_reserved(self) -> int | None:
        """Return the most bytes that it held since it was opened; ``None`` if it cannot say."""
        ...


class MissingError(Exception):
    """A contender cannot run here; the text says why."""


def library(name: str) -> Any:
    """Import what a contender needs.

    Raises
    ------
    MissingError
        If it cannot be imported.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingError(str(error)) from error


def is_out_of_memory(error: Exception) -> bool:
    """Tell whether a library means by an error that memory ran out; many have no class of its own for it."""
    return isinstance(error, MemoryError) or "outofmemory" in str(error).lower().replace("_", "").replace(" ", "")


class Streams:
    """The streams of a session by number, each made when it is first asked for."""

    def __init__(self, null: Any, make: Callable[[], Any]) -> None:
        self._made, self._make = {0: null}, make

    def __getitem__(self, number: int) -> Any:
        if number not in self._made:
            self._made[number] = self._make()
        return self._made[number]
