import pytest

from allotment.configuration import LaunchArrayAccessMode, Origin, OriginKind, PluginValues, Values
from allotment.configuration._schema import assemble, defaults, parse
from allotment.errors import ConfigError

FILE = Origin(OriginKind.PROJECT_FILE, "allotment.toml")


def said(table):
    return {setting.key: setting.value for setting in parse(table, FILE).settings.values()}


def refusal(table) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(table, FILE)
    return str(caught.value)


def test_tables_become_flat_keys():
    assert said(
        {
            "allocator": "caching",
            "devices": {"cuda:1": {"allocator": "managed"}},
            "allocators": {"mempool": {"release_threshold": 0.5}},
            "plugins": {"allow": ["a"], "deny": []},
        }
    ) == {
        "allocator": "caching",
        "devices.cuda:1.allocator": "managed",
        "allocators.mempool.release_threshold": 0.5,
        "plugins.allow": ("a",),
        "plugins.deny": (),
    }


def test_a_bare_string_is_the_allocator_of_a_device():
    assert said({"devices": {"cuda:1": "managed"}}) == {"devices.cuda:1.allocator": "managed"}


def test_names_of_allocators_are_normalised():
    assert said({"allocators": {"Torch_Caching": {"x": 1}}}) == {"allocators.torch-caching.x": 1}


def test_options_of_plugins_stand_beside_the_lists_of_plugins():
    table = {"plugins": {"deny": ["x"], "Leak_Mailer": {"recipient": "a@b", "smtp": {"port": 25}}}}
    assert said(table) == {
        "plugins.deny": ("x",),
        "plugins.leak-mailer.recipient": "a@b",
        "plugins.leak-mailer.smtp": {"port": 25},
    }


@pytest.mark.parametrize(("name", "problem"), [("Allow", "unknown key"), ("deny", "expected a list"), (" ", "a name")])
def test_a_table_that_cannot_be_a_plugin_s_is_refused(name, problem):
    assert problem in refusal({"plugins": {name: {"x": 1}}})


def test_a_layer_is_a_name_or_a_table_of_its_name():
    layers = ["Track", {"limit": "60 GiB"}, "limit = 60 GiB", {"fault": {"at": 3}}]

    assert said({"layers": layers, "devices": {"cuda:0": {"layers": []}}}) == {
        "layers": ("track", {"limit": "60 GiB"}, {"limit": "60 GiB"}, {"fault": {"at": 3}}),
        "devices.cuda:0.layers": (),
    }


def test_two_spellings_of_one_allocator_may_not_contradict_each_other():
    table = {"allocators": {"torch_caching": {"x": 1}, "torch-caching": {"x": 2}}}
    assert refusal(table) == "allotment.toml: allocators.torch-caching.x: is said twice, with different values."


def test_an_unknown_key_names_file_key_accepted_keys_and_the_nearest():
    assert refusal({"alocator": "x"}) == (
        "allotment.toml: alocator: unknown key. Accepted here: allocator, layers, devices, allocators, platform, "
        "plugins, enable_mempools_at_init, quiet, launch_array_access_mode, bridges, watch, metrics. "
        "Did you mean 'allocator'?"
    )


@pytest.mark.parametrize("key", ["templates", "", 5])
def test_a_key_of_another_version_is_unknown(key):
    assert "unknown key" in refusal({key: "x"})


def test_an_unknown_nested_key_is_named_in_full():
    assert refusal({"plugins": {"alow": []}}) == (
        "allotment.toml: plugins.alow: unknown key. Accepted here: allow, deny. Did you mean 'allow'?"
    )
    assert "devices.cuda:0.alocator: unknown key" in refusal({"devices": {"cuda:0": {"alocator": "x"}}})


