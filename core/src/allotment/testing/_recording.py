"""An allocator that notes how it is called."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_DECLARED: Final = ("memory_kind", "deallocate_requires_context_guard", "pool_handle")
METHODS: Final = (
    "allocate",
    "deallocate",
    "allocate_on",
    "deallocate_on",
    "trim",
    "reservation",
    "reset_peak_reservation",
    "record_use",
    "set_peer_access",
    "close",
)
"""The methods of an allocator that may call the driver."""


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call of an allocator's method.

    Parameters
    ----------
    name
        The method.
    arguments
        What it was called with.
    keywords
        What was given by name.
    """

    name: str
    arguments: tuple[Any, ...]
    keywords: dict[str, Any] = field(default_factory=dict)


class RecordingAllocator:
    """Stands before an allocator, offers what it offers, and notes each call.

    Parameters
    ----------
    allocator
        What answers the calls.

    Attributes
    ----------
    calls : list of RecordedCall
        The calls so far.
    """

    allocate: Callable[[int], int]
    deallocate: Callable[[int, int], None]

    def __init__(self, allocator: object) -> None:
        self.calls: list[RecordedCall] = []
        traits = getattr(allocator, "traits", None)
        if traits is not None:  # core must call this object, and not what stands behind it
            self.traits = replace(traits, straight_from_pool=False)
        # Set one by one, because the protocols of optional abilities do not see what __getattr__ would find.
        for name in _DECLARED:
            if hasattr(allocator, name):
                setattr(self, name, getattr(allocator, name))
        for name in METHODS:
            if hasattr(allocator, name):
                setattr(self, name, self._recorded(name, getattr(allocator, name)))

    def _recorded(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **keywords: Any) -> Any:
            self.calls.append(RecordedCall(name, args, keywords))
            return method(*args, **keywords)

        return call

    @property
    def allocations(self) -> list[RecordedCall]:
        """The calls that asked for memory."""
        return [call for call in self.calls if call.name in ("allocate", "allocate_on")]

    @property
    def frees(self) -> list[RecordedCall]:
        """The calls that gave memory back."""
        return [call for call in self.calls if call.name in ("deallocate", "deallocate_on")]
