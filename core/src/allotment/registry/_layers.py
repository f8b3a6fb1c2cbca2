"""The layers that are installed, and the class that a name means."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from allotment.errors import ConfigError
from allotment.registry._catalogue import Catalogue, NotUsable, making_problem, options_problem
from allotment.registry._policy import PluginPolicy

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
        "trace": "allotment.layers.trace:Trace",
        "track": "allotment.layers.track:Track",
    }
)
"""The layers that core brings, by name."""


class LayerCatalogue(Catalogue):
    """The layers that can be asked for by name.

    Parameters
    ----------
    policy, core_version
        See `Catalogue`.
    """

    __slots__ = ()

    def __init__(self, policy: Callable[[], PluginPolicy] = PluginPolicy, core_version: str | None = None) -> None:
        super().__init__(GROUP, "layer", layer_problem, BUILTIN, policy, core_version)

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
        try:
            layer: type[Any] = self.load(name)
        except NotUsable as refusal:
            raise ConfigError(
                origin=origin, key=f"{key}.{name}", problem=refusal.problem, accepted=refusal.accepted or None
            ) from refusal.__cause__
        return layer


def layer_problem(layer: object) -> str | None:
    """Return why an object is certainly no layer, or ``None``."""
    if not isinstance(layer, type):
        return f"{layer!r} is no class"
    place = getattr(layer, "place", None)
    if not isinstance(place, int) or isinstance(place, bool):
        return f"its place is {place!r}, not a number such as those of allotment.layers.layer.Place"
    if not callable(getattr(layer, "wrap", None)):
        return "it has no method wrap(calls, account)"
    return options_problem(layer) or making_problem(layer, "its options and a device", None, None)
