from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

import pytest

from allotment.configuration import Origin, OriginKind, Setting
from allotment.configuration._options import decode_options
from allotment.errors import ConfigError, PluginLoadError
from allotment.units import MemoryAmount

if TYPE_CHECKING:
    from nowhere import Missing

FILE = Origin(OriginKind.PROJECT_FILE, "allotment.toml")
CALL = Origin(OriginKind.CALL, "call")


WHOLE_DEVICE = MemoryAmount(fraction=1.0)


class Location(Enum):
    DEVICE = "device"
    HOST = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    release_threshold: MemoryAmount = WHOLE_DEVICE
    initial: int = 0
    maximum: int | None = None
    share: bool = False
    location: Location = Location.DEVICE

    def __post_init__(self):
        if self.maximum is not None and self.initial > self.maximum:
            raise ValueError(f"initial {self.initial} is above maximum {self.maximum}")


@dataclass(frozen=True)
class NeedyOptions:
    path: str
    made: list = field(default_factory=list, init=False)


@dataclass(frozen=True)
class BrokenOptions:
    x: "Missing" = None


def setting(option, value, origin=FILE):
    return Setting(f"allocators.mempool.{option}", value, origin)


def variable(option, value):
    name = f"ALLOTMENT_ALLOCATORS__MEMPOOL__{option.upper()}"
    return setting(option, value, Origin(OriginKind.ENVIRONMENT, name))


def refusal(*said, options_type=PoolOptions) -> str:
    with pytest.raises(ConfigError) as caught:
        decode_options("mempool", options_type, said)
    return str(caught.value)


def test_without_settings_the_defaults_hold():
    assert decode_options("mempool", PoolOptions, []) == PoolOptions()


def test_settings_are_read_as_the_declared_types():
    said = [setting("release_threshold", "512MB"), setting("location", "HOST"), setting("share", True)]
    assert decode_options("mempool", PoolOptions, said) == PoolOptions(
        release_threshold=MemoryAmount(nbytes=512_000_000), location=Location.HOST, share=True
    )


def test_variables_are_read_from_text():
    said = [
        variable("release_threshold", "0.5"),
        variable("initial", "7"),
        variable("maximum", "none"),
        variable("share", "on"),
    ]
    assert decode_options("mempool", PoolOptions, said) == PoolOptions(
        release_threshold=MemoryAmount(fraction=0.5), initial=7, share=True
    )


def test_the_strongest_setting_of_each_option_counts():
    said = [setting("initial", 1), setting("share", True), variable("initial", "2"), setting("initial", 3, CALL)]
    assert decode_options("mempool", PoolOptions, said) == PoolOptions(initial=3, share=True)


def test_an_unknown_option_names_origin_key_accepted_options_and_the_nearest():
    assert refusal(setting("release_treshold", 0.5)) == (
        "allotment.toml: allocators.mempool.release_treshold: unknown key. "
        "Accepted here: release_threshold, initial, maximum, share, location. Did you mean 'release_threshold'?"
    )


def test_an_unknown_option_in_a_variable_names_the_variable():
    assert refusal(variable("sharing", "1")).startswith(
        "ALLOTMENT_ALLOCATORS__MEMPOOL__SHARING: allocators.mempool.sharing: unknown key."
    )


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("initial", "many", "expected a whole number, got 'many'"),
        ("initial", True, "expected a whole number, got True"),
        ("share", 1, "expected true or false, got 1"),
        ("location", "moon", "expected one of 'device', 'host', got 'moon'"),
        ("release_threshold", 1.5, "1.5 is neither a fraction (0 to 1) nor a whole number of bytes"),
        ("release_threshold", "12QB", "'12QB' is not a size: write a number and a unit, such as '2 GiB' or '512MB'"),
    ],
)
def test_an_ill_typed_option_names_origin_key_value_and_what_was_expected(option, value, problem):
    assert refusal(setting(option, value)) == f"allotment.toml: allocators.mempool.{option}: {problem}."


def test_an_ill_typed_option_is_refused_also_where_it_is_overruled():
    assert "allotment.toml: allocators.mempool.initial" in refusal(setting("initial", "x"), setting("initial", 1, CALL))


def test_a_value_that_the_options_refuse_names_its_origin():
    assert refusal(setting("maximum", -1)) == (
        "allotment.toml: allocators.mempool.maximum: initial 0 is above maximum -1."
    )


def test_a_conflicting_pair_names_both_origins():
    assert refusal(setting("initial", 9), setting("maximum", 5, CALL)) == (
        "allotment.toml and call: allocators.mempool: initial 9 is above maximum 5."
    )


def test_the_refusal_is_chained_to_its_cause():
    with pytest.raises(ConfigError) as caught:
        decode_options("mempool", PoolOptions, [setting("maximum", -1)])
    assert type(caught.value.__cause__) is ValueError


def test_an_allocator_without_options_accepts_none():
    assert decode_options("default", None, []) is None
    assert refusal(setting("x", 1), options_type=None) == (
        "allotment.toml: allocators.mempool.x: unknown key. Accepted here: none."
    )


def test_an_option_without_a_default_must_be_said():
    assert refusal(options_type=NeedyOptions) == (
        "configuration: allocators.mempool.path: it has no default and must be said."
    )
    assert decode_options("mempool", NeedyOptions, [setting("path", "/x")]).path == "/x"


def test_a_field_that_the_options_make_themselves_is_no_option():
    assert "Accepted here: path." in refusal(setting("made", []), options_type=NeedyOptions)


def test_options_whose_annotations_cannot_be_read_are_the_plugins_fault():
    with pytest.raises(PluginLoadError, match=r"allocator 'mempool' failed to load: .*'Missing' is not defined"):
        decode_options("mempool", BrokenOptions, [])
