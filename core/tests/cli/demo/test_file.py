import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

import allotment as al
from allotment.cli.demo._file import ConfigFile
from allotment.configuration import PluginValues


@pytest.fixture
def devices():
    with al.simulate("2xh200"):
        yield {device.alias: device for device in al.get_devices()}


def test_a_choice_for_a_gpu_is_one_for_all(devices, tmp_path):
    loaded = ConfigFile.naming("some-name", devices["cuda:0"], tmp_path / "allotment.toml").load(PluginValues())

    assert loaded.allocator_for("cuda:1").value == "some-name"
    assert str(loaded.allocator_for("cuda:1").origin) == str(tmp_path / "allotment.toml")


def test_a_choice_for_the_host_names_it(devices, tmp_path):
    loaded = ConfigFile.naming("some-name", devices["cpu"], tmp_path / "allotment.toml").load(PluginValues())

    assert loaded.allocator_for("cpu").value == "some-name"
    assert loaded.allocator_for("cuda:0") is None


def test_nothing_but_the_file_is_read(devices, tmp_path, monkeypatch):
    monkeypatch.setenv("ALLOTMENT_ALLOCATOR", "from-the-environment")
    loaded = ConfigFile.naming("some-name", devices["cuda:0"], tmp_path / "allotment.toml").load(PluginValues())

    assert loaded.values.allocator == "some-name"


def test_what_the_user_allows_holds(devices, tmp_path):
    file = ConfigFile.naming("some-name", devices["cuda:0"], tmp_path / "allotment.toml")
    plugins = PluginValues(allow=("a", "b"), deny=("b",))

    assert file.load(plugins).values.plugins == plugins


@given(st.from_regex(r"([a-z0-9-]+:)?[a-z0-9]+([-.][a-z0-9]+)*", fullmatch=True))
def test_every_name_can_be_written(name):
    file = ConfigFile.naming(name, al.get_device("cpu"), path=None)

    assert tomllib.loads(file.text) == {"devices": {"cpu": {"allocator": name}}}
