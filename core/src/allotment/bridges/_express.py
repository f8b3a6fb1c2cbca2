"""Calls that go straight to an allocator, in Python: the twin of ``_express_native.c``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import ContextVar

    from allotment.device import Device
    from allotment.layers.accounting import AccountedAllocator

    Lane: TypeAlias = tuple[Device, AccountedAllocator, Callable[..., Any], tuple[Any, ...], Callable[[Any, int], Any]]
    """A device and an allocator for it; what makes a block, what that is given after the size, and what wraps it."""


def express(
    lanes: list[Lane | None],
    scopes: ContextVar[tuple[Any, ...]] | None,
    current_device: Callable[[], int],
    device_function: int,  # noqa: ARG001 - the compiled twin calls it, which costs less
    otherwise: Callable[[int], Any],
) -> Callable[[int], Any]:
    """Return a function that allocates by the lane of the current device, or by ``otherwise`` where it is not open.

    Parameters
    ----------
    lanes
        By the device's number. A lane is open while its allocator's calls are its own, with nothing in between, and it
        is the one in force. What it makes, ``make(size, *given)``, has the address as ``ptr``, and 0 is none; what is
        returned is ``wrap(made, 0)``.
    scopes
        The context variable of the scopes of allocators; ``None`` for a library that always draws from the same ones.
    current_device
        Returns the number of the device that is current.
    device_function
        The address of ``int (int)``, which does the same and ignores what it is given; 0 if there is none.
    otherwise
        What allocates in the general way.
    """

    def allocate(size: int) -> Any:
        ordinal = current_device()
        lane = lanes[ordinal] if ordinal < len(lanes) else None
        if lane is not None:
            device, account, make, given, wrap = lane
            if account.is_direct and (scopes is None or (not scopes.get() and device.supply is account)):
                made = make(size, *given)
                if made.ptr:
                    return wrap(made, 0)
        return otherwise(size)

    return allocate
