"""The tables ``[plugins.NAME]``: which plugin each is about, and whether that takes what is said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from allotment import configuration
from allotment.errors import ConfigError
from allotment.registry._current import current
from allotment.registry._record import PluginStatus

if TYPE_CHECKING:
    from allotment.registry._hooks import Configurable

_OUT: Final = (PluginStatus.DISABLED, PluginStatus.INCOMPATIBLE)
"""Plugins of these statuses have no claim to their name."""

_UNKNOWN: Final = "no plugin of this name can be configured here; options of an allocator belong to allocators.NAME"


def check_plugin_tables() -> None:
    """Refuse what is configured for a plugin that does not exist, and what a plugin does not take.

    What is said to one that is switched off or cannot be loaded is no error here: that one is a record with its reason.

    Raises
    ------
    ConfigError
        With the place, the key, and what is accepted there.
    """
    for name in configuration.current().configured_plugins():
        owner = owner_of_table(name)
        if owner.is_known:
            configured_options(owner)


def owner_of_table(name: str) -> Configurable:
    """Return the one plugin that a configured table is about, loaded if it can be.

    Raises
    ------
    ConfigError
        If there is none, or more than one.
    """
    hooks = current().hooks
    owners = [each for each in hooks.configurable() if each.record.name == name]
    claims = [each for each in owners if each.record.status not in _OUT]
    if len(claims) > 1:
        names = " and ".join(each.record.provider or "the program" for each in claims)
        raise _refused(name, f"{names} have a plugin of this name. Uninstall or deny all but one of them")
    if not owners:
        known = {each.record.name for each in hooks.configurable() if each.options_type is not None}
        raise _refused(name, _UNKNOWN, known)
    return (claims or owners)[0]


def configured_options(owner: Configurable) -> Any:
    """Return what is configured for a plugin as the options that it declares; ``None`` if it declares none.

    Raises
    ------
    ConfigError
        If something is configured that it does not take.
    """
    return configuration.current().plugin_options(owner.record.name, owner.options_type)


def _refused(name: str, problem: str, accepted: set[str] | None = None) -> ConfigError:
    setting = configuration.current().configured_plugins()[name]
    known = None if accepted is None else tuple(sorted(accepted))
    return ConfigError(origin=str(setting.origin), key=f"plugins.{name}", problem=problem, accepted=known)
