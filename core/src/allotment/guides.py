"""What the guides know by other names, and finds its place here: ``utils``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from allotment import registry
from allotment.configuration import BUILT_IN

if TYPE_CHECKING:
    from collections.abc import Callable


class GuideNames:
    """The names that the guides have below ``utils``. Each is looked up when it is asked for."""

    @property
    def AllocatorRmm(self) -> Callable[..., Any]:  # noqa: N802 - the guides' name
        """The class of the installed allocator over RMM. Made without arguments, it draws from RMM's current resource.

        Raises
        ------
        PluginError
            If no such allocator is installed, or it cannot be loaded.
        """
        return registry.current().get(BUILT_IN.rmm).factory

    def __dir__(self) -> list[str]:
        return ["AllocatorRmm"]


utils: Final = GuideNames()
"""What the guides call ``utils``."""
