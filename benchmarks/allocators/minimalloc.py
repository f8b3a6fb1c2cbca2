"""The problems A to K of MiniMalloc as requests in the order of time (W14).

Their files (Apache License 2.0, google/minimalloc, ``benchmarks/challenging``) are not part of this repository.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import TYPE_CHECKING

from allotment.trace import EventKind, TraceEvent

if TYPE_CHECKING:
    from collections.abc import Iterable

VARIABLE = "BENCHMARKS_MINIMALLOC"
"""The environment variable that names the folder with the files."""
PROBLEMS = "ABCDEFGHIJK"
SCALE = 64
"""What the sizes are multiplied by: from on-chip memory to that of a GPU."""


def folder() -> Path:
    """Return where the files are looked for: ``.minimalloc`` beside ``benchmarks`` if the variable is not set."""
    return Path(os.environ.get(VARIABLE) or Path(__file__).parents[2] / ".minimalloc")


def path_of(problem: str) -> Path:
    """Return the file of a problem; the number in its name is the capacity that a perfect placement needs."""
    return folder() / f"{problem}.1048576.csv"


def read(path: Path) -> list[TraceEvent]:
    """Return a file's buffers as events, each allocated at its lower and freed at its upper time."""
    with path.open(newline="") as lines:
        rows = [{name: int(text) for name, text in row.items()} for row in csv.DictReader(lines)]
    return requests((row["id"], row["lower"], row["upper"], row["size"] * SCALE) for row in rows)


def requests(buffers: Iterable[tuple[int, int, int, int]]) -> list[TraceEvent]:
    """Return events from buffers as number, first time, time after the last, and size; at one time, frees come first.

    Raises
    ------
    ValueError
        If a buffer ends before it begins, or holds nothing.
    """
    timed: list[tuple[int, bool, TraceEvent]] = []
    for number, lower, upper, size in buffers:
        if lower >= upper or size <= 0:
            raise ValueError(f"buffer {number} of {size} bytes lives from {lower} to {upper}")
        timed.append((upper, False, TraceEvent(EventKind.FREE, number, size)))
        timed.append((lower, True, TraceEvent(EventKind.ALLOCATE, number, size)))
    return [event for *_, event in sorted(timed, key=lambda entry: entry[:2])]
