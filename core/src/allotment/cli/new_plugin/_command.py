"""The command, and the folder that it writes."""

from __future__ import annotations

import shlex
import tempfile
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.text import Text

from allotment._version import version
from allotment.allocator import API_VERSION
from allotment.cli._output import console
from allotment.cli.new_plugin._plugin_name import PluginName, read_name
from allotment.cli.new_plugin._template import Author, Kind, Licence, Request, project_files

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")


def new_plugin(
    name: Annotated[str, typer.Argument(help="What users are going to type, such as my-pool.")],
    kind: Annotated[Kind, typer.Option(help="The kind of memory that it serves.")] = Kind.DEVICE,
    directory: Annotated[Path, typer.Option(help="Where to make the folder of the project.")] = Path(),
    author: Annotated[
        str | None, typer.Option(metavar="NAME", help='Who writes it: "Ada Lovelace <ada@example.org>".')
    ] = None,
    licence: Annotated[Licence, typer.Option("--license", help="Its licence.")] = Licence.APACHE,
) -> None:
    """Make the project of a new allocator: a distribution with options, tests and CI that can be published as it is.

    Its tests pass before anything is changed. A folder that exists is refused, and stays as it is.
    """
    plugin_name = _checked(read_name, name, "NAME")
    by_default = f"The {plugin_name.distribution} developers"
    request = Request(
        name=plugin_name,
        kind=kind,
        licence=licence,
        author=_checked(Author.read, author or by_default, "--author"),
        core=_core_version(),
        year=date.today().year,  # noqa: DTZ011 - the author's own day
    )
    folder = directory / request.name.distribution
    written = project_files(request)
    try:
        write_project(folder, written)
    except OSError as error:
        raise typer.BadParameter(str(error), param_hint="--directory") from error
    _tell(request.name, folder, len(written))


def _checked(read: Callable[[str], T], text: str, where: str) -> T:
    """Return what is read from an argument; what cannot be read is wrong usage."""
    try:
        return read(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=where) from error


def _core_version() -> str:
    """Return the version of core; without metadata, as in a frozen application, that of the contract."""
    running = version()
    return ".".join(map(str, API_VERSION)) if running == "unknown" else running


def write_project(folder: Path, written: Mapping[str, str]) -> None:
    """Write the files of a project into a folder that does not exist or is empty: all of them, or nothing.

    Raises
    ------
    FileExistsError
        If there is something at that place.
    """
    if folder.is_symlink() or (folder.exists() and not (folder.is_dir() and not any(folder.iterdir()))):
        raise FileExistsError(f"{folder} exists, and is left as it is")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as made:
        project = Path(made, folder.name)
        for path, text in written.items():
            file = project / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8", newline="\n")
        if folder.exists():
            folder.rmdir()  # it is empty, and not every system renames onto a folder
        project.rename(folder)


def _tell(name: PluginName, folder: Path, count: int) -> None:
    out = console()
    out.print(Text(f"{folder} has {count} files. Next:"))
    for command in (
        f"cd {shlex.quote(str(folder))}",
        'python -m pip install -e ".[dev]"',
        "pytest",
        f"allotment check {name.text}",
    ):
        out.print(Text(f"    {command}", "bold"))
    out.print(Text(f"The allocator is in {Path('src', name.package, '_allocator.py')}."))
