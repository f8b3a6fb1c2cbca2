"""What commands print: tables for people, JSON for programs, messages on standard error."""

from __future__ import annotations

import dataclasses
import json
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
PlatformName: TypeAlias = Annotated[
    str | None,
    typer.Option("--platform", metavar="NAME", help="auto, cuda, host or sim:PROFILE; else what is configured."),
]

_PIPED_WIDTH: Final = 240
"""The width where nobody looks: no cell is folded, so that a program finds each row on one line."""
_STYLES: Final = {
    "error": "bold red",
    "warning": "bold yellow",
    "interrupted": "bold yellow",
    "recorded": "bold green",
    "written": "bold green",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Parameters
    ----------
    title
        Its heading.
    optional
        It is left out where the terminal is too narrow; of several, the last first.
    right
        Its cells are numbers.
    fold
        The width to which its cells may be folded into several lines; ``None`` for never.
    """

    title: str
    optional: bool = False
    right: bool = False
    fold: int | None = None


def console() -> Console:
    """Return a console on standard output as it is now: without colour and as wide as needed where it is piped."""
    found = Console(highlight=False, emoji=False)
    return found if found.is_terminal else Console(highlight=False, emoji=False, width=_PIPED_WIDTH)


def complain(kind: str, text: str) -> None:
    """Print a message on standard error: what it is, and the text, not folded."""
    Console(stderr=True, highlight=False, emoji=False, soft_wrap=True).print(
        Text.assemble((f"{kind}: ", _STYLES[kind]), text)
    )


def print_json(document: Any) -> None:
    """Print a document: dataclasses as objects with their fields as keys, enums as their values."""
    typer.echo(json.dumps(_plain(document), indent=2, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if hasattr(value, "items"):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | None) else str(value)


def print_table(out: Console, columns: Sequence[Column], rows: Sequence[Sequence[RenderableType]]) -> None:
    """Print a table, without its optional columns if the terminal is too narrow for them; that is then said."""
    shown = list(range(len(columns)))
    while _space(out, columns, rows, shown) < 0 and (optional := [i for i in shown if columns[i].optional]):
        shown.remove(optional[-1])
    print_block(out, _table(out, columns, rows, shown))
    left_out = [columns[index].title.replace("\n", " ") for index in range(len(columns)) if index not in shown]
    if left_out:
        out.print(Text(f"Left out for lack of width: {', '.join(left_out)}. --json has them.", "dim"))


def print_block(out: Console, block: RenderableType) -> None:
    """Print what rich fills up with spaces to its width, without them where it is piped."""
    if out.is_terminal:
        out.print(block)
        return
    with out.capture() as captured:
        out.print(block)
    for line in captured.get().splitlines():
        out.out(line.rstrip())


_GAP: Final = 2
"""The spaces between columns."""


def _natural_width(column: Column, cells: Sequence[RenderableType]) -> int:
    """Return the width that a column has where there is room; cells are text."""
    return max(cell_len(line) for text in (column.title, *cells) for line in str(text).splitlines() or [""])


def _space(
    out: Console, columns: Sequence[Column], rows: Sequence[Sequence[RenderableType]], shown: Sequence[int]
) -> int:
    """Return the width that is left when each column has the least that it needs."""
    least = [_least_width(columns[index], [row[index] for row in rows]) for index in shown]
    return out.width - sum(least) - _GAP * (len(shown) - 1)


def _least_width(column: Column, cells: Sequence[RenderableType]) -> int:
    natural = _natural_width(column, cells)
    return natural if column.fold is None else min(natural, column.fold)


def _table(
    out: Console, columns: Sequence[Column], rows: Sequence[Sequence[RenderableType]], shown: Sequence[int]
) -> Table:
    """Return the table, with what space there is given to the columns that can be folded, the first one first."""
    table = Table(box=None, padding=(0, _GAP, 0, 0), header_style="bold", pad_edge=False)
    space = max(0, _space(out, columns, rows, shown))
    for index in shown:
        column, cells = columns[index], [row[index] for row in rows]
        least = _least_width(column, cells)
        width = min(_natural_width(column, cells), least + space)
        space -= width - least
        table.add_column(column.title, justify="right" if column.right else "left", width=width, overflow="fold")
    for row in rows:
        table.add_row(*(row[index] for index in shown))
    return table


def yes_no(value: bool | None) -> Text:
    """Return a flag as people read it; ``?`` for one that nobody could tell."""
    if value is None:
        return Text("?", "yellow")
    return Text("yes", "green") if value else Text("no", "dim")
