"""Reading all that a process was started with: the environment, the project's file, the user's file."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from allotment.configuration._environment import CONFIG_VARIABLE, read_environment, variables_of
from allotment.configuration._files import read_project_file, read_user_file
from allotment.configuration._origin import OriginKind, Setting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from allotment.configuration._schema import Key


@dataclass(frozen=True, slots=True)
class Source:
    """What one kind of place says.

    Parameters
    ----------
    kind
        The kind of place.
    settings
        Its settings by key.
    """

    kind: OriginKind
    settings: Mapping[Key, Setting]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a process was started with, at the moment it was read.

    Parameters
    ----------
    sources
        The environment and the files.
    notes
        What a user should know about how they were found.
    environment
        The environment itself, to see whether it changed since.
    variables
        Its variables for Allotment as they were.
    """

    sources: tuple[Source, ...] = ()
    notes: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)

    def changed_variables(self) -> tuple[str, ...]:
        """Return the variables that were set, changed or unset since they were read."""
        now = variables_of(self.environment)
        names = sorted(now.keys() | self.variables.keys())
        return tuple(name for name in names if now.get(name) != self.variables.get(name))


def read_sources(
    environment: Mapping[str, str] | None = None,
    working_directory: Path | None = None,
    user_directory: Path | None = None,
) -> Reading:
    """Read the environment, the project's file and the user's file.

    Parameters
    ----------
    environment
        The environment; that of the process by default.
    working_directory
        Where the search for the project's file begins; the working directory of the process by default.
    user_directory
        The user's configuration directory; the one of the platform by default.

    Raises
    ------
    ConfigError
        If one of them says what cannot be read or is not accepted.
    """
    environment = os.environ if environment is None else environment
    variables = variables_of(environment)
    project = read_project_file(working_directory or _working_directory(), variables.get(CONFIG_VARIABLE))
    user = read_user_file(user_directory or _user_directory())
    sources = (
        Source(OriginKind.ENVIRONMENT, read_environment(variables)),
        Source(OriginKind.PROJECT_FILE, project.settings),
        Source(OriginKind.USER_FILE, user),
    )
    return Reading(sources, project.notes, environment, variables)


def _working_directory() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:  # it was removed, so no project lies around it
        return Path(os.sep)


def _user_directory() -> Path:
    from platformdirs import user_config_path

    return user_config_path("allotment", appauthor=False)
