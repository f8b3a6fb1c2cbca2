"""Projects made from the template."""

import re
import tomllib
from pathlib import Path

import pytest

from allotment import __version__
from allotment.cli.new_plugin import _template
from allotment.cli.new_plugin._plugin_name import PluginName
from allotment.cli.new_plugin._template import Author, Kind, Licence, Request, core_range, project_files

TEMPLATE = Path(_template.__file__).with_name("template")
LONGEST = "a-name-of-thirty-characters-xy"


def files(name="side-pool", kind=Kind.DEVICE, licence=Licence.APACHE, author="Ada Lovelace", core="0.1.0"):
    request = Request(
        name=PluginName(name), kind=kind, licence=licence, author=Author.read(author), core=core, year=2031
    )
    return project_files(request)


def project(**asked):
    return tomllib.loads(files(**asked)["pyproject.toml"])["project"]


@pytest.mark.parametrize("kind", Kind)
def test_a_project_has_all_that_a_distribution_needs(kind):
    assert sorted(files(kind=kind)) == [
        ".github/workflows/ci.yml",
        ".gitignore",
        "CHANGELOG.md",
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "src/allotment_side_pool/__init__.py",
        "src/allotment_side_pool/_allocator.py",
        "src/allotment_side_pool/_options.py",
        "src/allotment_side_pool/py.typed",
        "tests/test_conformance.py",
        "tests/test_side_pool.py",
    ]


@pytest.mark.parametrize("licence", Licence)
@pytest.mark.parametrize("kind", Kind)
def test_no_word_of_the_template_is_left(kind, licence):
    text = "\n".join([*files(kind=kind, licence=licence), *files(kind=kind, licence=licence).values()])

    assert re.findall(r"(?i)your.?(?:pool|name)|YEAR|only: ", text) == []


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("name", ["a", LONGEST])
def test_python_files_can_be_compiled_and_their_lines_are_short(name, kind):
    for path, text in files(name=name, kind=kind).items():
        if path.endswith(".py"):
            compile(text, path, "exec")
            assert max(map(len, text.splitlines())) <= 120, path


def test_the_project_names_itself_and_its_entry_point():
    about = project(name="side-pool")

    assert about["name"] == "allotment-side-pool"
    assert about["entry-points"] == {"allotment.allocators": {"side-pool": "allotment_side_pool:SidePoolAllocator"}}


@pytest.mark.parametrize(
    ("author", "expected"),
    [
        ("Ada Lovelace", {"name": "Ada Lovelace"}),
        ("  Ada Lovelace <ada@example.org> ", {"name": "Ada Lovelace", "email": "ada@example.org"}),
        ('Ada "\\" Lovelace', {"name": 'Ada "\\" Lovelace'}),
        ("Your Name of your-pool, YEAR", {"name": "Your Name of your-pool, YEAR"}),
    ],
)
def test_an_author_is_written_as_given(author, expected):
    assert project(author=author)["authors"] == [expected]
    assert f"Copyright (c) 2031 {expected['name']}\n" in files(author=author, licence=Licence.MIT)["LICENSE"]


@pytest.mark.parametrize("author", ["", "  ", "<ada@example.org>", "Ada <ada>", "Ada\nLovelace", "Ada\x07"])
def test_what_is_no_author_is_refused(author):
    with pytest.raises(ValueError, match="an author is a name"):
        Author.read(author)


@pytest.mark.parametrize(
    ("licence", "identifier", "begins", "holds"),
    [
        (Licence.APACHE, "Apache-2.0", "Apache License", "Version 2.0, January 2004"),
        (Licence.MIT, "MIT", "MIT License", "Permission is hereby granted, free of charge"),
        (Licence.BSD, "BSD-3-Clause", "BSD 3-Clause License", "3. Neither the name of the copyright holder"),
    ],
)
def test_the_licence_is_the_one_that_is_asked_for_wherever_it_is_named(licence, identifier, begins, holds):
    made = files(licence=licence)

    assert project(licence=licence)["license"] == identifier
    assert f"Licence: {identifier}." in made["README.md"]
    assert made["LICENSE"].strip().startswith(begins)
    assert holds in made["LICENSE"]


def test_the_apache_licence_is_the_text_that_allotment_has_itself():
    assert files()["LICENSE"] == (Path(__file__).parents[3] / "LICENSE").read_text()


@pytest.mark.parametrize(
    ("core", "accepted"),
    [
        ("0.1.0", ">=0.1.0,<0.2"),
        ("0.4.2", ">=0.4.2,<0.5"),
        ("1.4.2", ">=1.4.2,<2"),
        ("0.3.0.dev4+g12", ">=0.3.0.dev4,<0.4"),
    ],
)
def test_a_plugin_asks_for_core_from_this_version_to_the_next_that_may_break_it(core, accepted):
    assert core_range(core) == accepted
    assert project(core=core)["dependencies"] == [f"allotment{accepted}"]
    assert project(core=core, kind=Kind.HOST)["dependencies"] == [f"allotment{accepted}", "numpy>=1.26"]


def test_the_template_itself_asks_for_this_version_of_core():
    about = tomllib.loads((TEMPLATE / "pyproject.toml").read_text())["project"]

    assert about["dependencies"] == [f"allotment{core_range(__version__)}"]


def test_what_only_a_plugin_for_devices_needs_is_left_out_for_the_host():
    assert {"cuda12", "cuda13"} <= set(project()["optional-dependencies"])
    assert set(project(kind=Kind.HOST)["optional-dependencies"]) == {"test", "dev"}


@pytest.mark.parametrize("kind", Kind)
def test_the_table_of_options_in_the_readme_has_every_option(kind):
    made = files(kind=kind)
    options = re.findall(r"^    (\w+): .+ = ", made["src/allotment_side_pool/_options.py"], re.MULTILINE)

    assert re.findall(r"^\| `(\w+)`", made["README.md"], re.MULTILINE) == options


def test_what_tools_leave_beside_the_template_is_not_copied(tmp_path, monkeypatch):
    (tmp_path / "template/src/__pycache__").mkdir(parents=True)
    (tmp_path / "template/.mypy_cache").mkdir()
    for file in ("template/README.md", "template/src/__pycache__/x.pyc", "template/.mypy_cache/x"):
        (tmp_path / file).write_text("your-pool")
    monkeypatch.setattr(_template, "files", lambda package: tmp_path)

    assert files() == {"README.md": "side-pool"}
