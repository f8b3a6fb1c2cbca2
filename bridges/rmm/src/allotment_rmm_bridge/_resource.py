"""The resource that RMM gets. RMM is imported with this module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from rmm.mr import CallbackMemoryResource

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment import Delivery

_for_ever: Final[list[Callable[..., Any]]] = []
"""The functions of all resources: RMM's native code keeps their addresses, and may outlive any object of Python's."""


class AllotmentResource(CallbackMemoryResource):  # type: ignore[misc]  # RMM's classes are not typed
    """A resource that draws from Allotment."""

    draws_from_allotment: ClassVar = True
    """For allocators that draw from RMM: they must not draw from this one."""


def resource_of(delivery: Delivery, ordinal: int) -> AllotmentResource:
    """Return a resource that draws from a delivery on a device, whichever is current."""
    # They use nothing of this module, which has lost its names at the very end of the interpreter.

    def allocate(nbytes: int, stream: Any) -> int:
        return delivery.allocate(ordinal, nbytes, stream.__cuda_stream__()[1])

    def deallocate(ptr: int, nbytes: int, stream: Any) -> None:  # noqa: ARG001 - as RMM calls it
        delivery.release(ptr, stream.__cuda_stream__()[1])

    _for_ever.extend((allocate, deallocate))
    return AllotmentResource(allocate, deallocate)
