import json

import pytest


@pytest.mark.gpu
def test_the_demo_passes_on_the_gpus_of_this_machine(process, visible_devices):
    done = process("demo", "--json", **visible_devices)
    document = json.loads(done.stdout)
    failed = {trial["allocator"]: trial["failed_checks"] for trial in document["allocators"] if trial["failed_checks"]}

    assert (done.returncode, failed) == (0, {}), done.stderr
    assert document["simulated"] is False
    assert document["platform"]["name"] == "cuda"
    assert any(trial["device"] == "cuda:0" for trial in document["allocators"])


@pytest.mark.gpu
def test_the_doctor_finds_no_problem_on_the_gpus_of_this_machine(process, visible_devices):
    done = process("doctor", "--json", **visible_devices)

    assert json.loads(done.stdout)["ok"], done.stdout
