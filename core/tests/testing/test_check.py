"""Checking an installed allocator by its name."""

import pytest

import allotment as al
from allotment import registry
from allotment.testing import RULES, RuleStatus, Trial, check_allocator
from allotment.testing._check import summed_up

PLAIN = """
import os
from allotment import AllocatorTraits, Availability, MemoryKind

class Allocator:
    traits = AllocatorTraits(memory_kind=MemoryKind.CUDA_DEVICE, alignment={alignment})

    def __init__(self, *, device):
        self.platform = device.platform

    def allocate(self, size_in_bytes):
        {allocate}

    def deallocate(self, ptr, size_in_bytes):
        self.platform.free(ptr)

    @classmethod
    def availability(cls, device):
        {availability}
"""
CUDA_ONLY = "return Availability(device.is_cuda, 'it serves GPUs only')"


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that installs an allocator by the name trial."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(
        allocate="return self.platform.malloc(size_in_bytes)",
        availability=CUDA_ONLY,
        alignment=256,
        module="fake_trial",
    ):
        source = PLAIN.format(allocate=allocate, availability=availability, alignment=alignment)
        (tmp_path / f"{module}.py").write_text(source)
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {module.replace('_', '-')}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[allotment.allocators]\ntrial = {module}:Allocator\n")
        registry.reset()

    yield write
    for module in ("fake_trial", "fake_other"):
        __import__("sys").modules.pop(module, None)


def trial(outcome, message="", rules=("A1",)):
    return Trial(test="test_it", platform="2xh200", rules=rules, outcome=outcome, message=message)


def status_of(*trials):
    (found,) = (each for each in summed_up(trials) if each.rule == "A1")
    return found.status, found.reasons


def test_a_rule_is_held_if_what_applies_passes():
    assert status_of(trial("passed"), trial("skipped", "it offers no trim")) == (RuleStatus.HELD, ())


def test_one_failure_breaks_a_rule():
    assert status_of(trial("passed"), trial("failed"), trial("skipped", "why")) == (RuleStatus.FAILED, ())


def test_a_rule_that_the_declarations_exclude_does_not_apply_and_says_why():
    given = trial("skipped", "it declares nothing"), trial("skipped", "not checked: no CUDA device")

    assert status_of(*given, *given) == (RuleStatus.NOT_APPLICABLE, ("it declares nothing",))


def test_a_rule_that_the_allocator_cannot_keep_is_exempt_though_a_test_of_it_passes():
    trials = trial("skipped", "exempt: it is too hard"), trial("passed")

    assert status_of(*trials) == (RuleStatus.EXEMPT, ("it is too hard",))


def test_a_rule_that_could_not_be_tried_is_not_checked_and_says_why():
    assert status_of(trial("skipped", "not checked: no CUDA device")) == (RuleStatus.NOT_CHECKED, ("no CUDA device",))
    assert status_of() == (RuleStatus.NOT_CHECKED, ("no test of it runs here",))


def test_every_rule_is_told_in_the_order_of_the_page():
    assert [(each.rule, each.title) for each in summed_up([])] == list(RULES.items())


def test_a_test_of_several_rules_counts_for_each():
    found = {each.rule: each.status for each in summed_up([trial("failed", rules=("A1", "S2")), trial("passed")])}

    assert {rule for rule, status in found.items() if status is RuleStatus.FAILED} == {"A1", "S2"}


def test_a_wrong_allocator_is_told_by_the_rules_that_it_breaks(install):
    install(alignment=2**40)
    done = []

    report = check_allocator("trial", progress=lambda count, tests: done.append((count, tests)))

    (failed,) = report.failed
    assert failed.rule == "M2"
    assert [failure.platform for failure in failed.failures] == ["2xh200"] * len(failed.failures)
    assert all("rule M2 (Every block has the declared alignment)" in failure.message for failure in failed.failures)
    assert (report.is_checked, report.allocator.qualified_name) == (True, "fake-trial:trial")
    assert done[-1][0] == done[-1][1] > 100


def test_an_allocator_that_ends_the_process_fails_the_test_in_which_it_does(install):
    install(allocate="os._exit(7)")

    report = check_allocator("trial")

    (failure,) = {failure for each in report.failed for failure in each.failures}
    assert failure.message == "the process of the tests ended in the middle of it, with exit code 7"
    assert not report.is_checked


def test_an_allocator_that_is_available_nowhere_is_not_checked(install):
    install(availability="return Availability(False, 'the library is not installed')")

    report = check_allocator("trial")

    assert (report.failed, report.is_checked) == ((), False)
    reasons = {reason for each in report.rules if each.rule == "A2" for reason in each.reasons}
    assert any("the library is not installed" in reason for reason in reasons)


def test_of_two_distributions_with_one_name_each_can_be_checked_by_its_qualified_name(install):
    install()
    install(module="fake_other", allocate="return 0")
    with pytest.raises(al.PluginConflictError):
        check_allocator("trial")

    report = check_allocator("fake-other:trial", on=["host"])

    assert report.allocator.distribution == "fake-other"


def test_a_name_of_nothing_is_refused_before_any_test_runs():
    with pytest.raises(al.UnknownAllocatorError, match="'nothing'"):
        check_allocator("nothing")


def test_what_pytest_refuses_is_told(install):
    install()

    with pytest.raises(al.UnsupportedError, match="an option is written name=value"):
        check_allocator("trial", options=["nonsense"])