@pytest.mark.parametrize(
    ("table", "key", "problem"),
    [
        ({"allocator": 5}, "allocator", "expected text, got 5"),
        ({"allocator": " "}, "allocator", "expected a name, got ' '"),
        ({"quiet": "yes"}, "quiet", "expected true or false, got 'yes'"),
        ({"platform": "gpu"}, "platform", "expected 'auto', 'cuda', 'host' or 'sim:<profile>', got 'gpu'"),
        ({"platform": "sim:"}, "platform", "expected 'auto', 'cuda', 'host' or 'sim:<profile>', got 'sim:'"),
        ({"devices": "managed"}, "devices", "expected a table, got 'managed'"),
        ({"devices": {"cuda:0": 5}}, "devices.cuda:0", "expected a table, got 5"),
        ({"devices": {"cuda": "x"}}, "devices.cuda", "expected a device such as 'cuda:0' or 'cpu', got 'cuda'"),
        ({"devices": {"gpu:0": "x"}}, "devices.gpu:0", "expected a device such as 'cuda:0' or 'cpu', got 'gpu:0'"),
        ({"allocators": {"mempool": 1}}, "allocators.mempool", "expected a table, got 1"),
        ({"plugins": {"allow": "a"}}, "plugins.allow", "expected a list, each item text, got 'a'"),
        ({"plugins": {"deny": [""]}}, "plugins.deny", "expected a name, got ''"),
        ({"layers": [""]}, "layers", "expected a name, got ''"),
        ({"metrics": {"port": 65536}}, "metrics.port", "expected a port, a number from 0 to 65535, got 65536"),
        ({"metrics": {"port": "x"}}, "metrics.port", "expected a whole number, got 'x'"),
        (
            {"metrics": {"address": " "}},
            "metrics.address",
            "expected an address such as '127.0.0.1' or '0.0.0.0', got ' '",
        ),
        ({"watch": "always"}, "watch", "expected true or false, got 'always'"),
        ({"layers": "track"}, "layers", "expected a list, each item any value, got 'track'"),
        (
            {"layers": [{"a": 1, "b": 2}]},
            "layers",
            "expected a name, or a table of one such as { limit = '60 GiB' }, got {'a': 1, 'b': 2}",
        ),
        ({"layers": [5]}, "layers", "expected a name, or a table of one such as { limit = '60 GiB' }, got 5"),
    ],
)
def test_an_ill_typed_value_names_file_key_value_and_what_was_expected(table, key, problem):
    assert refusal(table) == f"allotment.toml: {key}: {problem}."


def test_none_withdraws_a_key_and_what_is_below_it():
    parsed = parse({"allocator": None, "devices": None, "allocators": {"a_b": None}, "plugins": {"allow": None}}, FILE)
    assert parsed.settings == {}
    assert parsed.withdrawn == {("allocator",), ("devices",), ("allocators", "a-b"), ("plugins", "allow")}
    assert parse({"plugins": {"c_d": None}}, FILE).withdrawn == {("plugins", "c-d")}


def test_none_is_a_value_of_an_option():
    assert said({"allocators": {"caching": {"limit": None}}}) == {"allocators.caching.limit": None}


def test_every_fixed_key_has_a_default():
    assert {setting.key: setting.value for setting in defaults().values()} == {
        "allocator": None,
        "layers": (),
        "platform": "auto",
        "plugins.allow": None,
        "plugins.deny": (),
        "enable_mempools_at_init": True,
        "quiet": False,
        "launch_array_access_mode": LaunchArrayAccessMode.RELAXED,
        "bridges.install": (),
        "watch": False,
        "metrics.port": None,
        "metrics.address": "127.0.0.1",
    }


def test_flat_settings_become_typed_values():
    values = assemble(parse({"devices": {"cuda:1": "a"}, "plugins": {"deny": ["b"]}}, FILE).settings)
    assert values.devices["cuda:1"].allocator == "a"
    assert values.plugins == PluginValues(deny=("b",))
    assert values.platform == "auto"


def test_options_of_plugins_do_not_hinder_typed_values():
    values = assemble(parse({"plugins": {"deny": ["b"], "leak-mailer": {"recipient": "a@b"}}}, FILE).settings)
    assert values.plugins == PluginValues(deny=("b",))


def test_values_cannot_be_changed_in_place():
    values = Values(devices={}, allocators={"a": {"x": 1}})
    with pytest.raises(TypeError):
        values.devices["cuda:0"] = "managed"
    with pytest.raises(TypeError):
        values.allocators["a"]["x"] = 2
