import warnings

import pytest

from allotment.configuration._environment import read_environment, variables_of
from allotment.errors import ConfigError, ConfigWarning


def said(**variables):
    return {setting.key: setting.value for setting in read_environment(variables).values()}


def test_only_variables_with_the_prefix_are_read():
    assert variables_of({"HOME": "/", "ALLOTMENT_QUIET": "1", "allotment_quiet": "0"}) == {"ALLOTMENT_QUIET": "1"}


def test_a_variable_sets_a_key():
    assert said(ALLOTMENT_ALLOCATOR=" managed ", ALLOTMENT_QUIET="yes") == {"allocator": "managed", "quiet": True}


def test_a_double_underscore_nests():
    assert said(ALLOTMENT_ALLOCATORS__MEMPOOL__RELEASE_THRESHOLD="0.5") == {
        "allocators.mempool.release_threshold": "0.5"
    }


def test_the_name_of_an_allocator_is_normalised():
    assert said(ALLOTMENT_ALLOCATORS__TORCH_CACHING__X="1") == {"allocators.torch-caching.x": "1"}


@pytest.mark.parametrize("variable", ["ALLOTMENT_DEVICES__CUDA_1", "ALLOTMENT_DEVICES__CUDA_1__ALLOCATOR"])
def test_a_device_is_written_with_an_underscore(variable):
    assert said(**{variable: "managed"}) == {"devices.cuda:1.allocator": "managed"}


def test_the_cpu_is_a_device():
    assert said(ALLOTMENT_DEVICES__CPU="pinned") == {"devices.cpu.allocator": "pinned"}


def test_a_list_is_separated_by_commas():
    assert said(ALLOTMENT_PLUGINS__DENY="a, b") == {"plugins.deny": ("a", "b")}


def test_an_empty_allow_list_allows_none():
    assert said(ALLOTMENT_PLUGINS__ALLOW="") == {"plugins.allow": ()}


def test_the_origin_is_the_variable():
    (setting,) = read_environment({"ALLOTMENT_PLATFORM": "host"}).values()
    assert setting.origin.place == "ALLOTMENT_PLATFORM"


def test_the_variable_that_names_the_file_is_no_setting():
    assert said(ALLOTMENT_CONFIG="/etc/allotment.toml") == {}


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("ALLOTMENT_ALOCATOR", "ALLOTMENT_ALLOCATOR"),
        ("ALLOTMENT_CONFG", "ALLOTMENT_CONFIG"),
        ("ALLOTMENT_PLUGINS_ALLOW", "ALLOTMENT_PLUGINS__ALLOW"),
        ("ALLOTMENT_PLUGINS__ALOW", "ALLOTMENT_PLUGINS__ALLOW"),
        ("ALLOTMENT_DEVICES__CUDA_1__ALOCATOR", "ALLOTMENT_DEVICES__CUDA_1__ALLOCATOR"),
    ],
)
def test_an_unknown_variable_brings_a_warning_with_the_nearest(variable, meant):
    with pytest.warns(ConfigWarning, match=f"{variable} is ignored: .* Did you mean '{meant}'"):
        assert said(**{variable: "x"}) == {}


@pytest.mark.parametrize(
    "variable", ["ALLOTMENT_", "ALLOTMENT___X", "ALLOTMENT_ALLOCATOR__X", "ALLOTMENT_ALLOCATORS__A__B__C"]
)
def test_a_variable_that_nests_where_nothing_nests_is_unknown(variable):
    with pytest.warns(ConfigWarning, match=f"{variable} is ignored"):
        assert said(**{variable: "x"}) == {}


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("ALLOTMENT_ALLOCATOR", "", "allocator: expected a name, got ''"),
        ("ALLOTMENT_QUIET", "maybe", r"quiet: expected true or false \(1/0, yes/no, on/off\), got 'maybe'"),
        ("ALLOTMENT_PLATFORM", "C:\\cuda", "platform: expected 'auto', .* got 'C:"),
        ("ALLOTMENT_PLUGINS__DENY", ",", "plugins.deny: an item is empty in ','"),
        ("ALLOTMENT_PLUGINS", "a", "plugins: expected a table, got 'a'"),
        ("ALLOTMENT_DEVICES__CUDA", "a", "devices.cuda: expected a device such as 'cuda:0'"),
        ("ALLOTMENT_ALLOCATORS__MEMPOOL", "a", "allocators.mempool: expected a table, got 'a'"),
    ],
)
def test_a_malformed_value_names_the_variable(variable, value, message):
    with pytest.raises(ConfigError, match=f"^{variable}: {message}"):
        said(**{variable: value})


def test_two_variables_may_say_the_same_of_one_key():
    assert said(ALLOTMENT_DEVICES__CUDA_0="a", ALLOTMENT_DEVICES__CUDA_0__ALLOCATOR="a") == {
        "devices.cuda:0.allocator": "a"
    }


def test_two_variables_that_contradict_each_other_are_refused_by_name():
    with pytest.raises(ConfigError) as caught:
        said(ALLOTMENT_DEVICES__CUDA_0="a", ALLOTMENT_DEVICES__CUDA_0__ALLOCATOR="b")
    assert str(caught.value) == (
        "ALLOTMENT_DEVICES__CUDA_0 and ALLOTMENT_DEVICES__CUDA_0__ALLOCATOR: devices.cuda:0.allocator: "
        "they say different things, 'a' and 'b'. Unset one of them."
    )


def test_a_known_variable_brings_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        said(ALLOTMENT_ENABLE_MEMPOOLS_AT_INIT="0")
