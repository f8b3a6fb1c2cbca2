from __future__ import annotations

import os
from ctypes.util import find_library
from dataclasses import replace

import pytest
from benchmarks.allocators import catalogue
from benchmarks.allocators.cell import Outcome
from benchmarks.allocators.contenders import Side
from benchmarks.allocators.family import can_fork
from benchmarks.allocators.run import run
from benchmarks.allocators.trial import Effort, Trial
from tests.benchmarks.misbehaving import WELL, Absent, Crashing, Hanging, Raising, Reporting, Small, contender

QUICK = Effort(warm_passes=1, seconds=1.0, timeout=20.0)
IMPATIENT = Effort(warm_passes=1, seconds=1.0, timeout=0.5)


def run_some(contenders, *workloads, effort=QUICK):
    return run(contenders, [catalogue.entries()[name] for name in workloads], effort)


def test_a_contender_that_crashes_is_a_failed_cell_and_not_the_end():
    results = run_some([contender(Crashing), WELL], "live/same", "live/reverse")
    failed = results.of(Outcome.FAILED)

    assert [cell.workload for cell in failed] == ["live/same", "live/reverse"]
    assert "exit code -9" in failed[0].reason
    assert results.ns("well", "live/reverse") > 0


def test_a_contender_that_hangs_is_ended():
    results = run_some([contender(Hanging)], "live/same", effort=IMPATIENT)

    assert [cell.reason for cell in results.of(Outcome.FAILED)] == ["no answer in 0.5 s"]


def test_a_contender_that_raises_says_what():
    results = run_some([contender(Raising)], "live/same")

    assert "RuntimeError: an illegal memory access" in results.of(Outcome.FAILED)[0].reason


def test_a_contender_that_is_absent_is_asked_once():
    results = run_some([contender(Absent), WELL], "live/same", "live/reverse")

    assert [(cell.workload, cell.reason) for cell in results.of(Outcome.NOT_THERE)] == [("", "it is not installed")]
    assert len(results.of(Outcome.MEASURED)) == 2


def test_each_trial_has_a_process_of_its_own_with_the_environment_of_its_family():
    results = run_some([contender(Reporting)], "live/same", "live/reverse")
    processes = {cell.peak_reserved for cell in results.cells}

    assert len(processes) == 2
    assert os.getpid() not in processes
    assert {cell.reserved_after for cell in results.cells} == {len("yes")}


def test_failures_for_lack_of_memory_are_figures():
    cell = run_some([contender(Small)], "growth/one").cells[0]

    assert (cell.outcome, cell.failures, cell.pairs) == (Outcome.MEASURED, 200, 200)


def test_a_peer_is_left_out_where_there_is_no_cuda(monkeypatch):
    monkeypatch.setenv("ALLOTMENT_PLATFORM", "host")
    results = run_some([replace(WELL, side=Side.PEER)], "live/same")

    assert [cell.outcome for cell in results.cells] == [Outcome.NOT_THERE]
    assert "needs CUDA" in results.cells[0].reason


def test_a_contender_without_a_limit_is_not_put_under_pressure():
    assert run_some([WELL], "pressure/1.0 ×").cells == ()
    assert len(run_some([replace(WELL, takes_limit=True)], "pressure/1.0 ×").cells) == 1


def test_a_workload_whose_file_is_missing_is_left_out(tmp_path):
    entry = replace(catalogue.entries()["minimalloc/A"], file=tmp_path / "A.csv")

    assert run([WELL], [entry], QUICK).cells == ()


def test_a_trial_that_fails_raises_nothing():
    assert Trial(contender=WELL, workload="no such", effort=QUICK).run().outcome is Outcome.FAILED


def test_a_process_without_a_driver_can_fork():
    if not hasattr(os, "fork") or find_library("cuda"):
        pytest.skip("this system cannot fork, or has a driver")

    assert can_fork()
