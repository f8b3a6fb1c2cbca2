"""``allotment check``."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from allotment.cli._output import AsJson, Column, console, print_json, print_table
from allotment.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from allotment.testing import CheckReport, RuleReport, Trial

Options = Annotated[
    list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="An option of the allocator; repeatable.")
]
Platform = Annotated[
    str | None,
    typer.Option(
        "--platform", metavar="NAME", help="cuda, host or sim:PROFILE alone; else simulated machines and GPUs"
    ),
]
_STYLES = {
    "held": "green",
    "not applicable": "dim",
    "exempt": "yellow",
    "not checked": "yellow",
    "failed": "bold red",
}


def check(
    name: Annotated[str, typer.Argument(help="The allocator, as configuration names it.")],
    platform: Platform = None,
    option: Options = None,
    as_json: AsJson = False,
) -> None:
    """Run the conformance kit on an installed allocator, and tell rule by rule what holds.

    Its source is not needed. It needs the extra: pip install 'allotment[testing]'. The exit code is 1 if a rule is
    broken, or if no memory could be had to check any.

    Keys of --json: allocator, distribution, version, devices (why real devices were not tried, or empty), checked;
    rules, each with rule, title, status (held, not applicable, exempt, not checked, failed), passed, reasons; failures
    of a rule, each with test, platform, rules, outcome, message, traceback, seconds.
    """
    report = _checked(name, platform, option or [])
    if as_json:
        print_json(_document(report))
    else:
        _print(console(), report)
    if report.failed or not report.is_checked:
        raise typer.Exit(1)


def _checked(name: str, platform: str | None, options: list[str]) -> CheckReport:
    try:
        from allotment.testing import check_allocator
    except ImportError as error:
        raise UnsupportedError(str(error)) from error
    on = () if platform in (None, "auto") else (platform,)
    with _progress() as tell:
        return check_allocator(name, on=on, options=options, progress=tell)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Show on standard error, where somebody looks, how many tests are done."""
    if not sys.stderr.isatty():
        yield lambda _done, _tests: None
        return
    with Console(stderr=True, highlight=False).status("collecting the tests") as status:
        yield lambda done, tests: status.update(f"{done} of {tests} tests")


def _document(report: CheckReport) -> dict[str, object]:
    record = report.allocator
    return {
        "allocator": record.name,
        "distribution": record.distribution,
        "version": record.version,
        "devices": report.devices,
        "checked": report.is_checked,
        "rules": report.rules,
    }


def _print(out: Console, report: CheckReport) -> None:
    columns = [Column("rule"), Column("what it asks for", fold=30), Column("status"), Column("because", fold=24)]
    print_table(out, columns, [_cells(each) for each in report.rules])
    out.print()
    for failure in dict.fromkeys(failure for each in report.failed for failure in each.failures):
        _print_failure(out, failure)
    out.print(Text(_summary(report), "bold red" if report.failed or not report.is_checked else "bold green"))
    if report.devices:
        out.print(Text(f"Not tried on real devices: {report.devices}.", "dim"))


def _cells(report: RuleReport) -> list[str | Text]:
    status = report.status.value
    why = [*report.reasons, *dict.fromkeys(failure.test for failure in report.failures)]
    return [report.rule, report.title, Text(status, _STYLES[status]), "; ".join(why)]


def _print_failure(out: Console, failure: Trial) -> None:
    where = f" on {failure.platform}" if failure.platform else ""
    out.print(Text(f"{failure.test}{where}", "bold"))
    for line in failure.message.splitlines()[:_LINES]:
        out.print(Text(f"    {line}"))
    out.print()


_LINES = 12
"""How much of a failure's text is shown; a comparison of arrays can be long."""


def _summary(report: CheckReport) -> str:
    record = report.allocator
    counts = {status: sum(each.status.value == status for each in report.rules) for status in _STYLES}
    told = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    if not report.is_checked:
        return f"{record.qualified_name}: no memory could be had, so nothing was checked ({told})."
    if report.failed:
        again = f"pytest --allotment-allocator={record.name}"
        return f"{record.qualified_name} breaks the contract: {told}. Where it fails, tells: {again}"
    kept = "the rest of the contract" if counts["exempt"] else "the contract"
    return f"{record.qualified_name} keeps {kept}: {told}."
