"""Pages that scripts write beside an index: outcomes of runs on a GPU."""

from __future__ import annotations

from pathlib import Path


def outcomes(folder: str) -> str:
    """Return a table of contents of the pages in a folder, or a sentence if there is none."""
    pages = sorted(page.stem for page in Path(folder).glob("*.md") if page.stem != "index")
    if not pages:
        return "No run has been recorded in this version of the documentation."
    return "\n".join(["```{toctree}", ":maxdepth: 1", "", *pages, "```"])
