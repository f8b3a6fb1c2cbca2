"""Settings from files: which file counts, and what it says."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from allotment.configuration._environment import CONFIG_VARIABLE
from allotment.configuration._origin import Origin, OriginKind, Setting
from allotment.configuration._schema import Key, parse
from allotment.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE_NAME: Final = "allotment.toml"
_PYPROJECT: Final = "pyproject.toml"
_TABLE: Final = "[tool.allotment]"


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """What the project's file says.

    Parameters
    ----------
    settings
        Its settings by key; none if there is no file.
    notes
        What a user should know about the choice of this file.
    """

    settings: Mapping[Key, Setting]
    notes: tuple[str, ...] = ()


def read_project_file(working_directory: Path, named: str | None) -> ProjectFile:
    """Return what the project's file says.

    Parameters
    ----------
    working_directory
        Where the search begins; it goes upward to the first folder with a file, in which ``allotment.toml`` wins.
    named
        The value of ``ALLOTMENT_CONFIG``; ``None`` if it is not set.

    Raises
    ------
    ConfigError
        If the file cannot be read, is not TOML, or says what the schema does not accept; if the named one is missing.
    """
    if named is not None:
        return _read_named(working_directory, named)
    for folder in (working_directory, *working_directory.parents):
        own, shared = folder / FILE_NAME, folder / _PYPROJECT
        if os.path.lexists(own):
            return ProjectFile(_read_own(own, OriginKind.PROJECT_FILE), _passed_over(own, shared))
        table = _shared_table(shared)
        if table is not None:
            return ProjectFile(_parse_shared(shared, table))
    return ProjectFile({})


def read_user_file(folder: Path) -> Mapping[Key, Setting]:
    """Return what ``allotment.toml`` in the user's configuration directory says, nothing if there is no such file."""
    path = folder / FILE_NAME
    return _read_own(path, OriginKind.USER_FILE) if os.path.lexists(path) else {}


def _read_named(working_directory: Path, named: str) -> ProjectFile:
    if not named.strip():
        raise ConfigError(origin=CONFIG_VARIABLE, problem="it is empty. Name a file, or unset it")
    path = working_directory / Path(named.strip()).expanduser()
    if not os.path.lexists(path):
        raise ConfigError(origin=CONFIG_VARIABLE, problem=f"there is no file {str(path)!r}")
    if path.name != _PYPROJECT:
        return ProjectFile(_read_own(path, OriginKind.PROJECT_FILE))
    table = _shared_table(path)
    if table is None:
        raise ConfigError(origin=CONFIG_VARIABLE, problem=f"{str(path)!r} has no table {_TABLE}")
    return ProjectFile(_parse_shared(path, table))


def _read_own(path: Path, kind: OriginKind) -> dict[Key, Setting]:
    return parse(_load(path, _content(path)), Origin(kind, str(path))).settings


def _parse_shared(path: Path, table: Any) -> dict[Key, Setting]:
    origin = Origin(OriginKind.PROJECT_FILE, f"{path} {_TABLE}")
    if not isinstance(table, dict):
        raise ConfigError(origin=str(path), key="tool.allotment", problem=f"expected a table, got {table!r}")
    return parse(table, origin).settings


def _shared_table(path: Path) -> Any:
    """Return ``[tool.allotment]`` of a pyproject.toml, ``None`` if it has none."""
    if not os.path.lexists(path):
        return None
    content = _content(path)
    # A file that never says the name cannot hold the table, so what is wrong in it is none of our business.
    if b"allotment" not in content:
        return None
    tool = _load(path, content).get("tool", {})
    return tool.get("allotment") if isinstance(tool, dict) else None


def _passed_over(own: Path, shared: Path) -> tuple[str, ...]:
    with suppress(ConfigError):  # a pyproject.toml that is not used may be as broken as it likes
        if _shared_table(shared):
            return (f"{shared} {_TABLE} is not used, because {own} is in the same folder",)
    return ()


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(origin=str(path), problem=f"it cannot be read: {error.strerror or error}") from error


def _load(path: Path, content: bytes) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        problem = f"it is not UTF-8: {error.reason} at byte {error.start}"
        raise ConfigError(origin=str(path), problem=problem) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(origin=str(path), problem=f"it is not valid TOML: {error}") from error
