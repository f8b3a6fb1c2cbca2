"""The page that tells how the suites went."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import asdict
from importlib import metadata
from typing import TYPE_CHECKING, Any

from benchmarks.report import about_this_run, in_words, page_with_table
from tests.suites.comparison import OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.suites.comparison import Comparison, Difference

INTRODUCTION = (
    "The tests that Numba, CuPy and Warp have of their memory and arrays, run without Allotment and with the library "
    "drawing from it through its bridge. Nothing in the tests was changed. Written by `python3 -m tests.suites`."
)
COLUMNS = [
    *("library", "allocator", "tests", "passed", "failed", "skipped", "other"),
    *("differences", "explained", "not repeated", "unexplained"),
]
MOST_FAILURES = 5
"""How many causes of failures that have nothing to do with Allotment are told."""
TITLES = {"numba": "Numba", "cupy": "CuPy", "warp": "NVIDIA Warp"}


def write(folder: Path, comparisons: Sequence[Comparison], seconds: float) -> Path:
    """Write the comparisons as JSON and as a page; return the page."""
    folder.mkdir(parents=True, exist_ok=True)
    about = about_this_run()
    found = {"about": about, "seconds": round(seconds), "comparisons": [_as_data(each) for each in comparisons]}
    (folder / "suites.json").write_text(json.dumps(found, indent=1) + "\n")
    page = folder / "suites.md"
    page.write_text(page_of(comparisons, in_words(about)))
    return page


def page_of(comparisons: Sequence[Comparison], where: str) -> str:
    """Return the page."""
    rows = (row for each in comparisons for row in rows_of(each))
    rest = (line for each in comparisons for line in section_of(each))
    return page_with_table("The libraries' own tests", INTRODUCTION, where, COLUMNS, rows, rest)


def rows_of(comparison: Comparison) -> list[str]:
    """Return the rows of the table: the suite without Allotment, and with it."""
    title = f"{TITLES[comparison.suite.library]} {_version(comparison.suite.distribution)}"
    differences = comparison.differences
    explained = sum(each.reason is not None for each in differences)
    passing = sum(each.reason is None and each.is_repeated is False for each in differences)
    ends = f"{len(differences)} | {explained} | {passing} | {len(comparison.unexplained)}"
    name = comparison.way.name
    return [
        f"| {title} | its own, beside `{name}` | {_counts(comparison.without)} | | | | |",
        f"| | `{name}` | {_counts(comparison.with_bridge)} | {ends} |",
    ]


def _counts(counts: Counter[str]) -> str:
    failed = counts["failed"] + counts["error"]
    other = sum(counts[name] for name in OUTCOMES if name not in ("passed", "failed", "error", "skipped"))
    return f"{counts.total()} | {counts['passed']} | {failed} | {counts['skipped']} | {other}"


def section_of(comparison: Comparison) -> list[str]:
    """Return what there is to say of a comparison."""
    by_reason: defaultdict[str, list[Difference]] = defaultdict(list)
    for each in comparison.differences:
        if each.reason is not None:
            by_reason[each.reason].append(each)
    passing = [each for each in comparison.differences if each.reason is None and each.is_repeated is False]
    lines = [f"## {TITLES[comparison.suite.library]} with `{comparison.way.name}`", ""]
    lines += [f"Drawn from Allotment: {_drawn(comparison)}.", ""]
    if comparison.suite.why_left_out:
        lines += [f"Left out in every way: {comparison.suite.why_left_out}", ""]
    lines += [f"- Incomplete: {problem}" for problem in dict.fromkeys(comparison.problems)]
    lines += _failures(comparison)
    for reason, differences in by_reason.items():
        lines += [f"{reason}", "", *map(_line, differences), ""]
    if passing:
        lines += ["Not so again when they were run alone, in both ways:", "", *map(_line, passing), ""]
    if comparison.unexplained:
        lines += ["**Not explained:**", "", *(_line(each, why=True) for each in comparison.unexplained), ""]
    return [*lines, ""]


def _failures(comparison: Comparison) -> list[str]:
    """Return what tests say that fail in both ways, the most frequent first."""
    if not comparison.failures:
        return []
    most = [f"- {count} × `{_quotable(why)}`" for why, count in comparison.failures.most_common(MOST_FAILURES)]
    return [
        f"Failed in both ways: {comparison.failures.total()}. What most of them say without Allotment:",
        "",
        *most,
        "",
    ]


def _quotable(text: str) -> str:
    return " ".join(text.split()).replace("`", "'")


def _line(difference: Difference, *, why: bool = False) -> str:
    text = f"- `{difference.test}`: {difference.without} → {difference.with_bridge}"
    said = _quotable(difference.why)
    return f"{text}: {said}" if why and said else text


def _drawn(comparison: Comparison) -> str:
    accounts = comparison.accounts.items()
    return (
        "; ".join(
            f"{figures['allocations']:,} blocks of {name}, of which {figures['frees']:,} were given back before the "
            f"processes ended, at most {figures['peak'] / 2**20:,.0f} MiB at a time"
            + (f", {figures['failed_frees']} frees failed" if figures["failed_frees"] else "")
            for name, figures in accounts
        )
        or "nothing"
    )


def _as_data(comparison: Comparison) -> dict[str, Any]:
    return {
        "library": comparison.suite.library,
        "version": _version(comparison.suite.distribution),
        "allocator": comparison.way.name,
        "without": dict(comparison.without),
        "with": dict(comparison.with_bridge),
        "differences": [asdict(each) for each in comparison.differences],
        "accounts": comparison.accounts,
        "failures": dict(comparison.failures.most_common()),
        "problems": comparison.problems,
    }


def _version(distribution: str) -> str:
    for name in distribution.split(" or "):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return ""
