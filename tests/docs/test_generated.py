"""What the documentation generates is whole: nothing that exists is missing in it."""

from __future__ import annotations

import re
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest

import allotment as al
from allotment import registry
from allotment.configuration import PRECEDENCE
from allotment.platform.simulated import profile_names

ROOT = Path(__file__).parents[2]
PLUGINS = sorted(folder.name for folder in (ROOT / "plugins").iterdir() if (folder / "pyproject.toml").exists())


@pytest.fixture
def part(monkeypatch):
    """Return a function that generates a part."""
    pytest.importorskip("sphinx", reason="the group docs of the workspace is not installed")
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_extension"))
    return lambda name, *arguments: import_module("generated").PARTS[name](*arguments)


def first_cells(table):
    return [row.split(" | ")[0].strip("| `") for row in table.splitlines()[2:]]


def test_the_table_of_precedence_has_every_place_in_its_order(part):
    places = [row.split(" | ")[1] for row in part("precedence").splitlines()[2:]]

    assert places == [level.kind.value for level in PRECEDENCE]


def test_every_key_of_the_configuration_has_a_meaning(part):
    rows = [row.strip("| ").split(" | ") for row in part("keys").splitlines()[2:]]

    assert {"allocator", "platform", "plugins.deny", "plugins.<plugin>.<option>"} <= {row[0].strip("`") for row in rows}
    assert all(row[-1].endswith(".") for row in rows)


def test_every_profile_is_listed(part):
    assert tuple(first_cells(part("profiles"))) == profile_names()


def test_every_public_name_is_documented(part):
    documented = set(re.findall(r"(?:auto\w+|py:\w+):: allotment\.(\w+)", part("api")))
    errors = set(re.findall(r"\{py:exception\} allotment\.(\w+)", part("errors")))

    assert documented | errors == set(al.__all__)


def test_every_field_of_an_error_has_a_meaning(part):
    rows = [row for row in part("errors").splitlines() if row.startswith("| `")]

    assert [row for row in rows if row.replace(" ", "").endswith("||")] == []


def test_every_error_is_shown_with_what_it_says(part):
    entries = re.split(r"^::::\{py:exception\} allotment\.", part("errors"), flags=re.MULTILINE)[1:]
    silent = {entry.split()[0] for entry in entries if "It says, for example:" not in entry}

    assert silent == {name for name in al.__all__ if name.endswith("Warning")}


def test_every_command_is_described(part):
    text = part("commands")

    for command in ("demo", "devices", "allocators", "doctor", "config show", "watch"):
        assert f"## allotment {command}\n" in text


@pytest.mark.parametrize("name", PLUGINS)
def test_the_options_of_a_plugin_are_those_of_its_dataclass_here_and_in_its_readme(part, name):
    options_type = registry.current().get(name).options_type
    options = [] if options_type is None else [field.name for field in fields(options_type)]
    section = (ROOT / "plugins" / name / "README.md").read_text().partition("## Options")[2].partition("\n## ")[0]

    assert re.findall(r"^\| `(\w+)`", section, re.MULTILINE) == options
    assert re.findall(r"^\| `(\w+)`", part("options", name), re.MULTILINE) == options


def test_the_options_of_every_layer_of_core_are_listed(part):
    text = part("layer-tables")

    for name in ("fallback", "ladder", "limit"):
        assert f"### `{name}`\n" in text
    assert re.findall(r"^\| `(\w+)`", text.partition("### `limit`")[2].partition("###")[0], re.MULTILINE) == [
        "amount",
        "shared",
    ]


def test_pages_of_outcomes_are_listed_or_said_to_be_missing(part, tmp_path):
    (tmp_path / "index.md").write_text("# Index")
    assert part("outcomes", str(tmp_path)).startswith("No run")

    for name in ("2-gpu", "1-gpu"):
        (tmp_path / f"{name}.md").write_text("# Outcome")
    assert part("outcomes", str(tmp_path)).splitlines()[3:-1] == ["1-gpu", "2-gpu"]
