"""Contenders take turns, here, in scopes and in processes of their own."""

import os
from contextlib import contextmanager

import pytest
from benchmarks import measurement
from benchmarks.measurement import Budget, Within, compare
from benchmarks.timing_process import Elsewhere, TimingProcess, started


@pytest.fixture(autouse=True)
def _short_rounds(monkeypatch):
    monkeypatch.setattr(measurement, "ROUND_NS", 20_000)


def test_contenders_are_timed_in_turn():
    order = []
    contenders = {name: Recorder(name, order) for name in "ab"}

    compare("", contenders)

    assert "".join(order).endswith("ab" * measurement.ROUNDS)


class Recorder:
    def __init__(self, name, order):
        self.name, self.order = name, order

    def time(self, times):
        self.order.append(self.name)
        return times * 100


def test_what_a_contender_costs_is_the_median_of_its_rounds_less_an_empty_call(monkeypatch):
    monkeypatch.setattr(measurement, "time_loop", lambda _, times: times * 30)

    found = compare("", {"a": Recorder("a", [])}).figures[0]

    assert (found.ns, found.spread_ns) == (70, 0)


def test_a_budget_needs_its_contender_and_its_reference():
    alone, beside = Budget(at_most=9), Budget(at_most=1, reference="b")

    found = compare("", {"a": Recorder("a", [])}, {"a": (alone, beside), "b": (alone,)})

    assert found.budgets == {"a": (alone,)}


def test_a_call_within_a_scope_is_made_inside_it_alone():
    inside, seen = [], set()

    @contextmanager
    def scope():
        inside.append(True)
        yield
        inside.pop()

    assert Within(scope, lambda: seen.add(len(inside))).time(3) > 0
    assert (seen, inside) == ({1}, [])


def prepare(name):
    print("a greeting")
    if name == "broken":
        raise ImportError("there is no\nlibrary")
    return {"call": int, "end": lambda: os._exit(3), "raise": lambda: 1 / 0}


def test_a_process_times_its_calls_when_it_is_asked_to():
    missing = {}

    with started(prepare, {"a": ("a",), "b": ("b",)}, missing) as processes:
        found = compare("", {name: Elsewhere(process, "call") for name, process in processes.items()})

    assert [figure.name for figure in found.figures] == ["a", "b"]
    assert missing == {}


def test_a_process_that_cannot_prepare_is_missing_with_the_reason():
    missing = {}

    with started(prepare, {"broken": ("broken",), "good": ("good",)}, missing) as processes:
        assert [*processes] == ["good"]

    assert missing == {"broken": "ImportError: there is no library"}


@pytest.mark.parametrize(
    ("call", "problem"),
    [("raise", "ZeroDivisionError: division by zero"), ("end", "its process ended with exit code 3")],
)
def test_a_process_that_fails_later_tells_why(call, problem):
    process = TimingProcess(prepare, "good")
    process.wait_until_ready()
    try:
        with pytest.raises(RuntimeError, match=problem):
            process.time(call, 1)
    finally:
        process.close()
