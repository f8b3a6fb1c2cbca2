"""Timing calls fairly: all contenders in turn, round after round, the median of the rounds."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from statistics import median
from time import perf_counter_ns
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROUNDS = 15
ROUND_NS = 20_000_000
"""Each contender runs for about this long in a round: long against the clock, short against drifts of the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a figure should be: at most ``at_most`` × ``reference``, or at most ``at_most`` ns without a reference."""

    at_most: float
    reference: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What one contender's call costs.

    Parameters
    ----------
    name
        The contender.
    ns
        The median over rounds, in nanoseconds a call.
    spread_ns
        Half the distance between the quartiles of the rounds.
    """

    name: str
    ns: float
    spread_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Contenders that did the same work in turn.

    Parameters
    ----------
    title
        The work.
    figures
        A figure a contender.
    budgets
        By contender; one may have several.
    missing
        Contenders that could not run, and why.
    """

    title: str
    figures: tuple[Figure, ...]
    budgets: Mapping[str, tuple[Budget, ...]]
    missing: Mapping[str, str]

    def ns(self, name: str) -> float:
        """Return the figure of a contender."""
        return next(figure.ns for figure in self.figures if figure.name == name)


def time_loop(call: Callable[[], object], times: int) -> int:
    """Return the nanoseconds that ``times`` calls take."""
    rounds = range(times)
    start = perf_counter_ns()
    for _ in rounds:
        call()
    return perf_counter_ns() - start


def calls_a_round(call: Callable[[], object]) -> int:
    """Return how many calls fill a round."""
    times = 1
    while time_loop(call, times) < ROUND_NS // 10:
        times *= 2
    return max(1, times * ROUND_NS // max(time_loop(call, times), 1))


def _nothing() -> None:
    pass


def compare(
    title: str,
    contenders: Mapping[str, Callable[[], object]],
    budgets: Mapping[str, tuple[Budget, ...]] | None = None,
    missing: Mapping[str, str] | None = None,
) -> Comparison:
    """Time contenders in turn. The cost of the loop and of an empty call is taken off each."""
    calls = {"": _nothing, **contenders}
    times = {name: calls_a_round(call) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    gc.collect()
    gc.disable()
    try:
        for _ in range(ROUNDS):
            for name, call in calls.items():
                samples[name].append(time_loop(call, times[name]) / times[name])
    finally:
        gc.enable()
    floor = median(samples.pop(""))
    figures = tuple(_figure(name, values, floor) for name, values in samples.items())
    return Comparison(title=title, figures=figures, budgets=budgets or {}, missing=missing or {})


def _figure(name: str, samples: list[float], floor: float) -> Figure:
    ordered = sorted(samples)
    quarter = len(ordered) // 4
    spread = (ordered[-1 - quarter] - ordered[quarter]) / 2
    return Figure(name=name, ns=median(samples) - floor, spread_ns=spread)
