"""Functions of the CUDA driver that compiled code calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allotment.errors import PlatformError

if TYPE_CHECKING:
    from allotment.platform._protocol import Platform


def driver_functions(platform: Platform, *names: str) -> tuple[int, ...]:
    """Return the addresses of functions of the driver, in the order of their names; none if it has not all of them."""
    try:
        found = tuple(platform.driver_entry_point(name) for name in names)
    except PlatformError:
        return ()
    return found if all(found) else ()
