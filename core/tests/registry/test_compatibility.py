"""Whether a plugin was made for this version of core."""

import pytest

from allotment.allocator import API_VERSION
from allotment.registry import PluginOrigin, PluginRecord, PluginStatus
from allotment.registry._compatibility import api_mismatch, check_core_version, required_core


def record(*requires):
    return PluginRecord(name="a", reference="a:A", origin=PluginOrigin.ENTRY_POINT, distribution="d", requires=requires)


@pytest.mark.parametrize(
    ("requires", "version"),
    [
        ((), "0.1.0"),
        (("numpy>=99",), "0.1.0"),
        (("allotment",), "0.1.0"),
        (("allotment>=0.1,<0.2",), "0.1.0"),
        (("allotment>=0.1,<0.2",), "0.1.1.dev1"),
        (("Allotment[cuda12]>=0.1",), "0.1.0"),
        (('allotment>=9; extra == "next"',), "0.1.0"),
        (('allotment>=9; python_version < "3"',), "0.1.0"),
        (("not a requirement at all",), "0.1.0"),
        (("allotment>=9",), None),
    ],
)
def test_a_plugin_that_accepts_the_running_core_is_left_as_it_is(requires, version):
    assert check_core_version(record(*requires), version) == record(*requires)


@pytest.mark.parametrize("requires", [("allotment>=9",), ("allotment<0.1",), ("allotment>=0.1", "allotment!=0.1.0")])
def test_a_plugin_that_does_not_is_incompatible(requires):
    assert check_core_version(record(*requires), "0.1.0").status is PluginStatus.INCOMPATIBLE


def test_several_requirements_of_core_hold_together():
    assert not required_core(["allotment>=0.1", "allotment<0.1.5"]).contains("0.2")


@pytest.mark.parametrize("version", [API_VERSION, (API_VERSION[0], 0)])
def test_an_api_of_the_same_major_and_no_newer_minor_is_accepted(version):
    assert api_mismatch(version) is None


@pytest.mark.parametrize("version", [(API_VERSION[0], API_VERSION[1] + 1), (API_VERSION[0] + 1, 0), (0, 9)])
def test_another_api_is_refused_with_both_versions(version):
    assert f"{version[0]}.{version[1]}" in api_mismatch(version)
    assert f"{API_VERSION[0]}.{API_VERSION[1]}" in api_mismatch(version)


@pytest.mark.parametrize("version", ["1.0", 1, (1,), (1, 0, 0), (1.0, 0), None])
def test_an_api_version_that_is_no_pair_of_numbers_is_refused(version):
    assert "not a pair of numbers" in api_mismatch(version)
