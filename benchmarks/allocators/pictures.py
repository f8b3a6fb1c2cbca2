"""Pictures of a run: time against size, failures against the cap, and what traces make each contender hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.allocators.catalogue import CAPS, CHURN, RECORDED
from benchmarks.allocators.contenders import ROSTER, Side

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.allocators.cell import Results

STYLES: dict[Side, dict[str, Any]] = {
    Side.OURS: {"linewidth": 2.5},
    Side.PEER: {"linewidth": 1.0},
    Side.FLOOR: {"linestyle": ":"},
}


@dataclass(frozen=True, slots=True)
class Series:
    """The figures of one contender, with its place in the roster."""

    name: str
    side: Side
    place: int
    values: list[Any]


def draw(results: Results, folder: Path) -> list[str]:
    """Draw what can be drawn and return the names of the pictures; none where there is no matplotlib."""
    try:
        import matplotlib as mpl
    except ImportError:
        return []
    mpl.use("svg")
    from matplotlib import pyplot as plt

    colours = mpl.colormaps["tab20"].colors
    drawn = []
    for name, (variants, field, paint) in PICTURES.items():
        found = series(results, name, variants, field)
        if found:
            figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
            paint(axes, found, colours)
            figure.legend(loc="outside right upper", fontsize="small")
            figure.savefig(folder / f"allocators-{name}.svg", metadata={"Date": None})
            plt.close(figure)
            drawn.append(name)
    return drawn


def series(results: Results, group: str, variants: list[str], field: str) -> list[Series]:
    """Return the contenders that have a figure of every variant."""
    found = []
    for place, contender in enumerate(ROSTER):
        cells = [results.find(contender.name, f"{group}/{variant}") for variant in variants]
        values = [getattr(cell, field, None) for cell in cells]
        if None not in values:
            found.append(Series(contender.name, contender.side, place, values))
    return found


def _plot(axes: Any, places: list[Any], found: list[Series], colours: Any) -> None:
    for each in found:
        axes.plot(places, each.values, label=each.name, marker=".", color=colours[each.place], **STYLES[each.side])


def _churn(axes: Any, found: list[Series], colours: Any) -> None:
    _plot(axes, list(CHURN), found, colours)
    axes.set(yscale="log", title="One block allocated and freed, warm", ylabel="ns a pair")


def _pressure(axes: Any, found: list[Series], colours: Any) -> None:
    _plot(axes, list(CAPS), found, colours)
    axes.set(yscale="symlog", title="The random mix under a cap", xlabel="cap / peak requested")
    axes.set_ylabel("requests that failed for lack of memory")


def _trace(axes: Any, found: list[Series], colours: Any) -> None:
    width = 0.8 / len(found)
    for row, each in enumerate(found):
        places = [column + row * width for column in range(len(RECORDED))]
        axes.bar(places, each.values, width * 0.9, label=each.name, color=colours[each.place])
    axes.set_xticks([column + 0.4 - width / 2 for column in range(len(RECORDED))], RECORDED)
    axes.axhline(1, color="black", linewidth=0.5)
    axes.set(title="Peak reserved / peak requested of recorded traces", ylim=(0.9, 2))


PICTURES = {
    "churn": (list(CHURN), "ns", _churn),
    "pressure": ([f"{cap} ×" for cap in CAPS], "failures", _pressure),
    "trace": (list(RECORDED), "reserved_ratio", _trace),
}
"""By group of workloads: the variants that are shown, the figure of each cell, and how they are painted."""
