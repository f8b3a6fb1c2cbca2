"""Pieces of the texts that errors and commands have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allotment.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence


def nearest(name: str, candidates: Sequence[str]) -> str:
    """Return a sentence that offers the candidate most like ``name``, or nothing."""
    from difflib import get_close_matches

    spellings = {candidate.lower(): candidate for candidate in candidates}
    matches = get_close_matches(str(name).lower(), spellings, n=1)
    return f" Did you mean {spellings[matches[0]]!r}?" if matches else ""


def sentence(text: str) -> str:
    """Return text with the full stop that ends it, which a reason from elsewhere may have or not."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def listed(names: Sequence[str]) -> str:
    """Return names as a list to read, ``none`` if there are none."""
    return ", ".join(names) if names else "none"


def amount(nbytes: int | None, unknown: str = "unknown") -> str:
    """Return bytes exactly, and as people read them."""
    if nbytes is None:
        return unknown
    return f"{nbytes:,} bytes ({format_bytes(nbytes)})" if nbytes >= 1024 else f"{nbytes} bytes"
