from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest
from benchmarks.allocators import catalogue
from benchmarks.allocators.cell import Cell, Outcome, Results
from benchmarks.allocators.page import page
from benchmarks.allocators.pictures import draw
from benchmarks.allocators.suite import write
from benchmarks.allocators.verdict import judge

ABOUT = {
    "date": "2026-11-29",
    "devices": ["NVIDIA H200"],
    "platform": "cuda",
    "python": "3.12.3",
    "packages": {"numpy": "2"},
}

OURS, CUPY, TORCH, EXPANDABLE = "al caching", "CuPy MemoryPool", "PyTorch", "PyTorch expandable"


def cell(contender, workload, ns, reserved=None, **fields):
    return Cell(
        contender=contender,
        workload=workload,
        pairs=10,
        cold_ns=ns * 10,
        warm_ns=(ns, ns * 0.5, ns * 2),
        peak_requested=reserved and 100,
        peak_reserved=reserved,
        **fields,
    )


CELLS = (
    cell(OURS, "churn/256 B", 150.0),
    cell(CUPY, "churn/256 B", 600.0),
    cell(OURS, "churn/1 MiB", 300.0),
    cell(CUPY, "churn/1 MiB", 600.0),
    cell("cudaMalloc", "churn/1 MiB", 90_000.0),
    cell(OURS, "pairs/1,000", 100.0),
    cell(OURS, "pairs/1,000,000", 160.0),
    cell(OURS, "trace/gpt2_train", 400.0, 102),
    cell(TORCH, "trace/gpt2_train", 500.0, 110),
    cell(EXPANDABLE, "trace/gpt2_train", 500.0, 103),
    cell(OURS, "trace/gpt2_serve", 400.0, 130),
    cell(TORCH, "trace/gpt2_serve", 500.0, 127),
    cell(OURS, "minimalloc/A", 400.0, 130),
    cell("RMM pool", "minimalloc/A", 500.0, 120),
    cell(OURS, "pressure/1.0 ×", 400.0, 100, failures=3),
    Cell(contender="RMM pool", workload="mix/1 MiB", outcome=Outcome.FAILED, reason="no answer in\n45 s"),
    Cell(contender="RMM arena", workload="", outcome=Outcome.NOT_THERE, reason="No module named 'rmm'"),
)


def lines(text, start):
    return [line for line in text.splitlines() if line.startswith(start)]


@pytest.fixture
def text():
    results = Results(CELLS)
    return page(ABOUT, results, judge(results), ["churn"])


def verdicts():
    return {verdict.budget: verdict for verdict in judge(Results(CELLS))}


def test_a_budget_that_is_met_and_one_that_is_missed_are_told_alike(text):
    assert "| 256 B pair ≤ 0.35 × CuPy MemoryPool | 150 ns / 600 ns = 0.25 × | met |" in text
    assert "| 1 MiB pair ≤ 0.35 × CuPy MemoryPool | 300 ns / 600 ns = 0.50 × | **missed** |" in text


def test_a_pair_is_judged_against_the_fastest_peer():
    assert verdicts()["1 MiB pair below every peer, ns"].found == "300 against 600 of CuPy MemoryPool"


def test_many_live_blocks_are_judged_against_few():
    assert verdicts()["pair beside 10^6 live blocks ≤ 1.5 × beside 10^3"].met is False


def test_a_trace_is_judged_against_the_better_setting_of_pytorch():
    verdict = verdicts()["trace/gpt2_train reserved / requested below both PyTorch settings"]

    assert (verdict.found, verdict.met) == ("1.0200 against 1.0300 of PyTorch expandable", True)


def test_a_trace_that_one_setting_did_not_replay_is_not_judged():
    assert verdicts()["trace/gpt2_serve reserved / requested below both PyTorch settings"].met is None


def test_a_problem_of_minimalloc_is_judged_against_every_peer_measured():
    verdict = verdicts()["minimalloc/A reserved / requested below every peer"]

    assert (verdict.found, verdict.met) == ("1.3000 against 1.2000 of RMM pool", False)


def test_what_was_not_measured_is_not_judged():
    assert {verdict.met for verdict in judge(Results(()))} == {None}


def test_a_time_is_told_with_its_ratio_to_ours(text):
    assert "| cudaMalloc |  | 90,000 (300.00 ×) |" in text


def test_memory_is_left_out_where_a_request_failed(text):
    assert lines(text, "| al caching | 3 of 10 |")
    assert "| Reserved / requested | 1.0 × |\n|---|---:|\n| al caching |  |" in text


def test_what_failed_and_what_is_not_there_is_named_with_its_reason(text):
    assert "- RMM pool at mix/1 MiB: no answer in 45 s" in text
    assert "- RMM arena: No module named 'rmm'" in text


def test_the_page_says_when_and_where(text):
    assert "2026-11-29, NVIDIA H200, Python 3.12.3, numpy 2." in text


def test_every_table_is_whole(text):
    tables = [part.splitlines() for part in text.split("\n\n") if part.startswith("|")]

    assert len(tables) > 10
    assert [table for table in tables if len({row.count("|") for row in table}) != 1] == []


def test_every_workload_is_in_a_group_with_a_title():
    assert {entry.group for entry in catalogue.entries().values()} == catalogue.GROUPS.keys()


def test_the_json_file_has_all_cells_and_verdicts(tmp_path):
    path = write(Results(CELLS), tmp_path)
    found = json.loads((tmp_path / "allocators.json").read_text())

    assert path == tmp_path / "allocators.md"
    assert len(found["cells"]) == len(CELLS)
    assert found["cells"][0]["warm_ns"] == [150.0, 75.0, 300.0]
    assert found["cells"][-1]["outcome"] == "not there"
    assert found["verdicts"][0]["met"] is True


def test_pictures_are_drawn_of_what_is_complete(tmp_path):
    pytest.importorskip("matplotlib")
    sizes = tuple(cell(OURS, f"churn/{size}", 100.0) for size in catalogue.CHURN)

    assert draw(Results(sizes), tmp_path) == ["churn"]
    assert ET.parse(tmp_path / "allocators-churn.svg").getroot().tag.endswith("svg")
