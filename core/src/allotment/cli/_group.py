"""The group of all commands: it turns errors into messages, and finds the commands that plugins add."""

from __future__ import annotations

import traceback
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import typer
from typer.core import TyperGroup

from allotment import registry, serving
from allotment.cli._output import complain
from allotment.errors import AllotmentError, AllotmentWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class CommandGroup(TyperGroup):
    """Commands whose errors and warnings are messages on standard error.

    The commands of plugins are asked for when the help lists all commands, or when a command is called that core has
    not: what is wrong with a plugin shows only there.
    """

    _has_plugin_commands = False

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was called; an error of Allotment ends it with exit code 1."""
        with warnings_as_messages(), serving.held_back():
            try:
                return super().invoke(ctx)
            except AllotmentError as error:
                if ctx.params.get("debug"):
                    typer.echo("".join(traceback.format_exception(error)), err=True, nl=False)
                complain("error", str(error))
                raise typer.Exit(1) from error
            except KeyboardInterrupt as interrupt:
                complain("interrupted", "everything was cleaned up")
                raise typer.Exit(130) from interrupt

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, those of plugins last."""
        self._add_plugin_commands()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command by its name, ``None`` if there is none."""
        if cmd_name not in self.commands:
            self._add_plugin_commands()
        return super().get_command(ctx, cmd_name)

    def _add_plugin_commands(self) -> None:
        if self._has_plugin_commands:
            return
        self._has_plugin_commands = True
        for name, command in plugin_commands().items():
            if name in self.commands:
                complain("warning", f"a plugin's command {name!r} is left out: Allotment has one of this name")
            else:
                self.add_command(command, name)


def plugin_commands() -> dict[str, Any]:
    """Return the commands that installed observers add, by name. What fails is left out with a warning."""
    found: dict[str, Any] = {}
    owners: dict[str, str] = {}
    with warnings_as_messages():
        for owner, register in _registering():
            for name, command in _commands_of(owner, register).items():
                if name in found:
                    complain("warning", f"command {name!r} of {owner} is left out: {owners[name]} has one of this name")
                else:
                    found[name], owners[name] = command, owner
    return found


def _registering() -> list[tuple[str, Callable[[Mapping[str, Any]], object]]]:
    """Return what adds commands, with the name of its observer."""
    try:
        hooks = registry.current().hooks
        for record in hooks.load_observers():
            if record.error is not None:
                complain("warning", f"observer {record.qualified_name!r} cannot be loaded: {record.error}")
    except AllotmentError as error:
        complain("warning", f"commands of plugins are left out: {error}")
        return []
    return hooks.implementations("allotment_register_commands")


def _commands_of(owner: str, register: Callable[[Mapping[str, Any]], object]) -> dict[str, Any]:
    """Return the commands of one observer, by name; none if it fails."""
    app = typer.Typer()
    app.callback()(lambda: None)  # makes it a group, however many commands it gets
    try:
        register({"app": app})
        return dict(typer.main.get_group(app).commands)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a plugin does, all other commands must work
        complain("warning", f"commands of {owner} are left out: {type(error).__name__}: {error}")
        return {}


@contextmanager
def warnings_as_messages() -> Iterator[None]:
    """Print Allotment's warnings as messages, without the source line that Python adds, for the length of a block."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", AllotmentWarning)
        print_other = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, AllotmentWarning):
                complain("warning", str(message))
            else:
                print_other(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        yield
