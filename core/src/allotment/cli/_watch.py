"""``allotment watch``."""

from __future__ import annotations

import dataclasses
import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer
from rich.live import Live

from allotment import serving
from allotment.cli._output import console, print_block
from allotment.cli._program import check_program, prepared
from allotment.errors import ServingError
from allotment.serving import Pace, ProcessStatus, Tick, ask, ticking, view_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    Looks: TypeAlias = Iterator[tuple[Tick, str | None]]

_SELF: Final = "self"
_SILENT: Final = "it does not answer, being stopped or busy in a call that keeps Python's lock."


def watch(
    target: Annotated[str, typer.Argument(metavar="PID", help="The number of a process, or self with a program.")],
    program: Annotated[
        list[str] | None, typer.Argument(metavar="-- PROGRAM", help="With self: a script, or -m and a module.")
    ] = None,
    interval: Annotated[float, typer.Option(metavar="SECONDS", min=0.05, help="The time between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once; with self, when the program has ended.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each look.")] = False,
) -> None:
    """Show how the allocators of a running process stand, as a table that is kept up to date.

    The process must be one of yours and serve its status: start it with ALLOTMENT_WATCH=1, write watch = true into
    its allotment.toml, or call allotment.serve_status() in it. The table stays when it ends, or when you press Ctrl-C;
    both are exit code 0.

    `allotment watch self -- script.py ARGUMENTS` runs a program here and shows the table below what it prints. The
    table goes to standard error, the exit code is the program's.

    Keys of --json: pid, program, time, clock, platform; devices, each with device, name, total, free; allocators, each
    with device, allocator, current, peak, reserved, peak_reserved, largest_free, allocations, frees,
    failed_allocations, failed_frees, problem, allocations_per_second. With self, the lines go to standard error.
    """
    if target == _SELF:
        _watch_program(program or (), interval, once=once, as_json=as_json)
        return
    if program:
        raise typer.BadParameter("a program is run only by: allotment watch self -- PROGRAM")
    looks = _looks(_number_of(target), interval)
    with suppress(KeyboardInterrupt):
        if as_json:
            _print_lines(looks, once=once)
        elif once or not console().is_terminal:
            _print_tables(looks, once=once)
        else:
            _show_live(looks)


def _number_of(target: str) -> int:
    if not (target.isascii() and target.isdigit() and int(target)):
        raise typer.BadParameter(f"expected the number of a process, or self, got {target!r}")
    return int(target)


# Another process


def _looks(pid: int, interval: float) -> Looks:
    """Yield looks at a process until it ends; where there is no new one, the last one with the reason."""
    pace = Pace()
    tick = pace.next(_first(pid))
    yield tick, None
    while True:
        time.sleep(interval)
        try:
            tick, note = pace.next(ask(pid)), None
        except TimeoutError:
            note = f"{_SILENT[0].upper()}{_SILENT[1:]}"
        except ServingError:
            yield tick, "It has ended, or serves its status no more. This is the last that it told."
            return
        yield tick, note


def _first(pid: int) -> ProcessStatus:
    try:
        return ask(pid)
    except TimeoutError as error:
        raise ServingError(f"process {pid} cannot be watched: {_SILENT}") from error


def _show_live(looks: Looks) -> None:
    with Live(console=console(), auto_refresh=False) as live:
        for tick, note in looks:
            live.update(view_of(tick, note), refresh=True)


def _print_tables(looks: Looks, *, once: bool) -> None:
    out = console()
    for tick, note in looks:
        if note is None:
            print_block(out, view_of(tick))
        else:
            typer.echo(note, err=True)
        if once:
            return
        if note is None:
            out.print()


def _print_lines(looks: Looks, *, once: bool) -> None:
    for tick, note in looks:
        typer.echo(line_of(tick) if note is None else note, err=note is not None)
        if once:
            return


def line_of(tick: Tick) -> str:
    """Return a tick as one line of JSON."""
    document = dataclasses.asdict(tick.status)
    for row, rate in zip(document["allocators"], tick.rates, strict=True):
        row["allocations_per_second"] = rate
    return json.dumps(document, ensure_ascii=False)


# A program of our own


def _watch_program(program: Sequence[str], interval: float, *, once: bool, as_json: bool) -> None:
    check_program(program)
    with prepared(program) as run, _showing(interval, once=once, as_json=as_json):
        kept = run()
    del kept  # until here, so that the last table tells what the program held at its end


def _showing(interval: float, *, once: bool, as_json: bool) -> AbstractContextManager[None]:
    if as_json:
        return ticking(lambda tick: typer.echo(line_of(tick), err=True), interval, only_last=once)
    return serving.watch(interval, only_last=once)
