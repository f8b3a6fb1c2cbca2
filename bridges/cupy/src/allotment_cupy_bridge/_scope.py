"""The scoped form: CuPy draws from Allotment in one thread, for the length of a block."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from allotment import Delivery
from allotment_cupy_bridge._library import require_use

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def using_allocator(allocator: Any = None) -> Iterator[None]:
    """Let CuPy draw from Allotment in a ``with`` block, in the running thread, whether or not the bridge is installed.

    Where the bridge is installed, `allotment.ScopedAllocator` does the same for every library, and for tasks.

    Parameters
    ----------
    allocator
        What to draw from: a name or an object with the two methods; the allocator in force at each allocation if not
        given.

    Raises
    ------
    BridgeError
        If CuPy cannot use the memory.
    PluginError
        If there is no such allocator.
    """
    import cupy

    require_use()
    from allotment_cupy_bridge._allocation import Allocation

    delivery = Delivery("cupy", allocator)
    delivery.check()
    with cupy.cuda.using_allocator(Allocation(delivery, cupy.cuda.get_allocator()).malloc):
        yield
