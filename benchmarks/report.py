"""Writing down what was measured: JSON for machines, a page for people."""

from __future__ import annotations

import json
import platform
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from typing import TYPE_CHECKING, Any

import allotment as al

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from benchmarks.measurement import Budget, Comparison

PACKAGES = (
    "allotment",
    "allotment-caching",
    "cupy-cuda13x",
    "cupy-cuda12x",
    "cuda-bindings",
    "cuda-core",
    "torch",
    "rmm-cu13",
    "rmm-cu12",
    "warp-lang",
    "numpy",
)


def about_this_run() -> dict[str, Any]:
    """Return when and where this is measured."""
    here = al.get_device("cpu").platform
    runtime, driver = here.versions()
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "machine": platform.machine(),
        "devices": [device.name for device in al.get_cuda_devices()],
        "platform": here.name,
        "cuda_runtime": runtime,
        "cuda_driver": driver,
        "packages": {name: metadata.version(name) for name in PACKAGES if _installed(name)},
    }


def in_words(about: dict[str, Any]) -> str:
    """Return when and where something was measured, as a line of a page."""
    where = ", ".join(about["devices"]) or "no GPU"
    if about["platform"] not in ("cuda", "host"):
        where += f" as {about['platform']}"
    packages = ", ".join(f"{name} {version}" for name, version in about["packages"].items())
    return f"{about['date']}, {where}, Python {about['python']}, {packages}."


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def write(comparisons: Sequence[Comparison], folder: Path, name: str) -> Path:
    """Write ``name.json`` and ``name.md``; return the page."""
    folder.mkdir(parents=True, exist_ok=True)
    about = about_this_run()
    found = {"about": about, "comparisons": [asdict(comparison) for comparison in comparisons]}
    (folder / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    page = folder / f"{name}.md"
    page.write_text(_page(about, comparisons, name))
    return page


def page_with_table(
    title: str, introduction: str, where: str, columns: Sequence[str], rows: Iterable[str], rest: Iterable[str]
) -> str:
    """Return a page that begins with a table, whose first two columns are text and whose others are numbers."""
    lines = [f"# {title}", "", introduction, "", where, ""]
    lines += [f"| {' | '.join(columns)} |", "|---|---|" + (len(columns) - 2) * "---:|", *rows, "", *rest]
    return "\n".join(lines).rstrip() + "\n"


def _page(about: dict[str, Any], comparisons: Sequence[Comparison], name: str) -> str:
    head = [
        f"# Costs: {name}",
        "",
        "Written by `python3 dev bench`. Medians of rounds in which all contenders ran in turn, on one machine in one",
        "run; the cost of an empty call is taken off.",
        "",
        in_words(about),
        "",
    ]
    return "\n".join(head + [line for comparison in comparisons for line in _section(comparison)])


def _section(comparison: Comparison) -> list[str]:
    lines = [f"## {comparison.title}", "", "| | ns | ± | budget | met |", "|---|---:|---:|---|---|"]
    for figure in comparison.figures:
        budgets = comparison.budgets.get(figure.name, ())
        said = "; ".join(_said(budget, figure.ns, comparison) for budget in budgets)
        met = "; ".join("yes" if _met(budget, figure.ns, comparison) else "**no**" for budget in budgets)
        lines.append(f"| {figure.name} | {figure.ns:,.0f} | {figure.spread_ns:,.0f} | {said} | {met} |")
    lines += [f"\nNot measured: {name} ({why})." for name, why in comparison.missing.items()]
    return [*lines, ""]


def _said(budget: Budget, ns: float, comparison: Comparison) -> str:
    if budget.reference is None:
        return f"≤ {budget.at_most:,.0f} ns"
    return f"≤ {budget.at_most} × {budget.reference}: {ns / comparison.ns(budget.reference):.2f} ×"


def _met(budget: Budget, ns: float, comparison: Comparison) -> bool:
    unit = 1.0 if budget.reference is None else comparison.ns(budget.reference)
    return ns <= budget.at_most * unit
