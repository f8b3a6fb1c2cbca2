"""Running a user's program inside of a command."""

from __future__ import annotations

import runpy
import sys
import traceback
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from allotment import serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType


def check_program(words: Sequence[str]) -> None:
    """Raise `typer.BadParameter`, which is wrong usage, if the words name no program."""
    if not words:
        raise typer.BadParameter("say which program, after two hyphens: -- script.py, or -- -m module")
    if words[0] == "-m":
        if len(words) < 2:
            raise typer.BadParameter("-m needs the name of a module")
    elif not Path(words[0]).exists():
        raise typer.BadParameter(f"there is no file {words[0]!r}")


@contextmanager
def prepared(words: Sequence[str]) -> Iterator[Callable[[], dict[str, Any]]]:
    """Make this process look like the one that ``python`` would run a program in, until the block is left.

    Parameters
    ----------
    words
        A script, or ``-m`` and a module, and its arguments; checked by `check_program`.

    Yields
    ------
    Callable
        Runs the program and returns its variables. If it fails, its traceback is printed and `typer.Exit` raised, with
        code 1; an exit of its own keeps its code.
    """
    is_module = words[0] == "-m"
    arguments = list(words[1:] if is_module else words)
    argv, path = sys.argv, list(sys.path)
    sys.argv = arguments
    sys.path.insert(0, "" if is_module else str(Path(words[0]).resolve().parent))
    try:
        with serving.let_go():
            yield partial(_run, arguments[0], is_module=is_module)
    finally:
        sys.argv, sys.path[:] = argv, path


def _run(program: str, *, is_module: bool) -> dict[str, Any]:
    try:
        if is_module:
            return runpy.run_module(program, run_name="__main__", alter_sys=True)
        return runpy.run_path(program, run_name="__main__")
    except Exception as error:
        traceback.print_exception(error.with_traceback(_own_part(error.__traceback__)))
        raise typer.Exit(1) from error


def _own_part(begin: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of whoever ran the program; all of it if the program never began."""
    found = begin
    while found is not None and found.tb_frame.f_globals.get("__name__") in (__name__, "runpy"):
        found = found.tb_next
    return found or begin
