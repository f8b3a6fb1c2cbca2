"""Pickles of plain data, from files that nobody vouches for."""

from __future__ import annotations

import io
import pickle
from typing import Any, NoReturn

from allotment.errors import TraceError


def load_plain(content: bytes, origin: str) -> Any:
    """Return what a pickle holds: numbers, text, lists, tuples and dictionaries. No class is looked up or called.

    Raises
    ------
    TraceError
        If it holds anything else, or is damaged.
    """
    try:
        return _PlainUnpickler(io.BytesIO(content)).load()
    except _UNREADABLE as error:
        reason = "it ends too early" if isinstance(error, EOFError) else str(error) or type(error).__name__
        raise TraceError(origin=origin, problem=f"it is no pickle of plain data: {reason}") from error


class _PlainUnpickler(pickle.Unpickler):
    """Refuses every class and every reference to something outside."""

    def find_class(self, module: str, name: str, /) -> NoReturn:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not loaded from a trace")

    def persistent_load(self, pid: object, /) -> NoReturn:
        raise pickle.UnpicklingError(f"it refers to {pid!r}, which is not in it")


_UNREADABLE = (
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    OverflowError,
    MemoryError,
    RecursionError,
)
"""What the unpickler raises for a pickle that is damaged, or made to do harm."""
