"""The version of this distribution."""

from functools import cache
from importlib import metadata


@cache
def version() -> str:
    """Return the installed version; ``"unknown"`` where no metadata came along, as in a frozen application."""
    try:
        return metadata.version("allotment")
    except metadata.PackageNotFoundError:
        return "unknown"
