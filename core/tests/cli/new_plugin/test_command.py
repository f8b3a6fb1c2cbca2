"""``allotment new-plugin``."""

import shlex

import pytest

from allotment.cli.new_plugin import _command
from allotment.cli.new_plugin._command import write_project


def everything(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")
    }


def test_a_project_is_made_and_the_next_commands_are_printed(run, empty_folder):
    result = run("new-plugin", "Side_Pool")

    assert result.exit_code == 0
    assert [path.name for path in empty_folder.iterdir()] == ["allotment-side-pool"]
    assert [line.strip() for line in result.stdout.splitlines()[1:-1]] == [
        "cd allotment-side-pool",
        'python -m pip install -e ".[dev]"',
        "pytest",
        "allotment check side-pool",
    ]


def test_the_author_is_the_developers_unless_one_is_named(run, empty_folder):
    run("new-plugin", "one")
    run("new-plugin", "two", "--author", "Ada <ada@example.org>", "--license", "mit")

    assert 'name = "The allotment-one developers"' in (empty_folder / "allotment-one/pyproject.toml").read_text()
    assert 'name = "Ada", email = "ada@example.org"' in (empty_folder / "allotment-two/pyproject.toml").read_text()
    assert "Ada\n" in (empty_folder / "allotment-two/LICENSE").read_text()


def test_the_kind_of_memory_can_be_chosen(run, empty_folder):
    run("new-plugin", "side", "--kind", "host")

    assert "MemoryKind.HOST" in (empty_folder / "allotment-side/src/allotment_side/_allocator.py").read_text()


def test_another_folder_can_be_named_and_is_made_if_need_be(run, empty_folder):
    result = run("new-plugin", "side", "--directory", "my work/plugins")

    assert (empty_folder / "my work/plugins/allotment-side/pyproject.toml").exists()
    assert f"cd {shlex.quote('my work/plugins/allotment-side')}" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("2x",), "cannot be one"),
        (("host",), "is taken"),
        (("x", "--author", "<nobody>"), "an author is a name"),
        (("x", "--license", "gpl"), "gpl"),
        (("x", "--kind", "tape"), "tape"),
    ],
)
def test_what_cannot_be_is_wrong_usage_and_nothing_is_written(run, empty_folder, arguments, told):
    result = run("new-plugin", *arguments, COLUMNS="200")

    assert result.exit_code == 2
    assert told in result.stderr
    assert everything(empty_folder) == {}


@pytest.mark.parametrize("make", ["file", "folder", "link", "dangling link"])
def test_what_exists_is_left_as_it_is(run, empty_folder, make):
    place = empty_folder / "allotment-side"
    other = empty_folder / "other"
    match make:
        case "file":
            place.write_text("mine")
        case "folder":
            place.mkdir()
            (place / "notes.txt").write_text("mine")
        case "link":
            other.mkdir()
            place.symlink_to(other)
        case _:
            place.symlink_to(other)
    before = everything(empty_folder)

    result = run("new-plugin", "side", COLUMNS="200")

    assert result.exit_code == 2
    assert "exists, and is left as it is" in result.stderr
    assert everything(empty_folder) == before


def test_an_empty_folder_is_filled(run, empty_folder):
    (empty_folder / "allotment-side").mkdir()

    assert run("new-plugin", "side").exit_code == 0
    assert (empty_folder / "allotment-side/README.md").exists()


def test_a_file_in_place_of_the_folder_around_is_wrong_usage(run, empty_folder):
    (empty_folder / "notes").write_text("mine")

    assert run("new-plugin", "side", "--directory", "notes").exit_code == 2
    assert everything(empty_folder) == {"notes": b"mine"}


def test_a_project_that_cannot_be_written_whole_is_not_there_at_all(empty_folder):
    files = {"README.md": "text", "README.md/impossible": "text"}

    with pytest.raises(OSError, match="README"):
        write_project(empty_folder / "allotment-side", files)

    assert everything(empty_folder) == {}


def test_without_metadata_of_core_the_version_is_that_of_the_contract(run, empty_folder, monkeypatch):
    monkeypatch.setattr(_command, "version", lambda: "unknown")
    run("new-plugin", "side")

    assert '"allotment>=1.0,<2"' in (empty_folder / "allotment-side/pyproject.toml").read_text()
