"""Measuring one contender at one workload, in this process."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING

from benchmarks.allocators.catalogue import find
from benchmarks.allocators.cell import Cell, Outcome
from benchmarks.allocators.session import MissingError

if TYPE_CHECKING:
    from benchmarks.allocators.contenders import Contender
    from benchmarks.allocators.session import Session
    from benchmarks.allocators.workload import Pass, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long a trial may take.

    Parameters
    ----------
    warm_passes
        At most so many passes after the first.
    seconds
        After this time no further pass is begun, once there is a warm one.
    timeout
        After this time the process is ended and the trial has failed.
    """

    warm_passes: int = 5
    seconds: float = 1.0
    timeout: float = 45.0


QUICK = Effort(warm_passes=1, seconds=1.0, timeout=20.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What is to be measured.

    Parameters
    ----------
    contender
        The contender.
    workload
        The name of the workload.
    effort
        How long it may take.
    """

    contender: Contender
    workload: str
    effort: Effort

    def ended(self, outcome: Outcome, reason: str) -> Cell:
        """Return the cell of a trial that did not end well."""
        return Cell(contender=self.contender.name, workload=self.workload, outcome=outcome, reason=reason)

    def run(self) -> Cell:
        """Open the contender, let it do the workload, and return what that took. Nothing is raised."""
        try:
            workload = find(self.workload)
            session = self.contender.open(workload.limit)
            return self._measured(workload, session)
        except MissingError as missing:
            return self.ended(Outcome.NOT_THERE, str(missing))
        except Exception as error:  # noqa: BLE001 - whatever a library raises is the outcome
            return self.ended(Outcome.FAILED, f"{type(error).__name__}: {error}")

    def _measured(self, workload: Workload, session: Session) -> Cell:
        gc.collect()
        gc.disable()
        begun = monotonic()
        passes = workload.passes(session)
        cold = next(passes)
        peak = session.peak_reserved()
        warm: list[Pass] = []
        for _ in range(min(workload.warm_passes, self.effort.warm_passes)):
            if warm and monotonic() - begun > self.effort.seconds:
                break
            warm += islice(passes, 1)
        gc.enable()
        return Cell(
            contender=self.contender.name,
            workload=self.workload,
            pairs=cold.pairs,
            failures=cold.failures,
            cold_ns=cold.ns,
            warm_ns=tuple(each.ns for each in warm),
            peak_requested=workload.peak_requested,
            peak_reserved=peak,
            reserved_after=session.reserved(),
        )
