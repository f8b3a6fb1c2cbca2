"""The trace that a command reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from allotment.cli._output import complain
from allotment.trace import read

if TYPE_CHECKING:
    from allotment.errors import TraceError
    from allotment.trace import TraceEvent

TraceFile: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="A trace of Allotment, a memory snapshot of PyTorch, a log of RMM or a replay log of Umpire; plain or "
        "compressed by gzip.",
        dir_okay=False,
        exists=True,
    ),
]

_MOST_TOLD: Final = 5


def read_whole(path: Path) -> tuple[list[TraceEvent], list[TraceError]]:
    """Return the events of a trace and what could not be read, after saying the latter on standard error."""
    problems: list[TraceError] = []
    events = list(read(path, problems.append))
    for problem in problems[:_MOST_TOLD]:
        complain("warning", str(problem))
    if len(problems) > _MOST_TOLD:
        complain("warning", f"{path}: {len(problems) - _MOST_TOLD:,} more such lines")
    return events, problems
