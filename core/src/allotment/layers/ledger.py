"""Which of the two twins of the ledger is used here: the compiled one where there is one, else Python's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allotment._twins import HAS_INTERPRETER_LOCK, preferred
from allotment.layers import _ledger

if TYPE_CHECKING:
    from allotment.layers._ledger import Ledger, StreamLedger
else:
    Ledger, StreamLedger = preferred(_ledger).Ledger, preferred(_ledger).StreamLedger

IS_COMPILED = Ledger is not _ledger.Ledger
"""Whether the compiled twin is used; `allotment doctor` tells."""

__all__ = ["HAS_INTERPRETER_LOCK", "IS_COMPILED", "Ledger", "StreamLedger"]
