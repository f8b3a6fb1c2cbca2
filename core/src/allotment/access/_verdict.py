"""The answer to whether a device can touch memory."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """Whether a device can touch memory, as far as can be proved."""

    ACCESSIBLE = "accessible"
    """It can."""
    UNKNOWN = "unknown"
    """Nobody could say: the kind of the memory or a grant is not known."""
    INACCESSIBLE = "inaccessible"
    """It cannot: a kernel would fault."""

    @property
    def severity(self) -> int:
        """0 for the best verdict; an object with several arrays has the worst of theirs."""
        return list(Verdict).index(self)


@dataclass(frozen=True, slots=True)
class AccessReport:
    """A verdict, and why.

    Parameters
    ----------
    verdict
        Whether the device can touch the memory.
    rule
        The id of the rule that decided; `allotment access --table` prints all rules.
    reason
        What decided, in a sentence.
    remedy
        What to do where the device cannot, or nobody knows; ``None`` where it can.
    """

    verdict: Verdict
    rule: str
    reason: str
    remedy: str | None = None

    def __bool__(self) -> bool:
        return self.verdict is Verdict.ACCESSIBLE
