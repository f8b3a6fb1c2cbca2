"""The command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
from rich.table import Table
from rich.text import Text

from allotment.cli._output import AsJson, PlatformName, console, print_block, print_json
from allotment.cli.doctor._examination import examine
from allotment.cli.doctor._finding import Severity

if TYPE_CHECKING:
    from rich.console import Console

    from allotment.cli.doctor._finding import Finding

_STYLES = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.PROBLEM: "bold red"}


def doctor(platform: PlatformName = None, as_json: AsJson = False) -> None:
    """Say what is wrong here, and what to type.

    It looks at the versions, the configuration, the platform, the plugins and each device, on which it allocates 1 MiB,
    fills it, copies it back and compares. The exit code is 1 if there is a problem.

    Keys of --json: ok; findings, each with severity (ok, warning, problem), subject, text, command.
    """
    findings = examine(platform)
    problems = sum(finding.severity is Severity.PROBLEM for finding in findings)
    if as_json:
        print_json({"ok": not problems, "findings": findings})
    else:
        _print(console(), findings, problems)
    if problems:
        raise typer.Exit(1)


def _print(out: Console, findings: list[Finding], problems: int) -> None:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        mark = Text(finding.severity.value, _STYLES[finding.severity])
        table.add_row(mark, finding.subject, Text(finding.text))
        if finding.command is not None:
            table.add_row("", "", Text(f"  $ {finding.command}", "bold cyan"))
    print_block(out, table)
    warnings = sum(finding.severity is Severity.WARNING for finding in findings)
    counts = f"{_count(problems, 'problem')}, {_count(warnings, 'warning')}."
    out.print()
    if problems:
        out.print(Text(counts, _STYLES[Severity.PROBLEM]))
    else:
        out.print(Text("All that is asked for works: ", "green") + Text(counts))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
