"""Running trials: every workload with all its contenders in turn, one process at a time."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from time import monotonic
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

import allotment as al
from benchmarks.allocators.cell import Cell, Outcome, Results
from benchmarks.allocators.contenders import Side
from benchmarks.allocators.family import FamilyProcess
from benchmarks.allocators.trial import Trial

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.allocators.catalogue import Entry
    from benchmarks.allocators.contenders import Contender
    from benchmarks.allocators.trial import Effort


def run(
    contenders: Sequence[Contender], workloads: Sequence[Entry], effort: Effort, seconds: float | None = None
) -> Results:
    """Run all trials, with a bar of progress on standard error.

    Parameters
    ----------
    contenders, workloads
        What is compared, and at what. Peers are left out, with the reason, where Allotment's platform is not CUDA.
    effort
        How long a trial may take.
    seconds
        After this time no trial is begun.
    """
    deadline = monotonic() + (seconds or inf)
    there = [entry for entry in workloads if not entry.reason]
    trials = [
        Trial(contender=contender, workload=entry.name, effort=effort)
        for entry in there
        for contender in contenders
        if contender.takes_part(entry.group)
    ]
    missing = {contender.name: reason for contender in contenders if (reason := _without_cuda(contender))}
    names = [entry.name for entry in there]
    families = {contender.family.name: contender.family for contender in contenders if contender.name not in missing}
    # All of them at once: they import and prepare beside each other, and are idle from then on.
    processes = {name: FamilyProcess(family, names) for name, family in families.items()}
    try:
        cells = _run(trials, processes, missing, deadline)
    finally:
        for process in processes.values():
            process.close()
    return Results(tuple(cells))


def _run(
    trials: Sequence[Trial], processes: dict[str, FamilyProcess], missing: dict[str, str], deadline: float
) -> list[Cell]:
    cells = [
        Cell(contender=name, workload="", outcome=Outcome.NOT_THERE, reason=reason) for name, reason in missing.items()
    ]
    with _progress() as progress:
        task = progress.add_task("importing", total=len(trials))
        for process in processes.values():
            if amiss := process.wait_until_ready():
                progress.console.print(amiss)
        for trial in trials:
            name = trial.contender.name
            progress.update(task, description=f"{trial.workload}: {name}")
            if monotonic() > deadline:
                cells.append(trial.ended(Outcome.NOT_BEGUN, "the time for the suite was over"))
            elif name not in missing:
                cell = processes[trial.contender.family.name].run(trial)
                if cell.outcome is Outcome.NOT_THERE:
                    missing[name] = cell.reason
                    cell = replace(cell, workload="")
                cells.append(cell)
            progress.advance(task)
    return cells


def _without_cuda(contender: Contender) -> str:
    platform = al.get_device("cpu").platform
    needs_cuda = contender.side is Side.PEER and platform.name != "cuda"
    return f"needs CUDA, and the platform here is {platform.name!r}" if needs_cuda else ""


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description:<40}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
