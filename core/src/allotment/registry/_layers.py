"""The layers that are installed, and the class that a name means."""

from __future__ import annotations

import inspect
from dataclasses import is_dataclass
from threading import RLock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from allotment.errors import ConfigError
from allotment.registry._compatibility import CORE, running_version
from allotment.registry._discovery import discover
from allotment.registry._loading import load_object
from allotment.registry._policy import PluginPolicy, chooses
from allotment.registry._record import PluginOrigin, PluginRecord
from allotment.registry._resolution import apply_policy, holders, usable_names

if TYPE_CHECKING:
    from collections.abc import Callable

GROUP: Final = "allotment.layers"
"""The group of entry points; an entry point's name is what a user types."""

BUILTIN: Final = MappingProxyType(
    {
        "fallback": "allotment.layers.fallback:Fallback",
        "fault": "allotment.layers.fault:Fault",
        "guard": "allotment.layers.guard:Guard",
        "ladder": "allotment.layers.ladder:Ladder",
        "limit": "allotment.layers.limit:Limit",
        "prefetch": "allotment.layers.prefetch:Prefetch",
        "track": "allotment.layers.track:Track",
    }
)
"""The layers that core brings, by name."""


class LayerCatalogue:
    """The layers that can be asked for by name.

    Parameters
    ----------
    policy
        Returns the allow and deny lists in force.
    core_version
        The version of core that installed layers are held against; by default the installed one.
    """

    __slots__ = ("_core_version", "_found", "_lock", "_policy")

    def __init__(self, policy: Callable[[], PluginPolicy] = PluginPolicy, core_version: str | None = None) -> None:
        self._policy, self._core_version = policy, core_version
        self._lock = RLock()
        self._found: tuple[PluginRecord, ...] | None = None

    def records(self) -> tuple[PluginRecord, ...]:
        """Return the record of every layer. Imports nothing."""
        with self._lock:
            if self._found is None:
                version = running_version() if self._core_version is None else self._core_version
                self._found = (*discover(GROUP, version), *(_builtin(name, version) for name in BUILTIN))
        return apply_policy(self._found, self._policy())

    def names(self) -> tuple[str, ...]:
        """Return the names that can be asked for."""
        return tuple(sorted(usable_names(self.records())))

    def refresh(self) -> None:
        """Scan the metadata again when it is next needed."""
        self._found = None

    def get(self, name: str, origin: str, key: str) -> type[Any]:
        """Return the class of a layer, imported and checked.

        Parameters
        ----------
        name
            Its name, or ``"distribution:name"``.
        origin, key
            Where it is asked for, for errors.

        Raises
        ------
        ConfigError
            If there is no such layer, several distributions provide it, it may not be used, or it is broken.
        """
        matches = [record for record in self.records() if chooses(name, record)]
        if not matches:
            raise ConfigError(origin=origin, key=f"{key}.{name}", problem="unknown layer", accepted=self.names())
        chosen = holders(matches)
        if len(chosen) != 1:
            raise ConfigError(origin=origin, key=f"{key}.{name}", problem=_not_one(matches, chosen))
        record, layer = load_object(chosen[0])
        problem = record.error or layer_problem(layer)
        if problem is not None:
            raise ConfigError(
                origin=origin, key=f"{key}.{name}", problem=f"the layer of {record.provider} cannot be used: {problem}"
            ) from record.exception
        loaded: type[Any] = layer
        return loaded


def _builtin(name: str, version: str | None) -> PluginRecord:
    return PluginRecord(
        name=name, reference=BUILTIN[name], origin=PluginOrigin.BUILTIN, distribution=CORE, version=version
    )


def _not_one(matches: list[PluginRecord], chosen: list[PluginRecord]) -> str:
    if not chosen:
        return f"the layer of {matches[0].provider} cannot be used: {matches[0].error}"
    forms = " or ".join(repr(record.qualified_name) for record in chosen)
    return f"several distributions have a layer of this name. Ask for one of them as {forms}"


def layer_problem(layer: object) -> str | None:
    """Return why an object is certainly no layer, or ``None``."""
    if not isinstance(layer, type):
        return f"{layer!r} is no class"
    options, place = getattr(layer, "Options", None), getattr(layer, "place", None)
    if not (isinstance(options, type) and is_dataclass(options)):
        return f"its Options are {options!r}, not a dataclass"
    if not isinstance(place, int) or isinstance(place, bool):
        return f"its place is {place!r}, not a number such as those of allotment.layers.layer.Place"
    if not callable(getattr(layer, "wrap", None)):
        return "it has no method wrap(calls, account)"
    try:
        inspect.signature(layer).bind(None, None)
    except TypeError as error:
        return f"it cannot be made from its options and a device: {error}"
    return None if isinstance(getattr(layer, "name", None), str) else "it has no name"
