from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.allocators import contenders
from benchmarks.allocators.contenders import ROSTER, Side

ROOT = Path(__file__).parents[2]


def run_suite(folder, *arguments, platform="sim:2xh200"):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ALLOTMENT_")}
    command = [sys.executable, "-m", "benchmarks", "--only", "allocators", "--quick", "--out", str(folder), *arguments]
    return subprocess.run(
        command,
        cwd=ROOT,
        env=environment | {"ALLOTMENT_PLATFORM": platform},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    folder = tmp_path_factory.mktemp("out")
    chosen = ["--contender", "al mempool", "--contender", "al default", "--contender", "CuPy*", "--contender", "null"]
    ran = run_suite(folder, *chosen, "--workload", "churn/256 B", "--workload", "streams", "--workload", "trace/two_*")
    assert ran.returncode == 0, ran.stderr
    return ran, json.loads((folder / "allocators.json").read_text())


def cells(outcome, contender):
    return {cell["workload"]: cell for cell in outcome[1]["cells"] if cell["contender"] == contender}


def test_allotments_pool_replays_a_trace_and_says_what_it_held(outcome):
    cell = cells(outcome, "al mempool")["trace/two_stream_pipeline"]

    assert (cell["outcome"], cell["pairs"], cell["failures"]) == ("measured", 800, 0)
    assert cell["peak_reserved"] >= cell["peak_requested"] > 1.5e9
    assert cell["cold_ns"] > 0
    assert min(cell["warm_ns"]) > 0


def test_an_allocator_that_asks_the_driver_each_time_takes_part_in_churn_alone(outcome):
    assert cells(outcome, "al default").keys() == {"churn/256 B"}


def test_a_peer_is_named_with_its_reason(outcome):
    assert "needs CUDA" in cells(outcome, "CuPy MemoryPool")[""]["reason"]


def test_the_page_is_printed_and_says_what_was_simulated(outcome):
    assert "# Allocators side by side" in outcome[0].stdout
    assert "as sim:2xh200" in outcome[0].stdout


def test_the_bar_of_progress_is_not_among_the_results(outcome):
    assert "churn/256 B:" not in outcome[0].stdout


def test_a_contender_that_nobody_knows_is_refused(tmp_path):
    ran = run_suite(tmp_path, "--contender", "jemalloc")

    assert ran.returncode != 0
    assert "jemalloc" in ran.stderr


def test_the_names_of_contenders_differ():
    assert len({contender.name for contender in ROSTER}) == len(ROSTER)


def test_a_pattern_selects_contenders():
    assert {contender.side for contender in contenders.select(["al *"])} == {Side.OURS}


def test_each_setting_of_pytorch_is_set_before_its_import():
    environments = {
        contender.name: contender.family.environment["PYTORCH_CUDA_ALLOC_CONF"]
        for contender in contenders.select(["PyTorch", "PyTorch expandable"])
    }

    assert environments == {
        "PyTorch": "expandable_segments:False",
        "PyTorch expandable": "expandable_segments:True",
    }


def test_only_those_with_a_limit_are_put_under_pressure():
    under_pressure = {contender.name for contender in ROSTER if contender.takes_part("pressure")}

    assert {"al caching", "CuPy MemoryPool", "PyTorch", "RMM pool"} <= under_pressure
    assert not {"al mempool", "cudaMallocAsync", "null"} & under_pressure
