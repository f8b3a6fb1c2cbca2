"""A live table of this process's own allocators."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from allotment.serving._pace import ticking
from allotment.serving._table import view_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from allotment.serving._pace import Tick


_PIPED_WIDTH: Final = 240
"""The width where nobody looks: no cell is folded, so that a program finds each row on one line."""


@contextmanager
def watch(interval: float = 1.0, *, console: Console | None = None, only_last: bool = False) -> Iterator[None]:
    """Show how the allocators of this process stand while a ``with`` block runs, as a table that is kept up to date.

    Parameters
    ----------
    interval
        Seconds between updates.
    console
        Where; standard error if not given.
    only_last
        Print the table once, at the end of the block.

    Raises
    ------
    ValueError
        If the interval is not above 0.

    Notes
    -----
    What the block prints in the meantime appears above the table. Where nobody watches, because the console is no
    terminal, the table is printed once, at the end.

    Examples
    --------
    >>> import allotment as al
    >>> with al.watch(interval=0.5):
    ...     weights = al.zeros(2**20, device="cpu")
    """
    if not interval > 0:
        raise ValueError(f"an interval is a number of seconds above 0, not {interval!r}")
    from rich.live import Live

    out = console or _standard_error()
    if only_last or not (out.is_terminal or out.is_jupyter):
        with ticking(lambda tick: out.print(view_of(tick)), interval, only_last=True):
            yield
        return
    # What goes into a pipe stays there; the rest is printed by rich, which moves the table down.
    live = Live(console=out, auto_refresh=False, redirect_stdout=sys.stdout.isatty())

    def show(tick: Tick) -> None:
        live.update(view_of(tick), refresh=True)

    with live, ticking(show, interval):
        yield


def _standard_error() -> Console:
    from rich.console import Console

    out = Console(stderr=True, highlight=False, emoji=False)
    return out if out.is_terminal else Console(stderr=True, highlight=False, emoji=False, width=_PIPED_WIDTH)
