"""Memory of another owner, and what is said when memory cannot be given back."""

from __future__ import annotations

import sys
import warnings
from types import SimpleNamespace
from typing import TYPE_CHECKING

from allotment import _process
from allotment.errors import FreeFailedWarning

if TYPE_CHECKING:
    from collections.abc import Callable


class ForeignMemory:
    """Memory of another owner: what keeps it alive, and what to call when it is not needed any more.

    Parameters
    ----------
    ptr, nbytes
        Its address and size.
    owner
        An object to keep alive.
    deleter
        Called with ``(ptr, nbytes)`` once, when the last array over the memory is gone.
    """

    __slots__ = ("deleter", "nbytes", "owner", "ptr")

    def __init__(
        self, ptr: int, nbytes: int, owner: object = None, deleter: Callable[[int, int], None] | None = None
    ) -> None:
        self.ptr, self.nbytes, self.owner, self.deleter = ptr, nbytes, owner, deleter

    def __del__(self, is_running: Callable[[], bool] = _process.is_running) -> None:
        if self.deleter is not None and is_running():
            try:
                self.deleter(self.ptr, self.nbytes)
            except BaseException as error:  # noqa: BLE001 - nothing leaves a finaliser
                report_lost_block(self.ptr, self.nbytes, "its owner", error)


def report_lost_block(ptr: int, nbytes: int, owner: str, error: BaseException, stacklevel: int = 3) -> None:
    """Tell the user of a free that failed in a finaliser; an allocator keeps the block on its books."""
    if _process.is_running():
        warnings.warn(
            f"{nbytes:,} bytes at {ptr:#x} could not be given back to {owner} and are lost: "
            f"{type(error).__name__}: {error}",
            FreeFailedWarning,
            stacklevel=stacklevel,
            source=None,
        )


def report_unraisable(error: BaseException, about: object) -> None:
    """Say of an exception that it had nowhere to go."""
    facts = SimpleNamespace(
        exc_type=type(error), exc_value=error, exc_traceback=error.__traceback__, err_msg=None, object=about
    )
    sys.unraisablehook(facts)
