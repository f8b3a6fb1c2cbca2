"""The versions of Python and of Allotment."""

from __future__ import annotations

import platform
import sys
from typing import TYPE_CHECKING

from allotment._version import version
from allotment.cli.doctor._finding import ok, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allotment.cli.doctor._finding import Finding


def examine_versions() -> Iterator[Finding]:
    """Yield what runs here."""
    yield ok("Python", f"{platform.python_version()} at {sys.executable}")
    if version() == "unknown":
        yield warning(
            "Allotment",
            "runs from source without being installed: its version is unknown, and so is which plugins fit it",
            "python3 dev setup",
        )
    else:
        yield ok("Allotment", version())
