"""Settings from ``ALLOTMENT_*`` variables."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Any, Final

from allotment._wording import nearest
from allotment.configuration._origin import Origin, OriginKind, Setting
from allotment.configuration._schema import Key, defaults, parse
from allotment.errors import ConfigError, ConfigWarning

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PREFIX: Final = "ALLOTMENT_"
CONFIG_VARIABLE: Final = "ALLOTMENT_CONFIG"
"""The variable that names the project file."""

_NESTS: Final = "__"
_DEVICE_NUMBER: Final = re.compile(r"[_-](\d+)$")


def variables_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are meant for Allotment."""
    return {name: value for name, value in sorted(environment.items()) if name.startswith(PREFIX)}


def read_environment(variables: Mapping[str, str]) -> dict[Key, Setting]:
    """Return the settings that variables hold, and warn of a variable that is no setting.

    Raises
    ------
    ConfigError
        For a value that cannot be read, and for two variables that say different things about one key.
    """
    said: dict[Key, Setting] = {}
    for variable, value in variables.items():
        if variable == CONFIG_VARIABLE:
            continue
        for key, setting in _read_variable(variable, value.strip()):
            _refuse_contradiction(said.setdefault(key, setting), setting)
    return said


def _read_variable(variable: str, value: str) -> Iterator[tuple[Key, Setting]]:
    try:
        said = parse(_nested(variable, value), Origin(OriginKind.ENVIRONMENT, variable))
    except ConfigError as error:
        if error.accepted is None:
            raise
        # Another program may use the prefix: a variable that nobody asked us to read is not worth a failure.
        warnings.warn(
            f"{variable} is ignored: no setting has this name.{nearest(variable, _known(variable, error.accepted))}",
            ConfigWarning,
            stacklevel=2,
        )
        return
    yield from said.settings.items()


def _nested(variable: str, value: str) -> dict[str, Any]:
    steps = variable.removeprefix(PREFIX).lower().split(_NESTS)
    if steps[0] == "devices" and len(steps) > 1:
        steps[1] = _DEVICE_NUMBER.sub(r":\1", steps[1])
    table: Any = value
    for step in reversed(steps):
        table = {step: table}
    return dict(table)


def _known(variable: str, accepted: tuple[str, ...]) -> list[str]:
    """Return what could have been meant: variables with a fixed name, and those that differ in the last step."""
    fixed = [PREFIX + _NESTS.join(key).upper() for key in defaults()]
    beside, nests, _ = variable.rpartition(_NESTS)
    return [CONFIG_VARIABLE, *fixed, *(f"{beside}{nests}{name.upper()}" for name in accepted if nests)]


def _refuse_contradiction(first: Setting, second: Setting) -> None:
    if first.value != second.value:
        raise ConfigError(
            origin=f"{first.origin} and {second.origin}",
            key=first.key,
            problem=f"they say different things, {first.value!r} and {second.value!r}. Unset one of them",
        )
