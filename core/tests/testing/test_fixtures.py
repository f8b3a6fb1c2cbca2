"""How a plugin adopts the kit, and what becomes of its tests."""

import pytest

from allotment.testing import AllocatorConformance

pytest_plugins = ["pytester"]

PLAIN_INT = "test_a_pointer_is_a_plain_int_above_zero"
ADOPTION = """
from allotment import AllocatorTraits, Availability, MemoryKind
from allotment.testing import {suites}

class Mine:
    traits = AllocatorTraits(memory_kind=MemoryKind.CUDA_DEVICE)

    def __init__(self, *, device):
        self.allocate = device.platform.malloc
        self.free = device.platform.free

    def deallocate(self, ptr, size_in_bytes):
        self.free(ptr)

    @classmethod
    def availability(cls, device):
        return Availability(device.is_cuda and device.name != "NVIDIA A40-24Q", "it is not for this device")

class Zero(Mine):
    def __init__(self, *, device):
        super().__init__(device=device)
        self.allocate = lambda size_in_bytes: 0

class TestMine({suites}):
    allocator_name = "mine"
    allocator_factory = {factory}
    {more}
"""


@pytest.fixture
def run(pytester):
    """Run part of the kit on an allocator."""

    def run_tests(more="", suites="AllocationTests", *options, factory="Mine"):
        pytester.makepyfile(ADOPTION.format(more=more, suites=suites, factory=factory))
        return pytester.runpytest_inprocess("-m", "not gpu", "-p", "no:cacheprovider", "-W", "error", *options)

    return run_tests


def test_a_plugin_adopts_one_topic_or_several(run):
    outcome = run("", "AllocationTests, SizeTests", "-v")

    assert outcome.ret == 0
    outcome.stdout.fnmatch_lines_random(["*test_zero_bytes*PASSED*", f"*{PLAIN_INT}*PASSED*"])


def test_a_failure_that_is_expected_is_no_failure(run):
    more = f'expected_failures = {{"{PLAIN_INT}": "it counts from zero"}}'

    outcome = run(more, "AllocationTests", "-rx", "-k", PLAIN_INT, factory="Zero")

    outcome.assert_outcomes(xfailed=1)
    outcome.stdout.fnmatch_lines("*it counts from zero*")


def test_a_test_that_was_expected_to_fail_and_passes_is_a_failure(run):
    outcome = run(f'expected_failures = {{"{PLAIN_INT}": "it counts from zero"}}')

    outcome.assert_outcomes(passed=6, failed=1)
    outcome.stdout.fnmatch_lines("*XPASS(strict)*it counts from zero*")


def test_an_expected_failure_of_no_test_is_refused():
    with pytest.raises(TypeError, match="test_that_is_not"):
        type("TestMine", (AllocatorConformance,), {"expected_failures": {"test_that_is_not": "reason"}})


def test_what_is_not_available_is_skipped_with_its_reason(run):
    outcome = run('profiles = ("no-pools",)', "AllocationTests", "-rs")

    outcome.assert_outcomes(skipped=7)
    outcome.stdout.fnmatch_lines("*mine is not available on sim:no-pools: *cuda:0: it is not for this device*")


def test_a_skip_names_the_ability_that_is_not_offered(run):
    run("", "ReservationTests", "-rs").stdout.fnmatch_lines("*mine offers no SupportsTrim*")


def test_a_skip_tells_why_the_allocator_is_exempt(run):
    outcome = run('\n\nMine.exempt_from = {"A2": "its addresses are floats"}', "AllocationTests", "-rs")

    outcome.assert_outcomes(passed=6, skipped=1)
    outcome.stdout.fnmatch_lines("*exempt: its addresses are floats*")


def test_each_profile_of_the_suite_runs_each_test(run):
    run('profiles = ("2xh200", "wsl")').assert_outcomes(passed=14)


def test_an_allocator_without_profiles_has_tests_for_real_devices_only(run):
    run("profiles = ()").assert_outcomes(skipped=1)


def test_tests_for_real_devices_are_marked(pytester, run):
    for marker in ("gpu", "multi_gpu"):
        outcome = run("", "DeviceTests", "--collect-only", "-q", "-m", marker)
        outcome.stdout.fnmatch_lines("*test_each_device_can_use_its_blocks?cuda?*")
        outcome.stdout.no_fnmatch_line("*sim:*")


def test_a_failure_names_its_rule(run):
    outcome = run("", "AllocationTests", "-k", PLAIN_INT, factory="Zero")

    outcome.stdout.fnmatch_lines("*rule A2 (A returned pointer is a plain int above 0)*allocator-contract.md#rule-a2*")


def test_the_rules_are_in_the_report(pytester, run):
    run("", "AllocationTests", "--junitxml=report.xml")

    assert '<property name="rule" value="A4"' in (pytester.path / "report.xml").read_text()
