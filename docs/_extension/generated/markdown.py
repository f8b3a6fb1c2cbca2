"""Markdown, as the generated parts need it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a cell is Markdown on one line."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def code(text: object) -> str:
    """Return text as code."""
    return f"`{text}`"


def prose(docstring: str) -> str:
    """Return the text of a docstring with its reStructuredText code marks as Markdown's."""
    return re.sub(r"``(.+?)``", r"`\1`", " ".join(docstring.split()))


def paragraphs(parts: Iterable[str]) -> str:
    """Return parts of a page, one after another."""
    return "\n\n".join(part for part in parts if part)
