"""What a bridge is: it makes a library draw its memory from Allotment."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from allotment.allocator import Availability
    from allotment.bridges._delivery import Delivery


class Bridge(Protocol):
    """What a bridge offers. It is made as ``cls(options)`` when it is installed.

    Notes
    -----
    A bridge imports its library when it is installed, not before. Each block that it hands to the library goes back to
    the allocator that made it, whatever is in force by then, also after the bridge is gone.
    """

    name: ClassVar[str]
    """What a user types: the library's name."""
    Options: ClassVar[type]
    """A frozen, slotted, keyword-only dataclass of what can be said about it, the main option first."""

    @classmethod
    def availability(cls) -> Availability:
        """Return whether the library is there, without importing it. Raises nothing."""
        ...

    def install(self, delivery: Delivery, /) -> None:
        """Make the library draw from the delivery.

        Raises
        ------
        BridgeError
            If the library does not allow it now; nothing was changed.
        """
        ...

    def uninstall(self) -> None:
        """Let the library have the allocator that it had before.

        Raises
        ------
        BridgeError
            If the library does not allow it.
        """
        ...

    def describe(self) -> str | None:
        """Return in words what the library draws from by now; ``None`` if that is the delivery, as installed."""
        ...
