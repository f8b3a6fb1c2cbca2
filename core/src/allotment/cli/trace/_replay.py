"""``allotment trace replay``."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - typer reads the annotation
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from allotment.cli._output import AsJson, Column, PlatformName, console, print_json, print_table
from allotment.cli._platform import asked_platform
from allotment.cli.trace._file import TraceFile, read_whole
from allotment.cli.trace._plot import MOMENTS, check_plot, draw
from allotment.device import find_device
from allotment.selection import get_allocator
from allotment.trace import EventKind, leave_free, replay, summarize
from allotment.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from allotment.layers.accounting import AccountedAllocator
    from allotment.trace import ReplayResult, TraceEvent, TraceSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRow:
    """How an allocator served the trace, as ``--json`` prints it.

    Parameters
    ----------
    allocator
        Its name.
    seconds, allocations_per_second
        The time of the calls, and allocations in a second of it, frees included.
    allocations, failures
        The allocations that succeeded, and those that were refused for lack of memory.
    peak_requested, peak_reserved
        The most bytes that were handed out at once, and that the allocator held of the device.
    overhead
        Peak reserved as a multiple of peak requested; null if nothing was handed out.
    fragmentation
        1 - peak requested / peak reserved; null if nothing was held.
    driver_calls
        How many calls of the driver it made; null where the platform does not count them.
    """

    allocator: str
    seconds: float
    allocations_per_second: float
    allocations: int
    failures: int
    peak_requested: int
    peak_reserved: int
    overhead: float | None
    fragmentation: float | None
    driver_calls: int | None

    @classmethod
    def of(cls, result: ReplayResult) -> ReplayRow:
        """Return what is told of a replay."""
        return cls(**{name: getattr(result, name) for name in cls.__slots__})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """All that the command has to say, as ``--json`` prints it.

    Parameters
    ----------
    file, trace
        The file, and what it asks for.
    problems
        What could not be read of it.
    platform, device
        Where it was replayed.
    limit
        The bytes of the device that were left to the allocators; null for all.
    allocators
        How each of them did.
    """

    file: str
    trace: TraceSummary
    problems: list[str]
    platform: str
    device: str
    limit: int | None
    allocators: list[ReplayRow]


def replay_trace(
    file: TraceFile,
    allocator: Annotated[
        list[str] | None,
        typer.Option(
            "--allocator", "-a", metavar="NAME", help="Through this one; may be given again. Else the chosen."
        ),
    ] = None,
    device: Annotated[str | None, typer.Option(metavar="ALIAS", help="On this device, such as cuda:1.")] = None,
    limit: Annotated[
        str | None,
        typer.Option(metavar="AMOUNT", help='As if the device had this much free memory: "8 GiB", "50%".'),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw what was held over time: .svg, .png, .pdf.", dir_okay=False),
    ] = None,
    platform: PlatformName = None,
    as_json: AsJson = False,
) -> None:
    """Replay a trace through each allocator in turn and compare them.

    All memory of the trace is drawn on one device. The time is that of the calls; on a simulated GPU it is that of the
    simulation. The exit code is 0 also where allocations failed.

    Keys of --json: file, trace (events, allocations, peak_requested, live_at_end, streams), problems, platform, device,
    limit, allocators, each with allocator, seconds, allocations_per_second, allocations, failures, peak_requested,
    peak_reserved, overhead, fragmentation, driver_calls. Sizes are in bytes.
    """
    if plot is not None:
        with _wrong_usage("--plot"):
            check_plot(plot)
    with asked_platform(platform), ExitStack() as scopes:
        found = find_device(device)
        names: list[str | None] = [*allocator] if allocator else [None]
        accounts = list(dict.fromkeys(get_allocator(name, found) for name in names))
        events, problems = read_whole(file)
        with _wrong_usage("--limit"):
            left = None if limit is None else scopes.enter_context(leave_free(limit, found))
        results = _replay_all(events, accounts, moments=0 if plot is None else MOMENTS, has_bar=not as_json)
        report = ReplayReport(
            file=str(file),
            trace=summarize(events),
            problems=[str(problem) for problem in problems],
            platform=found.platform.name,
            device=found.alias,
            limit=left,
            allocators=[ReplayRow.of(result) for result in results],
        )
    if as_json:
        print_json(report)
    else:
        _print(console(), report)
    if plot is not None:
        draw(results, f"{file.name} on {found.alias} of {report.platform}", plot)


@contextmanager
def _wrong_usage(option: str) -> Iterator[None]:
    """Turn what an option cannot mean into a message about that option."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def _replay_all(
    events: list[TraceEvent], accounts: Sequence[AccountedAllocator], *, moments: int, has_bar: bool
) -> list[ReplayResult]:
    total = sum(event.kind is not EventKind.OUT_OF_MEMORY for event in events)
    results = []
    with _bar(shown=has_bar) as bar:
        for account in accounts:
            task = bar.add_task(account.name, total=total)
            results.append(
                replay(
                    events,
                    account,
                    account.device,
                    lambda done, task=task: bar.update(task, completed=done),  # type: ignore[misc]
                    moments,
                )
            )
            account.trim()  # the next one finds the device as this one did
    return results


def _bar(*, shown: bool) -> Progress:
    """Return a progress bar on standard error, so that the table can be piped while people watch."""
    err = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, console=err, transient=True, disable=not (shown and err.is_terminal))


_COLUMNS = (
    Column("allocator"),
    Column("time", right=True),
    Column("allocations\nper second", right=True),
    Column("peak\nrequested", right=True),
    Column("peak\nreserved", right=True),
    Column("reserved /\nrequested", right=True),
    Column("fragmen-\ntation", right=True, optional=True),
    Column("driver\ncalls", right=True, optional=True),
    Column("failed\nallocations", right=True),
)


def _print(out: Console, report: ReplayReport) -> None:
    trace = report.trace
    limited = "" if report.limit is None else f", {format_bytes(report.limit)} of it left free"
    out.print(Text(f"{report.file} on {report.device} of {report.platform}{limited}"), soft_wrap=True)
    if not trace.events:
        out.print("The trace is empty: nothing was replayed.")
        return
    told = f"{trace.allocations:,} allocations, at most {format_bytes(trace.peak_requested)} at once"
    out.print(Text(f"{told}; {trace.live_at_end:,} blocks are live at the end.\n"), soft_wrap=True)
    counts_calls = all(row.driver_calls is not None for row in report.allocators)
    shown = [index for index, column in enumerate(_COLUMNS) if counts_calls or column.title != "driver\ncalls"]
    rows = [_cells(row) for row in report.allocators]
    print_table(out, [_COLUMNS[index] for index in shown], [[row[index] for index in shown] for row in rows])
    if not counts_calls:
        out.print(Text("\nDriver calls are counted on a simulated GPU only: --platform sim:2xh200.", "dim"))


def _cells(row: ReplayRow) -> list[str | Text]:
    return [
        Text(row.allocator, "bold"),
        f"{row.seconds:.3f} s",
        f"{row.allocations_per_second:,.0f}",
        format_bytes(row.peak_requested),
        format_bytes(row.peak_reserved),
        "–" if row.overhead is None else f"{row.overhead:.3f}",
        "–" if row.fragmentation is None else f"{row.fragmentation:.1%}",
        "–" if row.driver_calls is None else f"{row.driver_calls:,}",
        Text(f"{row.failures:,}", "bold red" if row.failures else ""),
    ]
