"""``allotment plugins``."""

import shutil
import sys

import pytest


@pytest.fixture
def one_of_each(install, plain_source):
    """Install one plugin of each kind."""
    for kind in ("allocator", "layer", "bridge", "observer"):
        site = install(f"trial-{kind}", plain_source, "Plain", group=f"allotment.{kind}s")
    return site


def rows(document, **facts):
    return [row for row in document["plugins"] if facts.items() <= row.items()]


def test_every_kind_of_plugin_is_listed_and_none_is_imported(run_json, one_of_each):
    document = run_json("plugins")

    for kind in ("allocator", "layer", "bridge", "observer"):
        (row,) = rows(document, kind=kind, distribution=f"trial-trial-{kind}")
        assert (row["version"], row["status"], row["location"]) == ("1.5", "available", str(one_of_each))
    assert not [name for name in sys.modules if name.startswith("installed_")]


def test_what_core_brings_is_listed_with_its_origin(run_json):
    document = run_json("plugins")

    assert {row["kind"] for row in rows(document, origin="builtin")} == {"allocator", "layer"}
    assert rows(document, kind="layer", name="limit", distribution="allotment")


def test_everything_that_is_known_against_a_plugin_is_told(run_json, run, install, plain_source):
    install("fine", plain_source, "Plain")
    install("denied", plain_source, "Plain")
    install("old", plain_source, "Plain", requires=["allotment<0.0.1"])
    site = install("stale", plain_source, "Plain")
    (site / "installed_stale.py").unlink()
    install("lake", plain_source, "Plain")
    shutil.copytree(site / "installed_lake-1.5.dist-info", site / "installed_sea-1.5.dist-info")
    metadata = site / "installed_sea-1.5.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("trial-lake", "trial-sea"))

    document = run_json("plugins", ALLOTMENT_PLUGINS__DENY="denied")

    told = {row["qualified_name"]: row for row in document["plugins"] if row["qualified_name"].startswith("trial-")}
    assert {name: row["status"] for name, row in told.items()} == {
        "trial-fine:fine": "available",
        "trial-denied:denied": "disabled",
        "trial-old:old": "incompatible",
        "trial-stale:stale": "unavailable",
        "trial-lake:lake": "conflict",
        "trial-sea:lake": "conflict",
    }
    assert told["trial-denied:denied"]["reason"] == "the deny list names it"
    assert "requires allotment <0.0.1" in told["trial-old:old"]["reason"]
    assert "reinstall or uninstall trial-stale" in told["trial-stale:stale"]["remedy"]
    assert told["trial-lake:lake"]["remedy"] == "Choose it as 'trial-lake:lake'."
    assert "Choose it as 'trial-sea:lake'." in run("plugins").stdout


def test_the_lists_are_told_with_their_origin_and_what_they_name_in_vain(run_json, run, plain):
    environment = {"ALLOTMENT_PLUGINS__ALLOW": f"{plain},limit,wrongly-spelt"}
    allow, deny = run_json("plugins", **environment)["lists"]

    assert allow["entries"] == [plain, "limit", "wrongly-spelt"]
    assert allow["origin"] == {"kind": "environment", "place": "ALLOTMENT_PLUGINS__ALLOW"}
    assert allow["unknown"] == ["wrongly-spelt"]
    assert deny["entries"] == []
    printed = run("plugins", **environment).stdout
    assert "plugins.allow in ALLOTMENT_PLUGINS__ALLOW" in printed
    assert "note: nothing installed here is called 'wrongly-spelt'" in printed


def test_an_installation_in_place_and_metadata_that_is_passed_over_are_told(run_json, run, install, plain_source):
    site = install("mine", plain_source, "Plain")
    (site / "installed_mine-1.5.dist-info" / "direct_url.json").write_text('{"dir_info": {"editable": true}}')
    shutil.copytree(site / "installed_mine-1.5.dist-info", site / "installed_mine-1.4.dist-info")
    metadata = site / "installed_mine-1.4.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("Version: 1.5", "Version: 1.4"))

    (row,) = rows(run_json("plugins"), name="mine")

    assert (row["version"], row["editable"], row["shadowed"]) == ("1.5", True, [f"1.4 in {site}"])
    printed = run("plugins").stdout
    assert "trial-mine (in place)" in printed
    assert f"Passed over: 1.4 in {site}." in printed
