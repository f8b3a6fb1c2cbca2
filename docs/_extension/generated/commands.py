"""The reference of the command line, from the application itself."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

import typer

from allotment.cli import build_app
from generated.markdown import code, paragraphs, table

if TYPE_CHECKING:
    from collections.abc import Iterator

Command = Any
"""What typer makes of a function, or a group of them."""


def reference() -> str:
    """Return a section on each command, and what all of them accept."""
    root = typer.main.get_command(build_app())
    every = paragraphs(["## Options before any command", _parameters(root)])
    return paragraphs([_overview(root), every, *(_section(path, command) for path, command in walk(root))])


def walk(group: Command, path: str = "allotment") -> Iterator[tuple[str, Command]]:
    """Yield each command of a group with the words that call it; of a group within, its commands."""
    for name, command in sorted(group.commands.items()):
        words = f"{path} {name}"
        if hasattr(command, "commands"):
            yield from walk(command, words)
        else:
            yield words, command


def _overview(root: Command) -> str:
    rows = ((f"[{code(words)}](#{words.replace(' ', '-')})", _summary(command)) for words, command in walk(root))
    return table(("command", "what it does"), rows)


def _summary(command: Command) -> str:
    return (command.help or "").partition("\n\n")[0]


def _section(words: str, command: Command) -> str:
    usage = " ".join([words, "[OPTIONS]", *(_placeholder(each) for each in command.params if _is_argument(each))])
    return paragraphs([f"## {words}", f"```text\n{usage}\n```", _text(command), _parameters(command)])


def _text(command: Command) -> str:
    return re.sub(r"--[a-z-]+", r"`\g<0>`", inspect.cleandoc(command.help or ""))


def _parameters(command: Command) -> str:
    rows = ((code(_spelling(each)), each.help or "", _default(each)) for each in command.params if _is_shown(each))
    return table(("argument or option", "meaning", "default"), rows)


def _is_argument(parameter: Command) -> bool:
    return bool(parameter.param_type_name == "argument")


def _is_shown(parameter: Command) -> bool:
    return not getattr(parameter, "hidden", False)


def _placeholder(parameter: Command) -> str:
    name = (parameter.metavar or parameter.name).upper()
    name = f"{name} ..." if parameter.nargs == -1 else name
    return name if parameter.required else f"[{name}]"


def _spelling(parameter: Command) -> str:
    if _is_argument(parameter):
        return _placeholder(parameter)
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    return names if parameter.is_flag else f"{names} {parameter.metavar or parameter.name.upper()}"


def _default(parameter: Command) -> str:
    default = parameter.default
    return code(default) if default not in (None, False, "") and not callable(default) else ""
