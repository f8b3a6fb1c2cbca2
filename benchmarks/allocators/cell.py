"""What became of one contender at one workload."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Outcome(Enum):
    """How it ended."""

    MEASURED = "measured"
    FAILED = "failed"
    """It was begun and did not end well."""
    NOT_THERE = "not there"
    """The contender cannot run here."""
    NOT_BEGUN = "not begun"
    """The time for the suite was over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One contender at one workload, in a process of its own.

    Parameters
    ----------
    contender, workload
        Their names.
    outcome, reason
        How it ended, and why it did not end well.
    pairs
        How many blocks were asked for in the first pass.
    failures
        How many of them there was no memory for.
    cold_ns
        Nanoseconds for an allocation and its free in the first pass.
    warm_ns
        The same in each later pass.
    peak_requested
        The most bytes that the workload had live at once.
    peak_reserved
        The most bytes that the contender held in the first pass, as exactly as it can say.
    reserved_after
        What it held after the last pass, with nothing live.
    """

    contender: str
    workload: str
    outcome: Outcome = Outcome.MEASURED
    reason: str = ""
    pairs: int = 0
    failures: int = 0
    cold_ns: float = 0.0
    warm_ns: tuple[float, ...] = ()
    peak_requested: int | None = None
    peak_reserved: int | None = None
    reserved_after: int | None = None

    @property
    def ns(self) -> float | None:
        """The median of the warm passes; ``None`` if there was none."""
        return median(self.warm_ns) if self.warm_ns else None

    @property
    def spread(self) -> float | None:
        """The slowest warm pass by the fastest; ``None`` if there was none, or one as fast as the bare loop."""
        return max(self.warm_ns) / min(self.warm_ns) if min(self.warm_ns, default=0.0) > 0 else None

    @property
    def reserved_ratio(self) -> float | None:
        """Peak reserved by peak requested; ``None`` where one of them is not known, or not all was served."""
        if not self.peak_requested or self.peak_reserved is None or self.failures:
            return None
        return self.peak_reserved / self.peak_requested


@dataclass(frozen=True, slots=True)
class Results:
    """All cells of a run.

    Parameters
    ----------
    cells
        The cells.
    """

    cells: tuple[Cell, ...]

    def find(self, contender: str, workload: str) -> Cell | None:
        """Return a cell that was measured."""
        return next(
            (
                cell
                for cell in self.cells
                if (cell.contender, cell.workload, cell.outcome) == (contender, workload, Outcome.MEASURED)
            ),
            None,
        )

    def ns(self, contender: str, workload: str) -> float | None:
        """Return the nanoseconds of a cell, if it was measured."""
        cell = self.find(contender, workload)
        return cell.ns if cell else None

    def reserved(self, contender: str, workload: str) -> float | None:
        """Return peak reserved by peak requested of a cell, if both are known."""
        cell = self.find(contender, workload)
        return cell.reserved_ratio if cell else None

    def of(self, outcome: Outcome) -> Iterable[Cell]:
        """Return the cells that ended in a way."""
        return [cell for cell in self.cells if cell.outcome is outcome]
