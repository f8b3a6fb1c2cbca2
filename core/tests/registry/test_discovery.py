"""Finding plugins in metadata."""

import itertools
import shutil
import sys
from pathlib import Path

import pytest

from allotment.registry import PluginOrigin, PluginStatus
from allotment.registry._discovery import discover

GROUP = "allotment.allocators"
DISTRIBUTIONS = Path(__file__).parent / "distributions"


def found():
    return {record.name: record for record in discover(GROUP, "0.1.0")}


def test_a_record_says_what_the_metadata_says(site):
    record = found()["good-one"]

    assert record.reference == "fake_good:GoodAllocator"
    assert record.distribution == "fake-good"
    assert record.version == "1.2.0"
    assert record.summary == "Hands out addresses."
    assert record.origin is PluginOrigin.ENTRY_POINT
    assert record.status is PluginStatus.AVAILABLE
    assert record.error is None


def test_a_name_is_normalised(both_sites):
    names = [record.name for record in discover(GROUP, "0.1.0")]

    assert "good-one" in names
    assert names.count("pool") == 2


def test_metadata_without_a_summary_gives_an_empty_one(site):
    assert found()["stale"].summary == ""


def test_nothing_is_imported(site):
    discover(GROUP, "0.1.0")

    assert not [name for name in sys.modules if name.startswith("fake_")]


def test_the_records_are_sorted(both_sites):
    records = discover(GROUP, "0.1.0")

    assert list(records) == sorted(records, key=lambda record: (record.name, record.distribution, record.reference))


@pytest.mark.parametrize("leftover", ["headless", "nameless", "scrambled"])
def test_what_an_interrupted_uninstall_leaves_is_passed_over(site, leftover):
    assert leftover not in found()


def test_entry_points_that_cannot_be_parsed_hide_no_other_distribution(site):
    assert all(record.distribution != "fake-garbled" for record in found().values())
    assert "good-one" in found()


def test_a_distribution_found_twice_counts_once(both_sites):
    assert [record.distribution for record in discover(GROUP, "0.1.0")].count("fake-good") == 1


def test_of_two_versions_of_one_distribution_the_newer_counts(both_sites):
    assert found()["good-one"].version == "1.2.0"
    assert found()["good-one"].reference == "fake_good:GoodAllocator"


def test_an_egg_info_beside_a_dist_info_counts_once(site, tmp_path, monkeypatch):
    egg_info = tmp_path / "fake_good.egg-info"
    egg_info.mkdir()
    dist_info = site / "fake_good-1.2.0.dist-info"
    shutil.copy(dist_info / "METADATA", egg_info / "PKG-INFO")
    shutil.copy(dist_info / "entry_points.txt", egg_info / "entry_points.txt")
    monkeypatch.syspath_prepend(str(tmp_path))

    assert [record.distribution for record in discover(GROUP, "0.1.0")].count("fake-good") == 1


def test_the_order_of_the_path_makes_no_difference(both_sites, monkeypatch):
    folders = [str(DISTRIBUTIONS / "site"), str(DISTRIBUTIONS / "second")]
    others = [entry for entry in sys.path if entry not in folders]
    results = set()
    for order in itertools.permutations([*folders, *others[:1]]):
        monkeypatch.setattr(sys, "path", [*order, *others[1:]])
        results.add(discover(GROUP, "0.1.0"))

    assert len(results) == 1


def test_a_distribution_that_refuses_this_core_is_incompatible(site):
    record = found()["incompatible"]

    assert record.status is PluginStatus.INCOMPATIBLE
    assert record.error == "it requires allotment <10,>=9, and this is allotment 0.1.0"
