import pytest

from allotment.configuration import OriginKind
from allotment.configuration._files import read_project_file, read_user_file
from allotment.errors import ConfigError


def allocator_in(project_file):
    return {setting.key: setting.value for setting in project_file.settings.values()}.get("allocator")


def refusal(folder, named=None) -> str:
    with pytest.raises(ConfigError) as caught:
        read_project_file(folder, named)
    return str(caught.value)


def test_without_a_file_nothing_is_said(workplace):
    assert read_project_file(workplace.project, None).settings == {}
    assert read_user_file(workplace.user) == {}


def test_allotment_toml_is_read(workplace):
    path = workplace.write('allocator = "managed"')
    (setting,) = read_project_file(workplace.project, None).settings.values()
    assert (setting.value, setting.origin.kind, setting.origin.place) == (
        "managed",
        OriginKind.PROJECT_FILE,
        str(path),
    )


def test_the_table_in_pyproject_toml_is_read(workplace):
    path = workplace.write('[tool.allotment]\nallocator = "managed"', "project/pyproject.toml")
    (setting,) = read_project_file(workplace.project, None).settings.values()
    assert (setting.value, setting.origin.place) == ("managed", f"{path} [tool.allotment]")


def test_the_nearest_file_upward_counts(workplace):
    workplace.write('allocator = "far"', "allotment.toml")
    workplace.write('[tool.allotment]\nallocator = "near"', "project/pyproject.toml")
    deep = workplace.project / "src" / "deep"
    deep.mkdir(parents=True)
    assert allocator_in(read_project_file(deep, None)) == "near"


def test_a_pyproject_toml_without_the_table_is_passed(workplace):
    workplace.write('allocator = "far"', "allotment.toml")
    workplace.write('[project]\ndependencies = ["allotment"]', "project/pyproject.toml")
    assert allocator_in(read_project_file(workplace.project, None)) == "far"


def test_allotment_toml_wins_in_one_folder_and_says_so(workplace):
    own = workplace.write('allocator = "own"')
    shared = workplace.write('[tool.allotment]\nallocator = "shared"', "project/pyproject.toml")
    found = read_project_file(workplace.project, None)
    assert allocator_in(found) == "own"
    assert found.notes == (f"{shared} [tool.allotment] is not used, because {own} is in the same folder",)


@pytest.mark.parametrize("other", ["[tool.allotment]\n", "[project]\n", "allotment = = broken"])
def test_a_pyproject_toml_that_says_nothing_is_not_worth_a_note(workplace, other):
    workplace.write('allocator = "own"')
    workplace.write(other, "project/pyproject.toml")
    assert read_project_file(workplace.project, None).notes == ()


def test_a_broken_pyproject_toml_of_another_project_is_none_of_our_business(workplace):
    workplace.write("this is = = broken", "project/pyproject.toml")
    assert read_project_file(workplace.project, None).settings == {}


@pytest.mark.parametrize("folder", ["", "sub/"])
def test_a_named_file_replaces_the_search(workplace, folder):
    workplace.write('allocator = "found"')
    workplace.write('allocator = "named"', f"project/{folder}other.toml")
    assert allocator_in(read_project_file(workplace.project, f"{folder}other.toml")) == "named"


def test_a_named_pyproject_toml_is_read_as_one(workplace):
    path = workplace.write('[tool.allotment]\nallocator = "shared"', "elsewhere/pyproject.toml")
    assert allocator_in(read_project_file(workplace.project, str(path))) == "shared"


def test_a_named_pyproject_toml_without_the_table_is_refused(workplace):
    path = workplace.write("[project]", "elsewhere/pyproject.toml")
    assert refusal(workplace.project, str(path)) == f"ALLOTMENT_CONFIG: {str(path)!r} has no table [tool.allotment]."


@pytest.mark.parametrize("named", ["missing.toml", "C:\\Users\\me\\allotment.toml"])
def test_a_named_file_that_is_missing_is_refused_with_its_whole_path(workplace, named):
    message = refusal(workplace.project, named)
    assert message == f"ALLOTMENT_CONFIG: there is no file {str(workplace.project / named)!r}."


def test_an_empty_name_of_a_file_is_refused(workplace):
    assert refusal(workplace.project, " ") == "ALLOTMENT_CONFIG: it is empty. Name a file, or unset it."


def test_the_null_device_is_a_project_without_settings(workplace):
    workplace.write('allocator = "found"')
    assert read_project_file(workplace.project, "/dev/null").settings == {}


@pytest.mark.parametrize(
    ("text", "where"),
    [("allocator =\n", "line 1, column 12"), ("quiet = true\nkey", "end of document"), ("a = 1\na = 2\n", "line 2")],
)
def test_malformed_toml_names_file_line_and_column(workplace, text, where):
    path = workplace.write(text)
    message = refusal(workplace.project)
    assert message.startswith(f"{path}: it is not valid TOML: ")
    assert where in message


def test_a_file_that_is_not_utf_8_is_refused(workplace):
    path = workplace.project / "allotment.toml"
    path.write_bytes(b'allocator = "\xff"')
    assert refusal(workplace.project) == f"{path}: it is not UTF-8: invalid start byte at byte 13."


def test_a_byte_order_mark_does_not_disturb(workplace):
    (workplace.project / "allotment.toml").write_bytes(b'\xef\xbb\xbfallocator = "managed"\r\n')
    assert allocator_in(read_project_file(workplace.project, None)) == "managed"


@pytest.mark.parametrize("name", ["allotment.toml", "pyproject.toml"])
def test_a_directory_in_the_place_of_a_file_is_refused(workplace, name):
    path = workplace.project / name
    path.mkdir()
    assert refusal(workplace.project) == f"{path}: it cannot be read: Is a directory."


def test_a_link_to_nowhere_is_refused(workplace):
    path = workplace.project / "allotment.toml"
    path.symlink_to("missing")
    assert refusal(workplace.project) == f"{path}: it cannot be read: No such file or directory."


def test_a_table_that_is_no_table_is_refused(workplace):
    path = workplace.write("[tool]\nallotment = 5", "project/pyproject.toml")
    assert refusal(workplace.project) == f"{path}: tool.allotment: expected a table, got 5."


def test_an_unknown_key_names_the_file(workplace):
    path = workplace.write('[plugins]\nalow = ["a"]')
    assert refusal(workplace.project).startswith(f"{path}: plugins.alow: unknown key.")


def test_the_user_file_is_allotment_toml_in_the_users_folder(workplace):
    path = workplace.write("quiet = true", "user/allotment.toml")
    (setting,) = read_user_file(workplace.user).values()
    assert (setting.key, setting.origin.kind, setting.origin.place) == ("quiet", OriginKind.USER_FILE, str(path))
