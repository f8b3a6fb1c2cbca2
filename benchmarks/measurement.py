"""Timing calls fairly: all contenders in turn, round after round, the median of the rounds."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from statistics import median
from time import perf_counter_ns
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

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


class Timed(Protocol):
    """A contender that sees to its own timing."""

    def time(self, times: int, /) -> int:
        """Return the nanoseconds that ``times`` calls take."""
        ...


@dataclass(frozen=True, slots=True)
class Within:
    """A contender that is timed inside a scope, which is entered for each round.

    Parameters
    ----------
    scope
        Makes the scope.
    call
        The call.
    """

    scope: Callable[[], AbstractContextManager[object]]
    call: Callable[[], object]

    def time(self, times: int) -> int:
        """Return the nanoseconds that ``times`` calls take, after one that meets the scope first."""
        with self.scope():
            self.call()
            return time_loop(self.call, times)


@dataclass(frozen=True, slots=True)
class _Here:
    """A contender that is called as it is."""

    call: Callable[[], object]

    def time(self, times: int) -> int:
        return time_loop(self.call, times)


def time_loop(call: Callable[[], object], times: int) -> int:
    """Return the nanoseconds that ``times`` calls take."""
    rounds = range(times)
    start = perf_counter_ns()
    for _ in rounds:
        call()
    return perf_counter_ns() - start


def calls_a_round(contender: Callable[[], object] | Timed) -> int:
    """Return how many calls fill a round."""
    timed, times = _timed(contender), 1
    while timed.time(times) < ROUND_NS // 10:
        times *= 2
    return max(1, times * ROUND_NS // max(timed.time(times), 1))


def _nothing() -> None:
    pass


def compare(
    title: str,
    contenders: Mapping[str, Callable[[], object] | Timed],
    budgets: Mapping[str, tuple[Budget, ...]] | None = None,
    missing: Mapping[str, str] | None = None,
) -> Comparison:
    """Time contenders in turn. The cost of the loop and of an empty call is taken off each.

    Budgets of contenders and against references that could not run are left out.
    """
    timed = {name: _timed(contender) for name, contender in {"": _nothing, **contenders}.items()}
    times = {name: calls_a_round(contender) for name, contender in timed.items()}
    samples: dict[str, list[float]] = {name: [] for name in timed}
    gc.collect()
    gc.disable()
    try:
        for _ in range(ROUNDS):
            for name, contender in timed.items():
                samples[name].append(contender.time(times[name]) / times[name])
    finally:
        gc.enable()
    floor = median(samples.pop(""))
    figures = tuple(_figure(name, values, floor) for name, values in samples.items())
    asked = {
        name: tuple(budget for budget in given if budget.reference is None or budget.reference in contenders)
        for name, given in (budgets or {}).items()
        if name in contenders
    }
    return Comparison(title=title, figures=figures, budgets=asked, missing=missing or {})


def _timed(contender: Callable[[], object] | Timed) -> Timed:
    return contender if hasattr(contender, "time") else _Here(contender)


def _figure(name: str, samples: list[float], floor: float) -> Figure:
    ordered = sorted(samples)
    quarter = len(ordered) // 4
    spread = (ordered[-1 - quarter] - ordered[quarter]) / 2
    return Figure(name=name, ns=median(samples) - floor, spread_ns=spread)
