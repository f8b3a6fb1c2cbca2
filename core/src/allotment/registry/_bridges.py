"""The bridges that are installed, and the class that a name means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from allotment._wording import listed, nearest
from allotment.errors import BridgeError
from allotment.registry._catalogue import Catalogue, NotUsable, making_problem, options_problem
from allotment.registry._policy import PluginPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

GROUP: Final = "allotment.bridges"
"""The group of entry points; an entry point's name is what a user types."""


class BridgeCatalogue(Catalogue):
    """The bridges that can be asked for by name.

    Parameters
    ----------
    policy, core_version
        See `Catalogue`.
    """

    __slots__ = ()

    def __init__(self, policy: Callable[[], PluginPolicy] = PluginPolicy, core_version: str | None = None) -> None:
        super().__init__(GROUP, "bridge", bridge_problem, {}, policy, core_version)

    def get(self, name: str) -> type[Any]:
        """Return the class of a bridge, imported and checked.

        Raises
        ------
        BridgeError
            If there is no such bridge, several distributions provide it, it may not be used, or it is broken.
        """
        try:
            bridge: type[Any] = self.load(name)
        except NotUsable as refusal:
            remedy = refusal.remedy or _remedy(name, refusal.accepted)
            raise BridgeError(bridge=name, cause=refusal.problem, remedy=remedy) from refusal.__cause__
        return bridge


def _remedy(name: str, installed: tuple[str, ...]) -> str:
    return (
        f"Installed bridges: {listed(installed)}.{nearest(name, installed)} "
        f"The bridge to a library comes with: pip install allotment-{name}-bridge."
    )


def bridge_problem(bridge: object) -> str | None:
    """Return why an object is certainly no bridge, or ``None``."""
    if not isinstance(bridge, type):
        return f"{bridge!r} is no class"
    lacking = [
        name
        for name in ("availability", "install", "uninstall", "describe")
        if not callable(getattr(bridge, name, None))
    ]
    if lacking:
        return f"it has no method {listed(lacking)}"
    return options_problem(bridge) or making_problem(bridge, "its options", None)
