"""The bridge: it gives CuPy the function that draws from Allotment."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from allotment import Availability, BridgeError
from allotment_cupy_bridge._library import allocator_of_process, name_of, require_use

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment import Delivery


@dataclass(frozen=True, slots=True, kw_only=True)
class CupyBridgeOptions:
    """Options of the bridge to CuPy: there are none."""


class CupyBridge:
    """Makes CuPy draw from Allotment in all threads, by ``cupy.cuda.set_allocator``.

    A ``cupy.cuda.using_allocator`` of a thread stays stronger, as it is in CuPy.

    Parameters
    ----------
    options
        None so far.
    """

    name: ClassVar = "cupy"
    Options: ClassVar = CupyBridgeOptions

    def __init__(self, options: CupyBridgeOptions) -> None:
        self.options = options
        self._before: Callable[[int], Any] | None = None
        self._ours: Callable[[int], Any] | None = None

    @classmethod
    def availability(cls) -> Availability:
        """Tell whether CuPy is installed."""
        if find_spec("cupy") is not None:
            return Availability(ok=True)
        return Availability(ok=False, reason="CuPy is not installed: pip install cupy-cuda13x, or cupy-cuda12x")

    def install(self, delivery: Delivery) -> None:
        """Give CuPy our function.

        Raises
        ------
        BridgeError
            If Allotment has no memory that CuPy could use, CuPy is set up for memory of another kind, or the running
            thread is in a ``using_allocator`` block, in which CuPy lets nobody change it.
        """
        require_use()
        from allotment_cupy_bridge._allocation import Allocation

        before = allocator_of_process()
        ours = Allocation(delivery, before).malloc
        _set_allocator(ours)
        self._before, self._ours = before, ours

    def uninstall(self) -> None:
        """Give CuPy the allocator back that it had; one that somebody has set since is left alone.

        Raises
        ------
        BridgeError
            In a ``using_allocator`` block.
        """
        if allocator_of_process() is self._ours:
            _set_allocator(self._before)

    def describe(self) -> str | None:
        """Return what the process's threads draw from in CuPy, if that is not our function."""
        found = allocator_of_process()
        return None if found is self._ours else name_of(found)


def _set_allocator(function: Callable[[int], Any] | None) -> None:
    import cupy

    try:
        cupy.cuda.set_allocator(function)
    except ValueError as error:
        remedy = "Leave the block of cupy.cuda.using_allocator first."
        raise BridgeError(bridge=CupyBridge.name, cause=str(error), remedy=remedy) from error
