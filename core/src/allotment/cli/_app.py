"""The application: its commands and its global options."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Annotated

import typer

from allotment._version import version
from allotment.cli._access import access
from allotment.cli._allocators import allocators
from allotment.cli._check import check
from allotment.cli._config import app as config
from allotment.cli._devices import devices
from allotment.cli._group import CommandGroup
from allotment.cli._plugins import plugins
from allotment.cli._status import status
from allotment.cli._watch import watch
from allotment.cli.demo import demo
from allotment.cli.doctor import doctor
from allotment.cli.new_plugin import new_plugin
from allotment.cli.trace import app as trace

_HELP = """One GPU memory allocator for every library in a Python process, chosen by name.

Begin with: allotment demo
"""


def main() -> None:
    """Run the command line of this process and exit."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):  # replaced by something simpler, or closed
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    build_app()(prog_name="allotment")


def build_app() -> typer.Typer:
    """Return the application with the commands of core; those of plugins are added when one is looked for."""
    app = typer.Typer(
        name="allotment",
        cls=CommandGroup,
        help=_HELP,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_global_options)
    for command in (devices, access, allocators, plugins, check, new_plugin, status, doctor, demo, watch):
        app.command()(command)
    app.add_typer(config, name="config")
    app.add_typer(trace, name="trace")
    return app


def _say_version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(f"allotment {version()}")
        raise typer.Exit


def _global_options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
