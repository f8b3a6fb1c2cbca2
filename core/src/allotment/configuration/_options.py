"""Turning what was said about an allocator into the options that it declares."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from allotment.configuration._origin import OriginKind, Setting
from allotment.configuration._reading import read
from allotment.errors import ConfigError, PluginLoadError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Options = TypeVar("Options")


def decode_options(
    owner: str, options_type: type[Options] | None, said: Iterable[Setting], table: str = "allocators"
) -> Options | None:
    """Return the options of an allocator or a layer.

    Parameters
    ----------
    owner
        Its name.
    options_type
        The dataclass that it declares; ``None`` if it takes no options.
    said
        What was said about its options, the weakest first. All of it is checked, also what a stronger place overrules.
    table
        The key that its name stands below.

    Returns
    -------
    Options or None
        An instance of ``options_type``; ``None`` if that is ``None``.

    Raises
    ------
    ConfigError
        For an option that does not exist, a value of the wrong type, or one that the dataclass itself refuses with
        `ValueError` or `TypeError`.
    PluginLoadError
        If the annotations of the dataclass cannot be read.
    """
    key, accepted = f"{table}.{owner}", _accepted(owner, options_type)
    strongest: dict[str, Setting] = {}
    values: dict[str, Any] = {}
    for setting in said:
        option = setting.key.removeprefix(f"{key}.")
        strongest[option], values[option] = setting, _read_option(option, setting, accepted)
    if options_type is None:
        return None
    _require(key, options_type, values)
    try:
        return options_type(**values)
    except (TypeError, ValueError) as error:
        raise _refused(key, strongest, error) from error


def _accepted(owner: str, options_type: type | None) -> Mapping[str, Any]:
    if options_type is None:
        return {}
    try:
        hints = get_type_hints(options_type, include_extras=True)
    except NameError as error:
        cause = f"the annotations of its options cannot be read: {error}"
        raise PluginLoadError(allocator=owner, cause=cause) from error
    return {option.name: hints[option.name] for option in fields(options_type) if option.init}


def _read_option(option: str, setting: Setting, accepted: Mapping[str, Any]) -> Any:
    origin = str(setting.origin)
    if option not in accepted:
        raise ConfigError(origin=origin, key=setting.key, problem="unknown key", accepted=tuple(accepted))
    try:
        text = setting.origin.kind is OriginKind.ENVIRONMENT and isinstance(setting.value, str)
        return read(setting.value, accepted[option], text=text)
    except ValueError as error:
        raise ConfigError(origin=origin, key=setting.key, problem=str(error)) from error


def _require(table: str, options_type: type, values: Mapping[str, Any]) -> None:
    for option in fields(options_type):
        has_default = option.default is not MISSING or option.default_factory is not MISSING
        if option.init and not has_default and option.name not in values:
            key = f"{table}.{option.name}"
            raise ConfigError(origin="configuration", key=key, problem="it has no default and must be said")


def _refused(table: str, said: Mapping[str, Setting], error: Exception) -> ConfigError:
    """Return the error for options that are well-typed one by one and refused by the dataclass."""
    if len(said) == 1:
        (setting,) = said.values()
        return ConfigError(origin=str(setting.origin), key=setting.key, problem=str(error))
    origins = " and ".join(dict.fromkeys(str(setting.origin) for setting in said.values())) or "default"
    return ConfigError(origin=origins, key=table, problem=str(error))
