import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

import allotment
from allotment.configuration import Configuration, OriginKind, PluginValues
from allotment.errors import ConfigError, ConfigWarning
from allotment.units import MemoryAmount

NOTHING = MemoryAmount(nbytes=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    release_threshold: MemoryAmount = NOTHING
    allocator: str = "x"


@pytest.fixture
def configuration(workplace):
    return workplace.configuration()


def test_nothing_is_read_before_the_first_need():
    readings = []

    def read():
        readings.append(1)
        return Configuration.isolated()._reading

    configuration = Configuration(read)
    assert configuration.version > 0
    assert readings == []
    assert configuration.platform == configuration.platform == "auto"
    assert readings == [1]


def test_importing_reads_no_configuration(workplace):
    workplace.write("this is = = broken")
    done = subprocess.run(
        [sys.executable, "-c", "import allotment.configuration as c; c.current(); c.subscribe(print)"],
        cwd=workplace.project,
        env=os.environ | {"PYTHONPATH": str(Path(allotment.__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_each_place_is_stronger_than_the_next(workplace):
    workplace.write('allocator = "user"', "user/allotment.toml")
    assert workplace.configuration().allocator == "user"
    workplace.write('allocator = "project"')
    assert workplace.configuration().allocator == "project"
    workplace.environment["ALLOTMENT_ALLOCATOR"] = "variable"
    configuration = workplace.configuration()
    assert configuration.allocator == "variable"
    configuration.configure(allocator="call")
    setting = configuration.value("allocator")
    assert setting.value == "call"
    assert [weaker.value for weaker in setting.shadowed] == ["variable", "project", "user"]


def test_a_value_says_where_it_was_said(workplace):
    path = workplace.write("quiet = true")
    setting = workplace.configuration().value("quiet")
    assert (setting.value, setting.origin.kind, setting.origin.place) == (True, OriginKind.PROJECT_FILE, str(path))


def test_a_call_says_the_file_and_line_of_the_caller(configuration):
    configuration.configure(quiet=True)
    assert configuration.value("quiet").origin.place.startswith(f"configure() at {Path(__file__)}:")


def test_a_file_named_by_a_variable_replaces_the_projects(workplace):
    workplace.write('allocator = "project"')
    workplace.environment["ALLOTMENT_CONFIG"] = str(workplace.write('allocator = "named"', "elsewhere/my.toml"))
    assert workplace.configuration().value("allocator").value == "named"


def test_values_are_typed(configuration):
    configuration.configure(plugins={"deny": ["a"]}, devices={"cuda:1": "b"})
    assert configuration.plugins == configuration.values.plugins == PluginValues(deny=("a",))
    assert configuration.configured_devices() == ("cuda:1",)


def test_what_is_no_key_is_no_attribute(configuration):
    with pytest.raises(AttributeError, match="platfrom"):
        configuration.platfrom  # noqa: B018


def test_all_or_nothing_is_changed(configuration):
    version = configuration.version
    with pytest.raises(ConfigError, match=r"^configure\(\) at .*: quiet: expected true or false, got 'x'\.$"):
        configuration.configure(allocator="a", quiet="x")
    assert configuration.allocator is None
    assert configuration.version == version


def test_tables_add_to_what_earlier_calls_said(configuration):
    configuration.configure(devices={"cuda:0": "a", "cuda:1": "b"})
    configuration.configure(devices={"cuda:1": "c"})
    assert {alias: device.allocator for alias, device in configuration.devices.items()} == {
        "cuda:0": "a",
        "cuda:1": "c",
    }


def test_none_takes_back_what_calls_said_and_the_files_count_again(workplace):
    workplace.write('allocator = "project"\n[devices]\n"cuda:0" = "project"')
    configuration = workplace.configuration()
    configuration.configure(allocator="a", devices={"cuda:0": "a", "cuda:1": "a"}, allocators={"b": {"x": 1}})
    configuration.configure(allocator=None, devices=None, allocators={"B": None})
    assert configuration.allocator == "project"
    assert configuration.configured_devices() == ("cuda:0",)
    assert configuration.configured_allocators() == ()


def test_the_allocator_of_a_device_follows_the_order_of_places(workplace):
    workplace.write('[devices."cuda:1"]\nallocator = "managed"')
    configuration = workplace.configuration()
    assert configuration.allocator_for("cuda:0") is None
    assert configuration.allocator_for("cuda:1").value == "managed"
    configuration.configure(allocator="mempool")
    assert configuration.allocator_for("cuda:1").value == "mempool"
    assert "overruled by allocator in configure()" in configuration.notes()[0]


def test_options_are_merged_from_all_places(workplace):
    workplace.write('[allocators.mempool]\nrelease_threshold = "1 GiB"\nallocator = "y"')
    workplace.environment["ALLOTMENT_ALLOCATORS__MEMPOOL__RELEASE_THRESHOLD"] = "0.5"
    configuration = workplace.configuration()
    assert configuration.options_for("MemPool", PoolOptions) == PoolOptions(
        release_threshold=MemoryAmount(fraction=0.5), allocator="y"
    )


def test_options_given_by_a_call_are_the_strongest(configuration):
    configuration.configure(allocators={"mempool": {"release_threshold": "1 GiB"}})
    given = configuration.options_for("mempool", PoolOptions, release_threshold=0.25, allocator="z")
    assert given == PoolOptions(release_threshold=MemoryAmount(fraction=0.25), allocator="z")


def test_options_of_a_plugin_are_merged_from_all_places_and_known_with_their_origin(workplace):
    path = workplace.write("[plugins.leak_mailer]\nrelease_threshold = '1 GiB'\nallocator = 'y'")
    workplace.environment["ALLOTMENT_PLUGINS__LEAK_MAILER__RELEASE_THRESHOLD"] = "0.5"
    configuration = workplace.configuration()
    setting = configuration.value("plugins.leak-mailer.release_threshold")

    assert configuration.plugin_options("Leak_Mailer", PoolOptions) == PoolOptions(
        release_threshold=MemoryAmount(fraction=0.5), allocator="y"
    )
    assert (setting.origin.place, setting.value) == ("ALLOTMENT_PLUGINS__LEAK_MAILER__RELEASE_THRESHOLD", "0.5")
    assert [weaker.origin.place for weaker in setting.shadowed] == [str(path)]
    assert tuple(configuration.configured_plugins()) == ("leak-mailer",)


def test_a_misspelt_list_of_plugins_in_a_variable_is_no_plugin(workplace):
    workplace.environment["ALLOTMENT_PLUGINS__DENNY"] = "pinned"
    with pytest.warns(ConfigWarning, match="Did you mean 'ALLOTMENT_PLUGINS__DENY'"):
        assert workplace.configuration().configured_plugins() == {}


def test_a_misspelt_option_in_a_call_names_the_call(configuration):
    with pytest.raises(ConfigError, match=r"^call at .*: allocators\.mempool\.release_treshold: unknown key"):
        configuration.options_for("mempool", PoolOptions, release_treshold=0.5)


def test_a_source_that_cannot_be_read_fails_each_need_until_it_is_mended(workplace):
    workplace.write("quiet = maybe")
    configuration = workplace.configuration()
    for _ in range(2):
        with pytest.raises(ConfigError, match="not valid TOML"):
            configuration.value("quiet")
    with pytest.raises(ConfigError, match="not valid TOML"):
        configuration.configure(allocator="a")
    workplace.write("quiet = true")
    assert configuration.quiet is True
    assert configuration.allocator is None


def test_a_variable_that_changes_late_is_noted_and_takes_effect_on_reload(workplace):
    configuration = workplace.configuration()
    assert configuration.platform == "auto"
    workplace.environment["ALLOTMENT_PLATFORM"] = "host"
    assert configuration.platform == "auto"
    assert configuration.notes() == (
        "ALLOTMENT_PLATFORM changed after it was read; it takes effect when the configuration is reloaded",
    )
    configuration.reload()
    assert configuration.platform == "host"
    assert configuration.notes() == ()


def test_reload_keeps_what_calls_said(workplace):
    configuration = workplace.configuration()
    configuration.configure(allocator="a")
    workplace.write('allocator = "b"\nquiet = true')
    configuration.reload()
    assert (configuration.allocator, configuration.quiet) == ("a", True)


def test_a_reload_that_fails_changes_nothing(workplace):
    workplace.write("quiet = true")
    configuration = workplace.configuration()
    version = (configuration.quiet, configuration.version)[1]
    workplace.write("quiet = 5")
    with pytest.raises(ConfigError):
        configuration.reload()
    assert configuration.quiet is True
    assert configuration.version == version


def test_the_version_grows_with_each_change(configuration):
    versions = [configuration.version]
    for change in ({"quiet": True}, {"allocators": {"a": {"x": 1}}}, {"quiet": None}):
        configuration.configure(**change)
        versions.append(configuration.version)
    assert versions == sorted(set(versions))


def test_what_changes_nothing_leaves_the_version(configuration):
    version = configuration.version
    configuration.configure()
    configuration.configure(allocator=None)
    configuration.reload()
    assert configuration.version == version


def test_no_two_configurations_share_a_version():
    assert Configuration.isolated().version != Configuration.isolated().version


def test_listeners_hear_of_a_change_after_it_is_made(configuration):
    heard = []
    configuration.subscribe(lambda changed: heard.append((changed, configuration.quiet)))
    configuration.configure(quiet=True)
    assert heard == [({"quiet"}, True)]


def test_listeners_hear_nothing_of_a_refused_change(configuration):
    heard = []
    configuration.subscribe(heard.append)
    with pytest.raises(ConfigError):
        configuration.configure(quiet=5)
    assert heard == []


def test_a_listener_can_leave(configuration):
    heard = []
    leave = configuration.subscribe(heard.append)
    leave()
    configuration.configure(quiet=True)
    assert heard == []


def test_the_table_lists_every_key_with_value_origin_and_what_it_shadows(workplace):
    workplace.write("quiet = true")
    workplace.environment["ALLOTMENT_QUIET"] = "0"
    rows = {setting.key: setting for setting in workplace.configuration().table()}
    assert rows["quiet"].value is False
    assert rows["quiet"].origin.place == "ALLOTMENT_QUIET"
    assert [setting.value for setting in rows["quiet"].shadowed] == [True]
    assert rows["platform"].origin.kind is OriginKind.DEFAULT


def test_a_file_that_was_passed_over_is_noted(workplace):
    workplace.write("quiet = true")
    workplace.write("[tool.allotment]\nquiet = false", "project/pyproject.toml")
    (note,) = workplace.configuration().notes()
    assert "[tool.allotment] is not used" in note


def test_a_sealed_key_that_changes_brings_a_warning_and_a_note(configuration):
    configuration.seal("enable_mempools_at_init")
    with pytest.warns(ConfigWarning, match="enable_mempools_at_init = False has no effect: .* as True") as caught:
        configuration.configure(enable_mempools_at_init=False)
    assert caught[0].filename == __file__
    assert configuration.enable_mempools_at_init is False
    (note,) = configuration.notes()
    assert note.startswith("enable_mempools_at_init was set to False in configure() at ")
    assert note.endswith("after it had taken effect as True")


def test_a_sealed_key_may_be_set_to_what_it_is_and_others_may_change(configuration):
    configuration.seal("enable_mempools_at_init")
    configuration.configure(enable_mempools_at_init=True, quiet=True)
    assert configuration.notes() == ()


def test_a_warning_made_an_error_leaves_everything_as_it_was(configuration):
    configuration.seal("quiet")
    with pytest.raises(ConfigWarning):
        configuration.configure(quiet=True, allocator="a")
    assert (configuration.quiet, configuration.allocator) == (False, None)


def test_an_isolated_configuration_reads_nothing(workplace, monkeypatch):
    workplace.write("quiet = true")
    monkeypatch.chdir(workplace.project)
    monkeypatch.setenv("ALLOTMENT_QUIET", "1")
    configuration = Configuration.isolated(platform="sim:2xh200")
    assert (configuration.platform, configuration.quiet) == ("sim:2xh200", False)


def test_changes_from_many_threads_are_all_kept(configuration):
    def say(index):
        configuration.configure(allocators={f"a{index}": {"x": index}})

    threads = [threading.Thread(target=say, args=(index,)) for index in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(configuration.configured_allocators()) == 16
