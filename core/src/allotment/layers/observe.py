"""What tells observers of blocks. It is no layer to ask for: it stands before an allocator while somebody observes."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from allotment.errors import ObserverWarning

if TYPE_CHECKING:
    from allotment.layers.accounting import AccountedAllocator
    from allotment.layers.layer import Calls
    from allotment.registry import HookBus
    from allotment.stream import Stream

ALLOCATED: Final = "allotment_after_allocate"
FREED: Final = "allotment_after_deallocate"
OUT_OF_MEMORY: Final = "allotment_on_out_of_memory"

TOLD: Final = "observers"
"""What stands among what was tried once observers were told of a request that cannot be met."""


class Observe:
    """Tells observers of each block that was allocated and that was freed, as the program sees it.

    Parameters
    ----------
    hooks
        Whose observers.
    """

    def __init__(self, hooks: HookBus) -> None:
        self._hooks = hooks

    def wrap(self, calls: Calls, account: AccountedAllocator) -> Calls:
        """Return the calls with what tells of them around."""
        inner, notify, device = calls, self._hooks.notify, account.device

        def allocate(size: int, *stream: Stream) -> int:
            ptr = inner.allocate(size, *stream)
            try:
                notify(ALLOCATED, allocator=account, device=device, ptr=ptr, nbytes=size)
            except BaseException:  # an observer's warning may be an exception, and nobody would own the block
                inner.deallocate(ptr, size, *stream)
                raise
            return ptr

        def deallocate(ptr: int, size: int, *stream: Stream) -> None:
            inner.deallocate(ptr, size, *stream)
            with suppress(ObserverWarning):  # the block is freed, whatever is made of a warning
                notify(FREED, allocator=account, device=device, ptr=ptr, nbytes=size)

        return calls._replace(allocate=allocate, deallocate=deallocate)
