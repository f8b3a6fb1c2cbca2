"""Traces that other tools wrote, one module for each format."""

from typing import Final

from allotment.trace.importers import _pytorch, _rmm, _umpire

IMPORTERS: Final = (_pytorch, _rmm, _umpire)
"""The formats, in the order in which they are tried."""

__all__ = ["IMPORTERS"]
