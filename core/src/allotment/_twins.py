"""Modules that exist twice, in Python and compiled from C: which of the two is used here."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

HAS_INTERPRETER_LOCK = bool(getattr(sys, "_is_gil_enabled", lambda: True)())
"""Whether threads take turns. Both twins count on it; without it, `accounting` puts a lock around each call."""


def preferred(twin: ModuleType) -> Any:
    """Return the compiled twin of a module in Python where there is one, else the module itself."""
    if not HAS_INTERPRETER_LOCK:
        return twin  # importing a module that counts on the lock would switch it on for the whole process
    try:
        return import_module(f"{twin.__name__}_native")
    except ImportError:
        return twin
