"""``allotment trace report``."""

from __future__ import annotations

import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from allotment.cli._output import AsJson, console, print_json
from allotment.cli.trace._file import TraceFile, read_whole
from allotment.trace import write_report
from allotment.units import format_bytes

if TYPE_CHECKING:
    from allotment.trace import WrittenReport


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportAnswer:
    """What the command has to say, as ``--json`` prints it.

    Parameters
    ----------
    file
        The trace.
    report
        The page, and what it shows in short.
    problems
        What could not be read of the trace.
    """

    file: str
    report: WrittenReport
    problems: list[str]


def report_trace(
    file: TraceFile,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="PAGE", help="The page to write.", dir_okay=False)
    ] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="What to call the trace; else the name of the file.")] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the web browser.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a page that shows memory over time: what is live at each moment, who holds it, what leaks.

    The page is one file, which works offline and can be sent on. It holds the labels and the paths of the trace. What
    cannot be read of the trace is said, and left out.

    Keys of --json: file; report with path, events, blocks, peak, live_at_end, unmet_requests; problems.
    """
    with Console(stderr=True).status("reading the trace"):
        events, problems = read_whole(file)
    with Console(stderr=True).status("writing the page"):
        report = write_report(events, output, title=title or file.name, problems=problems)
    if as_json:
        print_json(ReportAnswer(file=str(file), report=report, problems=[str(problem) for problem in problems]))
    else:
        console().print(_told(report), markup=False, soft_wrap=True)
    if open_page:
        webbrowser.open(report.path.resolve().as_uri())


def _told(report: WrittenReport) -> str:
    if not report.events:
        return f"{report.path}: the trace is empty"
    unmet = f", {report.unmet_requests:,} out of memory" if report.unmet_requests else ""
    return (
        f"{report.path}: {report.events:,} events, peak {format_bytes(report.peak)}, "
        f"{format_bytes(report.live_at_end)} live at the end{unmet}"
    )
