import csv
import gzip
import signal
import subprocess
import sys

import pytest

from allotment.trace import shipped_trace

MALLOC = "return self.platform.malloc(size_in_bytes)"
SMALL_MALLOC = f"if size_in_bytes > 10**8: raise MemoryError('too much')\n        {MALLOC}"
FREE = "self.platform.free(ptr)"
FAILING_FREE = "raise RuntimeError('it was lost')"


@pytest.fixture(autouse=True)
def only_what_a_test_installs(monkeypatch):
    """Keep out the plugins that are installed here: their trials take time and prove nothing more."""
    monkeypatch.setenv("ALLOTMENT_PLUGINS__ALLOW", "trial-plain,small,forgetful,spoilt")


def recorded_peak(divisor):
    """Return the peak of the shipped trace with sizes divided and rounded up, computed from the file itself."""
    with shipped_trace().open("rb") as file, gzip.open(file, "rt") as lines:
        rows = [(row["op"], -(-int(row["size"]) // divisor)) for row in csv.DictReader(lines)]
    current = peak = 0
    for op, size in rows:
        current += size if op == "a" else -size
        peak = max(peak, current)
    return peak


def trial(document, name):
    (found,) = (each for each in document["allocators"] if each["allocator"] == name)
    return found


def test_the_demo_of_an_allocator_that_works(run_json, plain, empty_folder):
    document = run_json("demo")
    found = trial(document, plain)

    assert document["ok"] is document["simulated"] is True
    assert document["platform"]["name"] == "sim:2xh200"
    assert [device["alias"] for device in document["devices"]] == ["cpu", "cuda:0", "cuda:1"]
    assert (found["device"], found["memory_kind"], found["config"]) == (
        "cuda:0",
        "CUDA_DEVICE",
        f'allocator = "{plain}"\n',
    )
    assert found["checks"] == found["checks_passed"] > 30
    assert found["failed_checks"] == []
    assert found["peak_requested"] == found["peak_reserved"] == recorded_peak(found["size_divisor"])
    assert found["peak_requested"] == document["trace"]["peak_requested"] == 11_383_464_991
    assert found["allocations"] == document["trace"]["allocations"] == 5965
    assert found["failures"] == 0
    assert found["allocations_per_second"] == pytest.approx(found["allocations"] / found["seconds"])
    assert list(empty_folder.iterdir()) == []


def test_the_host_gets_a_trace_that_it_has_room_for(run_json):
    found = trial(run_json("demo", "--platform", "host"), "host")

    assert found["size_divisor"] > 1
    assert found["peak_requested"] == recorded_peak(found["size_divisor"]) <= 2**30


def test_a_small_device_gets_a_trace_that_it_has_room_for(run_json, plain):
    document = run_json("demo", "--platform", "sim:jetson-orin")
    found = trial(document, plain)
    memory = document["devices"][1]["total_memory"]

    assert found["peak_requested"] == recorded_peak(found["size_divisor"]) <= memory / 2


def test_the_first_line_says_that_it_is_simulated_and_why(process):
    done = process("demo")
    first = done.stdout.splitlines()[0]

    assert done.returncode == 0, done.stderr
    assert first.startswith("No GPU is in use here (CUDA_VISIBLE_DEVICES is ''")
    assert first.endswith("so this demo runs on simulated GPUs: 2xh200.")


def test_it_tells_each_step_the_file_the_checks_the_table_and_what_to_type_next(run, plain):
    told = run("demo").stdout

    assert f'allotment.toml says:\n\n      allocator = "{plain}"\n' in told
    assert '[devices.cpu]\n      allocator = "host"\n' in told
    assert "ok  views show what NumPy's show (6 of 6)" in told
    assert "ok  the trace was replayed in" in told
    assert "10.6 GiB" in told
    assert told.count("  $ ") == 3
    assert "\x1b" not in told


def test_json_is_all_there_is_on_standard_output(process):
    done = process("demo", "--json", "--platform", "host")

    assert done.returncode == 0
    assert done.stdout.startswith("{")
    assert done.stderr == ""


def test_an_allocator_that_refuses_large_blocks_fails_the_trace_and_the_demo(run, run_json, install, plain_source):
    install("small", plain_source.replace(MALLOC, SMALL_MALLOC), "Plain")
    document = run_json("demo", exit_code=1)
    found = trial(document, "small")

    assert document["ok"] is False
    assert found["failures"] > 0
    assert found["allocations"] + found["failures"] == 5965
    assert {check["subject"] for check in found["failed_checks"]} == {"the trace is served in full"}
    assert trial(document, "host")["failed_checks"] == []
    assert "failed" in run("demo").stdout


@pytest.mark.filterwarnings("ignore::allotment.errors.FreeFailedWarning")
def test_an_allocator_that_loses_blocks_fails_its_checks_and_the_others_go_on(run_json, install, plain_source):
    install("forgetful", plain_source.replace(FREE, FAILING_FREE), "Plain")
    document = run_json("demo", exit_code=1)
    subjects = {check["subject"] for check in trial(document, "forgetful")["failed_checks"]}

    assert "the books are right when all is freed" in subjects
    assert "the trace is served in full" in subjects
    assert trial(document, "host")["failed_checks"] == []


def test_an_allocator_that_cannot_be_used_is_passed_over_with_the_reason(run, run_json, install, plain):
    install("spoilt", "raise RuntimeError('it is spoilt')", "Allocator")
    document = run_json("demo", "--platform", "host")

    assert "it is spoilt" in document["passed_over"]["spoilt"]
    assert document["passed_over"][plain] == "it serves GPUs only"
    assert "spoilt was passed over" in run("demo", "--platform", "host").stdout


def test_a_plugin_that_the_user_denies_is_not_loaded(run_json, install):
    install("spoilt", "raise RuntimeError('it is spoilt')", "Allocator")
    document = run_json("demo", "--platform", "host", ALLOTMENT_PLUGINS__DENY="spoilt")

    assert document["passed_over"]["spoilt"] == "the deny list names it"


def test_the_user_s_configuration_chooses_the_platform_and_nothing_else(run_json, plain, empty_folder):
    (empty_folder / "allotment.toml").write_text('platform = "sim:rtx4090"\nallocator = "not-there"\n')
    before = (empty_folder / "allotment.toml").read_text()
    document = run_json("demo")

    assert document["platform"]["name"] == "sim:rtx4090"
    assert trial(document, plain)["failed_checks"] == []
    assert (empty_folder / "allotment.toml").read_text() == before


def test_the_process_is_left_as_it_was(run, run_json):
    run("demo", "--platform", "sim:2xh200")

    assert run_json("devices")["platform"]["name"] == "host"
    assert {each["origin"]["place"] for each in run_json("config", "show")["settings"]} == {
        "ALLOTMENT_PLUGINS__ALLOW",
        "default",
    }


def test_an_interrupted_demo_cleans_up_and_has_exit_code_130(environment, tmp_path):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-u", "-m", "allotment", "demo"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "encoding": "utf-8"}
    with subprocess.Popen(command, env=environment(TMPDIR=str(temporary)), **pipes) as demo:
        assert any("allotment.toml says" in line for line in demo.stdout)
        demo.send_signal(signal.SIGINT)
        _, told = demo.communicate(timeout=60)

    assert demo.returncode == 130
    assert told == "interrupted: everything was cleaned up\n"
    assert list(temporary.iterdir()) == []
