"""What the demo tells."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from allotment.cli._output import Column, console, print_table
from allotment.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from allotment.cli.demo._checks import Check
    from allotment.cli.demo._file import ConfigFile
    from allotment.cli.demo._trial import Candidate, Trial
    from allotment.trace import TraceSummary


_READABLE_WIDTH: Final = 96


class Narrator:
    """Tells what happens, in short lines; says nothing if it is to be quiet."""

    def __init__(self, *, quiet: bool) -> None:
        self.out = Console(quiet=True) if quiet else console()
        self._has_told_checks = False
        self._has_bar = self.out.is_terminal and not quiet

    def step(self, title: str, explanation: str) -> None:
        """Tell that a new part begins."""
        self.out.print()
        self.out.print(Text(title, "bold cyan"))
        self.out.print(Text(explanation, "dim"), width=min(self.out.width, _READABLE_WIDTH))
        self.out.print()

    def line(self, text: str) -> None:
        """Tell something in a line."""
        self.out.print(Text(text), soft_wrap=True)

    def file(self, candidate: Candidate, file: ConfigFile) -> None:
        """Show a configuration file and what it is about."""
        if self._has_told_checks:
            self.out.print()
        self.out.print(Text.assemble((candidate.name, "bold"), f" on {candidate.device.alias}, because "), end="")
        self.out.print(Text.assemble((file.path.name, "cyan"), " says:"))
        self.out.print()
        for line in file.text.splitlines():
            self.out.print(Text(f"      {line}", "green"))
        self.out.print()

    def checks(self, checks: list[Check]) -> None:
        """Tell how the checks came out, a line for each subject the first time and where one failed."""
        if self._has_told_checks and all(check.ok for check in checks):
            self.out.print(Text("  ok  ", "green") + Text(f"the same checks ({len(checks)} of {len(checks)})"))
            return
        self._has_told_checks = True
        for subject in dict.fromkeys(check.subject for check in checks):
            mine = [check for check in checks if check.subject == subject]
            failed = [check for check in mine if not check.ok]
            mark = Text("  failed  ", "bold red") if failed else Text("  ok  ", "green")
            self.out.print(mark + Text(f"{subject} ({len(mine) - len(failed)} of {len(mine)})"))
            for check in failed:
                self.out.print(Text(f"      {check.text}", "red"))

    @contextmanager
    def progress(self, total: int) -> Iterator[Callable[[int], None]]:
        """Show a bar where somebody watches; yield what to call with the number of events that are done."""
        label, unit = TextColumn("      replaying the trace"), TextColumn("events")
        columns = (label, BarColumn(bar_width=24), MofNCompleteColumn(), unit)
        bar = Progress(*columns, console=self.out, transient=True, disable=not self._has_bar)
        task = bar.add_task("replay", total=total)

        def show(done: int) -> None:
            bar.start()
            bar.update(task, completed=done)

        try:
            yield show
        finally:
            bar.stop()

    def replayed(self, trial: Trial, trace: TraceSummary) -> None:
        """Tell how the replay went."""
        ok = trial.allocations + trial.failures == trace.allocations and not trial.failures
        mark = Text("  ok  ", "green") if ok else Text("  failed  ", "bold red")
        smaller = f", sizes divided by {trial.size_divisor}" if trial.size_divisor > 1 else ""
        told = f"the trace was replayed in {trial.seconds:.2f} s{smaller}"
        self.out.print(mark + Text(told))

    def table(self, trials: list[Trial]) -> None:
        """Show how the allocators compare."""
        columns = [
            Column("allocator"),
            Column("memory"),
            Column("device", optional=True),
            Column("time", right=True),
            Column("allocs/s", right=True),
            Column("peak\nrequested", right=True),
            Column("peak\nreserved", right=True),
            Column("checks", right=True),
        ]
        print_table(self.out, columns, [_row(trial) for trial in trials])
        self.out.print()

    def commands(self, commands: list[tuple[str, str]]) -> None:
        """Show what to type next, each command with what it does."""
        for command, purpose in commands:
            self.out.print(Text.assemble(("  $ ", "dim"), (command, "bold cyan")), soft_wrap=True)
            self.out.print(Text(f"      {purpose}", "dim"))


def _row(trial: Trial) -> list[str | Text]:
    right = trial.checks_passed == trial.checks
    return [
        trial.allocator,
        trial.memory_kind,
        trial.device,
        f"{trial.seconds:.2f} s",
        f"{trial.allocations_per_second:,.0f}",
        format_bytes(trial.peak_requested),
        format_bytes(trial.peak_reserved),
        Text(f"{trial.checks_passed}/{trial.checks}", "green" if right else "bold red"),
    ]
