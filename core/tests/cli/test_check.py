"""``allotment check``."""

import subprocess
import sys

OVERSTATED = """
from allotment import AllocatorTraits, Availability, MemoryKind

class Plain:
    traits = AllocatorTraits(memory_kind=MemoryKind.CUDA_DEVICE, alignment=2**40)

    def __init__(self, *, device):
        self.allocate, self.free = device.platform.malloc, device.platform.free

    def deallocate(self, ptr, size_in_bytes):
        self.free(ptr)

    @classmethod
    def availability(cls, device):
        return Availability(device.is_cuda, "" if device.is_cuda else "it serves GPUs only")
"""


def test_an_allocator_that_keeps_the_contract_is_told_rule_by_rule(run_json):
    document = run_json("check", "host", "--platform", "sim:h200")

    assert (document["allocator"], document["distribution"], document["checked"]) == ("host", "allotment", True)
    status = {each["rule"]: each["status"] for each in document["rules"]}
    assert status["A1"] == "held"
    assert status["W1"] == "not applicable"
    assert set(status.values()) == {"held", "not applicable"}
    assert all(each["reasons"] for each in document["rules"] if each["status"] == "not applicable")
    assert document["devices"] == "not asked for"


def test_a_broken_rule_is_told_with_its_message_and_exit_code_1(run, install):
    install("overstated", OVERSTATED, "Plain")
    result = run("check", "overstated")

    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    (row,) = (line for line in lines if line.startswith("M2 "))
    assert "failed" in row
    assert any(line.startswith("    rule M2 (Every block has the declared alignment)") for line in lines)
    assert "breaks the contract" in result.stdout
    assert "pytest --allotment-allocator=overstated" in result.stdout


def test_a_rule_that_it_says_it_cannot_keep_is_told_with_its_reason(run, install):
    install("overstated", OVERSTATED + "Plain.exempt_from = {'M2': 'it is beyond all memory'}", "Plain")
    result = run("check", "overstated", "--platform", "sim:h200")

    assert result.exit_code == 0
    (row,) = (line for line in result.stdout.splitlines() if line.startswith("M2 "))
    assert "exempt" in row
    assert row.endswith("it is beyond all memory")
    assert "keeps the rest of the contract: " in result.stdout


def test_an_allocator_that_cannot_run_here_is_exit_code_1_too(run, plain):
    result = run("check", plain, "--platform", "host")

    assert result.exit_code == 1
    assert "no memory could be had, so nothing was checked" in result.stdout
    assert "it serves GPUs only" in result.stdout


def test_options_reach_the_allocator(run, plain):
    result = run("check", plain, "--platform", "sim:h200", "--option", "limit=3")

    assert result.exit_code == 1
    assert "limit" in result.stdout


def test_a_name_of_nothing_is_an_error(run):
    result = run("check", "hots")

    assert result.exit_code == 1
    assert "Did you mean 'host'" in result.stderr


def test_without_the_extra_the_error_says_how_to_install_it(environment):
    code = "import sys; sys.modules['pytest'] = None; sys.argv = ['allotment', 'check', 'host']\n"
    ended = subprocess.run(
        [sys.executable, "-c", code + "from allotment.cli import main; main()"],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )

    assert ended.returncode == 1
    assert "pip install 'allotment[testing]'" in ended.stderr
