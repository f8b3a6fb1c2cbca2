from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.configuration._reading import describe, read
from allotment.units import MemoryAmount


class Location(Enum):
    DEVICE = "device"
    HOST_NUMA = "host-numa"


class Mode(IntEnum):
    RELAXED = 0
    STRICT = 2


@pytest.mark.parametrize("word", ["1", "true", "True", "YES", "on"])
def test_a_word_for_true_is_read_from_text(word):
    assert read(word, bool, text=True) is True


@pytest.mark.parametrize("word", ["0", "false", "FALSE", "no", "off"])
def test_a_word_for_false_is_read_from_text(word):
    assert read(word, bool, text=True) is False


@pytest.mark.parametrize("word", ["", "maybe", "2", "t r u e"])
def test_any_other_word_is_no_boolean(word):
    with pytest.raises(ValueError, match="expected true or false"):
        read(word, bool, text=True)


@pytest.mark.parametrize("value", ["true", 1, 0, None])
def test_outside_of_text_only_booleans_are_booleans(value):
    with pytest.raises(ValueError, match="expected true or false, got"):
        read(value, bool)


@given(st.integers(-(2**60), 2**60))
def test_a_whole_number_is_read_as_a_number_and_from_text(number):
    assert read(number, int) == read(str(number), int, text=True) == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_read_as_a_number_and_from_text(number):
    assert read(number, float) == read(repr(number), float, text=True) == number


def test_a_whole_number_will_do_for_a_number():
    assert read(1, float) == 1.0


@pytest.mark.parametrize(("value", "expected"), [(True, int), ("1", int), (1.5, int), ("0.5", float), (True, float)])
def test_a_number_of_another_type_is_refused(value, expected):
    with pytest.raises(ValueError, match=r"expected a (whole )?number, got"):
        read(value, expected)


@pytest.mark.parametrize("value", [0.5, "50%", "0.5"])
def test_a_fraction_is_an_amount_of_memory(value):
    assert read(value, MemoryAmount) == MemoryAmount(fraction=0.5)


@pytest.mark.parametrize("text", [True, False])
def test_a_size_is_an_amount_of_memory(text):
    assert read("512MB", MemoryAmount, text=text) == MemoryAmount(nbytes=512_000_000)


@pytest.mark.parametrize("value", ["12QB", True, [1], None])
def test_what_is_no_amount_of_memory_is_refused(value):
    with pytest.raises(ValueError, match=r"is not a size|an amount of memory is"):
        read(value, MemoryAmount)


@pytest.mark.parametrize("value", [Location.HOST_NUMA, "host-numa", "HOST_NUMA", "host_numa", "Host-Numa"])
def test_an_enum_is_read_by_member_value_and_name(value):
    assert read(value, Location) is Location.HOST_NUMA


def test_an_enum_of_numbers_is_read_by_value_from_text():
    assert read("2", Mode, text=True) is Mode.STRICT
    assert read(2, Mode) is Mode.STRICT


@pytest.mark.parametrize("value", ["hots", True, 1, None])
def test_another_value_of_an_enum_is_refused_with_those_that_exist(value):
    with pytest.raises(ValueError, match="expected one of 'relaxed', 'strict', got"):
        read(value, Mode)


def test_a_list_is_read_item_by_item():
    assert read(["1 GiB", 0.5], tuple[MemoryAmount, ...]) == (MemoryAmount(nbytes=2**30), MemoryAmount(fraction=0.5))


def test_a_list_is_separated_by_commas_in_text():
    assert read("a, b,c", tuple[str, ...], text=True) == ("a", "b", "c")
    assert read("", tuple[str, ...], text=True) == ()


def test_a_list_in_brackets_is_toml_in_text():
    assert read('["a, b", { c = 1 }]', tuple[Any, ...], text=True) == ("a, b", {"c": 1})
    with pytest.raises(ValueError, match=r"'\[a' is no list as TOML has it"):
        read("[a", tuple[str, ...], text=True)


@pytest.mark.parametrize("value", [",", "a,,b", "a,"])
def test_an_empty_item_in_text_is_refused(value):
    with pytest.raises(ValueError, match="an item is empty"):
        read(value, tuple[str, ...], text=True)


@pytest.mark.parametrize("value", ["abc", {"a": 1}, 5, None])
def test_what_is_no_list_is_refused(value):
    with pytest.raises(ValueError, match="expected a list, each item text, got"):
        read(value, list[str])


@pytest.mark.parametrize("word", ["none", "None", "null"])
def test_nothing_can_be_said_in_text_where_it_is_accepted(word):
    assert read(word, MemoryAmount | None, text=True) is None


def test_where_text_is_accepted_the_word_none_is_text():
    assert read("none", str | None, text=True) == "none"


def test_the_first_member_of_a_union_that_fits_is_taken():
    assert read("2", int | str) == "2"
    assert read("2", int | str, text=True) == 2


def test_a_union_of_which_none_fits_says_all():
    with pytest.raises(ValueError, match="expected a whole number or true or false, got 'x'"):
        read("x", int | bool | None)


def test_a_constraint_of_msgspec_holds():
    percent = Annotated[int, msgspec.Meta(ge=0, le=100)]
    assert read(7, percent) == 7
    with pytest.raises(ValueError, match="expected `int` <= 100, got 101"):
        read(101, percent)


def test_a_function_in_an_annotation_changes_what_was_read():
    assert read("A", Annotated[str, str.lower]) == "a"


def test_a_literal_is_read_by_value():
    assert read("a", Literal["a", "b"]) == "a"
    with pytest.raises(ValueError, match="got 'c'"):
        read("c", Literal["a", "b"])


def test_an_instance_of_a_class_is_taken_as_it_is():
    path = Path("x")
    assert read(path, Path) is path


def test_anything_is_any_value():
    value = object()
    assert read(value, Any) is value


def test_types_are_described_in_words():
    assert describe(MemoryAmount | None) == "an amount of memory such as '2 GiB' or 0.5"
    assert describe(Annotated[bool, "note"]) == "true or false"
    assert describe(list) == "list"
