import os

import pytest

from allotment.configuration import OriginKind, Reading, read_sources


@pytest.fixture
def process(workplace, monkeypatch):
    """The real surroundings of this process, made to be those of the workplace."""
    for name in [name for name in os.environ if name.startswith("ALLOTMENT_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(workplace.project)
    monkeypatch.setenv("HOME", str(workplace.root))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(workplace.root))
    return monkeypatch


def said(reading):
    return {
        (source.kind, setting.key): setting.value for source in reading.sources for setting in source.settings.values()
    }


def test_the_environment_the_project_and_the_user_are_read(workplace):
    workplace.environment["ALLOTMENT_QUIET"] = "1"
    workplace.write('platform = "host"')
    workplace.write('allocator = "a"', "user/allotment.toml")
    assert said(read_sources(workplace.environment, workplace.project, workplace.user)) == {
        (OriginKind.ENVIRONMENT, "quiet"): True,
        (OriginKind.PROJECT_FILE, "platform"): "host",
        (OriginKind.USER_FILE, "allocator"): "a",
    }


def test_by_default_the_surroundings_of_the_process_are_read(process, workplace):
    process.setenv("ALLOTMENT_QUIET", "1")
    workplace.write('platform = "host"')
    assert said(read_sources(user_directory=workplace.user)) == {
        (OriginKind.ENVIRONMENT, "quiet"): True,
        (OriginKind.PROJECT_FILE, "platform"): "host",
    }


@pytest.mark.skipif(os.name != "posix" or os.uname().sysname == "Darwin", reason="the XDG variables are for Linux")
def test_the_users_folder_is_that_of_the_platform(process, workplace):
    workplace.write("quiet = true", "allotment/allotment.toml")
    assert said(read_sources()) == {(OriginKind.USER_FILE, "quiet"): True}


@pytest.mark.skipif(os.name != "posix", reason="Windows does not remove a folder in use")
def test_a_working_directory_that_was_removed_holds_no_project(process, workplace):
    workplace.project.rmdir()
    assert said(read_sources(user_directory=workplace.user)) == {}


def test_a_variable_that_changes_later_is_noticed():
    environment = {"ALLOTMENT_QUIET": "1", "ALLOTMENT_PLATFORM": "host"}
    reading = read_sources(environment)
    assert reading.changed_variables() == ()
    environment |= {"ALLOTMENT_ALLOCATOR": "a", "ALLOTMENT_QUIET": "0", "HOME": "/"}
    del environment["ALLOTMENT_PLATFORM"]
    assert reading.changed_variables() == ("ALLOTMENT_ALLOCATOR", "ALLOTMENT_PLATFORM", "ALLOTMENT_QUIET")


def test_an_empty_reading_says_nothing():
    assert Reading().sources == ()
    assert Reading().changed_variables() == ()
