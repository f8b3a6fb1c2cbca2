"""The kit on an allocator that is named on pytest's command line."""

import pytest

from allotment.testing._by_name import suites

pytest_plugins = ["pytester"]

ONE = "test_a_pointer_is_a_plain_int_above_zero"


@pytest.fixture
def run(pytester):
    """Run pytest with options."""
    return lambda *options: pytester.runpytest_inprocess("-p", "no:cacheprovider", "-W", "error", *options)


def test_the_kit_runs_without_a_test_file(run):
    outcome = run("--allotment-allocator=host", "-m", "not gpu", "-k", ONE, "-v")

    assert outcome.parseoutcomes()["passed"] == 1
    outcome.stdout.fnmatch_lines(f"*::TestHost::{ONE}[[]sim:2xh200[]] PASSED*")


def test_without_a_file_nothing_else_is_collected(run, pytester):
    pytester.makepyfile("def test_mine(): raise AssertionError")

    run("--allotment-allocator=host", "-m", "not gpu", "-k", f"mine or {ONE}").assert_outcomes(
        passed=1, deselected=None
    )


def test_files_that_are_named_are_collected_too(run, pytester):
    file = pytester.makepyfile("def test_mine(): pass")

    outcome = run("--allotment-allocator=host", "-m", "not gpu", "-k", f"mine or {ONE}", str(file))

    assert outcome.parseoutcomes()["passed"] == 2


def test_several_allocators_are_several_classes(run):
    outcome = run(
        "--allotment-allocator=host", "--allotment-allocator=allotment:host", "-m", "not gpu", "-k", ONE, "-v"
    )

    assert outcome.parseoutcomes()["passed"] == 2
    outcome.stdout.fnmatch_lines_random([f"*::TestHost::{ONE}*", f"*::TestAllotmentHost::{ONE}*"])


def test_a_platform_can_be_named(run):
    options = ("--allotment-allocator=host", "--allotment-platform=host", "--allotment-platform=sim:gb10")
    outcome = run(*options, "-k", ONE, "-v")

    assert outcome.parseoutcomes()["passed"] == 2
    outcome.stdout.fnmatch_lines_random([f"*{ONE}[[]host[]] PASSED*", f"*{ONE}[[]sim:gb10[]] PASSED*"])


def test_what_only_a_simulated_machine_can_show_is_skipped_elsewhere(run):
    options = ("--allotment-allocator=host", "--allotment-platform=host")
    outcome = run(*options, "-k", "test_the_traits_are_well_formed", "-rs")

    assert outcome.parseoutcomes()["skipped"] == 1
    outcome.stdout.fnmatch_lines("*not checked: only a simulated machine can show it, and 'host' is none*")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--allotment-allocator=hots",), "*allocator 'hots' is not installed*Did you mean 'host'*"),
        (("--allotment-allocator=host", "--allotment-platform=sim:"), "*cuda, host or sim:PROFILE, not 'sim:'*"),
        (("--allotment-allocator=host", "--allotment-option=limit"), "*an option is written name=value, not 'limit'*"),
    ],
)
def test_what_cannot_be_run_is_wrong_usage(run, options, told):
    outcome = run(*options)

    assert outcome.ret == pytest.ExitCode.USAGE_ERROR
    outcome.stderr.fnmatch_lines(told)


def test_options_are_read_as_a_file_would_hold_them():
    options = ["a=1", "b = true", 'c="2 GiB"', "d=2 GiB", "e=[1, 2]", "f=", "g=x=y"]

    suite = suites(["host"], [], options).TestHost

    assert suite.options == {"a": 1, "b": True, "c": "2 GiB", "d": "2 GiB", "e": [1, 2], "f": "", "g": "x=y"}
    assert suite.platforms is None
