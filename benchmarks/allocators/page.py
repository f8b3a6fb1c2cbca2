"""The page of a run: verdicts, then a section a group of workloads, each with a table a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.allocators.catalogue import GROUPS, entries
from benchmarks.allocators.cell import Outcome
from benchmarks.allocators.contenders import ROSTER, Side
from benchmarks.report import in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.allocators.cell import Cell, Results
    from benchmarks.allocators.verdict import Verdict

METHOD = """\
Written by `python3 dev bench --only allocators`. Every contender got the same requests, made once from fixed seeds or
read from a recording, and each pair of contender and workload had a process of its own, one at a time, that saw one
device. A pair is an allocation with its free. *Cold* is the first pass in the process (of churn and pairs: the very
first pair), *warm* the median of the passes after it; the JSON file beside this page has all of them. Times are those
of the calls and of a loop in Python around them, which the row `null` shows alone; of churn and pairs the cost of an
empty call is taken off. × is the time in units of {reference}: below 1 is faster than it. Nothing touches the memory.

*Reserved / requested* is what the contender held of the device at most, by its own high-water mark where it has one
(of CuPy's MemoryPool and of RMM's pools: what they drew from cudaMalloc), in the first pass, over what was live at
most. It is left out where a request failed. RMM's pools grow from nothing; its arena begins with half of the
device."""

VERDICTS = {True: "met", False: "**missed**", None: "not measured"}
OF_TIMES_ONLY = ("churn", "pairs", "threads")
"""Groups in which what is held says nothing, or depends on chance."""


def page(about: dict[str, Any], results: Results, verdicts: Sequence[Verdict], pictures: Sequence[str]) -> str:
    """Return the page in Markdown."""
    reference = _reference(results)
    lines = [
        "# Allocators side by side",
        "",
        METHOD.format(reference=reference or "the first row"),
        "",
        in_words(about),
        "",
        *_verdict_lines(verdicts),
        *(line for picture in pictures for line in (f"![{picture}](allocators-{picture}.svg)", "")),
        *(line for group, title in GROUPS.items() for line in _group(results, group, title, reference)),
        *_unmeasured(results),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _reference(results: Results) -> str | None:
    """Return the first contender of ours that has a figure."""
    measured = {cell.contender for cell in results.of(Outcome.MEASURED)}
    return next((c.name for c in ROSTER if c.side is Side.OURS and c.name in measured), None)


def _verdict_lines(verdicts: Sequence[Verdict]) -> Iterator[str]:
    yield from ("## Budgets", "", "| budget | measured | |", "|---|---|---|")
    for verdict in verdicts:
        yield f"| {verdict.budget} | {verdict.found} | {VERDICTS[verdict.met]} |"
    yield ""


def _group(results: Results, group: str, title: str, reference: str | None) -> Iterator[str]:
    names = [entry.name for entry in entries().values() if entry.group == group]
    cells = {(cell.contender, cell.workload): cell for cell in results.of(Outcome.MEASURED) if cell.workload in names}
    if not cells:
        return

    def warm(cell: Cell) -> str:
        base = reference and results.ns(reference, cell.workload)
        return "" if cell.ns is None else f"{cell.ns:,.0f}" + (f" ({cell.ns / base:.2f} ×)" if base else "")

    figures: dict[str, Callable[[Cell], str]] = {
        "Warm, ns a pair": warm,
        "Slowest / fastest warm pass": lambda cell: _ratio(cell.spread),
        "Cold, ns a pair": lambda cell: f"{cell.cold_ns:,.0f}",
    }
    if group not in OF_TIMES_ONLY:
        figures["Reserved / requested"] = lambda cell: _ratio(cell.reserved_ratio)
    if any(cell.failures for cell in cells.values()):
        figures["Requests that failed for lack of memory"] = lambda cell: f"{cell.failures:,} of {cell.pairs:,}"
    yield from (f"## {group}", "", f"{title}.", "")
    for figure, say in figures.items():
        yield from _table(figure, names, cells, say)


def _ratio(value: float | None) -> str:
    return f"{value:.3f}" if value else ""


def _table(
    figure: str, workloads: Sequence[str], cells: dict[tuple[str, str], Cell], say: Callable[[Cell], str]
) -> Iterator[str]:
    columns = [name for name in workloads if any(workload == name for _, workload in cells)]
    contenders = list(dict.fromkeys(contender for contender, _ in cells))
    yield f"| {figure} | {' | '.join(name.partition('/')[2] for name in columns)} |"
    yield "|---|" + "---:|" * len(columns)
    for contender in sorted(contenders, key=_place):
        found = [cells.get((contender, name)) for name in columns]
        yield f"| {contender} | {' | '.join(say(cell) if cell else '' for cell in found)} |"
    yield ""


def _place(contender: str) -> int:
    names = [each.name for each in ROSTER]
    return names.index(contender) if contender in names else len(names)


def _unmeasured(results: Results) -> Iterator[str]:
    titles = {Outcome.FAILED: "Failed", Outcome.NOT_THERE: "Not measured", Outcome.NOT_BEGUN: "Not begun"}
    for outcome, title in titles.items():
        cells = results.of(outcome)
        if cells:
            yield from (f"## {title}", "")
            yield from (
                f"- {' at '.join(filter(None, (c.contender, c.workload)))}: {_one_line(c.reason)}" for c in cells
            )
            yield ""


def _one_line(text: str) -> str:
    return " ".join(text.split())
