"""Which of the two twins of the ledger is used here: the compiled one where there is one, else Python's."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from allotment.layers import _ledger

HAS_INTERPRETER_LOCK = bool(getattr(sys, "_is_gil_enabled", lambda: True)())
"""Whether threads take turns. Both twins count on it; without it, `accounting` puts a lock around each call."""


def _twin() -> Any:
    if not HAS_INTERPRETER_LOCK:
        return _ledger  # importing a module that counts on the lock would switch it on for the whole process
    try:
        return import_module("allotment.layers._ledger_native")
    except ImportError:
        return _ledger


if TYPE_CHECKING:
    from allotment.layers._ledger import Ledger, StreamLedger
else:
    Ledger, StreamLedger = _twin().Ledger, _twin().StreamLedger

IS_COMPILED = Ledger is not _ledger.Ledger
"""Whether the compiled twin is used; `allotment doctor` tells."""

__all__ = ["HAS_INTERPRETER_LOCK", "IS_COMPILED", "Ledger", "StreamLedger"]
