"""``allotment trace record``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from allotment.cli._output import complain
from allotment.cli._program import check_program, prepared
from allotment.layers.recorder import DEFAULT_DEPTH
from allotment.recording import Recording
from allotment.recording import record as recording_to

OPTIONS_ARE_THE_PROGRAM_S: Final = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""Settings of the command's context: what follows the program's name is for the program."""


def record(
    program: Annotated[list[str], typer.Argument(help="A script, or -m and a module, and its arguments.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The file, compressed if it ends in .gz.", dir_okay=False)
    ] = Path("run.jsonl.gz"),
    last: Annotated[int | None, typer.Option(help="Keep this many events, the last ones; else all.", min=1)] = None,
    depth: Annotated[
        int, typer.Option(help="Keep this many lines of the program of each call site.", min=0)
    ] = DEFAULT_DEPTH,
) -> None:
    """Run a Python program and record what it allocates and frees: allotment trace record -- script.py arguments.

    The exit code is the program's. The file is complete also where the program fails.
    """
    check_program(program)
    recording = recording_to(output, last=last, depth=depth)
    with prepared(program) as run:
        recording.start()
        try:
            run()
        finally:
            recording.stop()
            _tell(recording, output)


def _tell(recording: Recording, output: Path) -> None:
    if recording.events:
        events = "1 event" if recording.events == 1 else f"{recording.events:,} events"
        complain("recorded", f"{events}. Look at them: allotment trace report {output}")
    else:
        complain("recorded", f"nothing: the program drew no memory from Allotment, and {output} holds no event")
