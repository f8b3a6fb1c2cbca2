"""The budgets of issue 6 against what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.allocators import catalogue
from benchmarks.allocators.contenders import ROSTER, Side
from benchmarks.allocators.contenders.roster import CUPY_POOL, JUDGED, TORCH_SETTINGS
from benchmarks.allocators.minimalloc import PROBLEMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from benchmarks.allocators.cell import Results

PEERS = tuple(contender.name for contender in ROSTER if contender.side is Side.PEER)
OF_CUPY = 0.35
OF_FEW_BLOCKS = 1.5
FEW, MANY = "pairs/1,000", "pairs/1,000,000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a budget is met.

    Parameters
    ----------
    budget
        What was wanted.
    found
        What was measured.
    met
        Whether that is within it; ``None`` if it was not measured.
    """

    budget: str
    found: str = "not measured"
    met: bool | None = None


def judge(results: Results) -> list[Verdict]:
    """Return what became of each budget: speed (item 2 of the issue), then memory (item 3)."""
    return [*_speed(results), *_memory(results)]


def _speed(results: Results) -> Iterator[Verdict]:
    for label in catalogue.JUDGED:
        workload = f"churn/{label}"
        ours, cupy = results.ns(JUDGED, workload), results.ns(CUPY_POOL, workload)
        yield _at_most(f"{label} pair ≤ {OF_CUPY} × {CUPY_POOL}", ours, cupy, OF_CUPY)
        yield _below(f"{label} pair below every peer, ns", ours, _known(results.ns, PEERS, workload), "{:,.0f}")
    few, many = results.ns(JUDGED, FEW), results.ns(JUDGED, MANY)
    yield _at_most(f"pair beside 10^6 live blocks ≤ {OF_FEW_BLOCKS} × beside 10^3", many, few, OF_FEW_BLOCKS)


def _memory(results: Results) -> Iterator[Verdict]:
    for peers, workloads in (
        (TORCH_SETTINGS, [f"trace/{name}" for name in catalogue.RECORDED]),
        (PEERS, [f"minimalloc/{letter}" for letter in PROBLEMS]),
    ):
        whom = "both PyTorch settings" if peers is TORCH_SETTINGS else "every peer"
        for workload in workloads:
            ours, theirs = results.reserved(JUDGED, workload), _known(results.reserved, peers, workload)
            missing = peers is TORCH_SETTINGS and len(theirs) < len(peers)
            yield _below(f"{workload} reserved / requested below {whom}", ours, {} if missing else theirs, "{:.4f}")


def _known(figure: Callable[[str, str], float | None], contenders: Iterable[str], workload: str) -> dict[str, float]:
    return {name: value for name in contenders if (value := figure(name, workload)) is not None}


def _at_most(budget: str, value: float | None, reference: float | None, times: float) -> Verdict:
    if value is None or reference is None:
        return Verdict(budget=budget)
    found = f"{value:,.0f} ns / {reference:,.0f} ns = {value / reference:.2f} ×"
    return Verdict(budget=budget, found=found, met=value <= times * reference)


def _below(budget: str, value: float | None, peers: dict[str, float], form: str) -> Verdict:
    if value is None or not peers:
        return Verdict(budget=budget)
    best = min(peers, key=lambda name: peers[name])
    found = f"{form.format(value)} against {form.format(peers[best])} of {best}"
    return Verdict(budget=budget, found=found, met=value < peers[best])
