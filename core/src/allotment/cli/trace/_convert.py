"""``allotment trace convert``."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotation
from typing import Annotated, Final

import typer

from allotment.cli._output import complain
from allotment.cli.trace._file import TraceFile, read_whole
from allotment.trace import write_pytorch_snapshot

_SUFFIXES: Final = (".pickle", ".pkl")


def convert(
    file: TraceFile,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The file to write; it must end in .pickle.", dir_okay=False
        ),
    ],
) -> None:
    """Write a trace as a memory snapshot of PyTorch, which opens at https://pytorch.org/memory_viz.

    The page shows the file in the browser and sends it nowhere. Sizes, times, labels and call sites are those of the
    trace. A trace has no addresses, so those of the snapshot are made up.
    """
    if output.suffix.lower() not in _SUFFIXES:
        raise typer.BadParameter(f"{str(output)!r} must end in {' or '.join(_SUFFIXES)}", param_hint="--output")
    events, _ = read_whole(file)
    write_pytorch_snapshot(events, output)
    count = "1 event" if len(events) == 1 else f"{len(events):,} events"
    complain("written", f"{output}, {count}. Open it at https://pytorch.org/memory_viz")
