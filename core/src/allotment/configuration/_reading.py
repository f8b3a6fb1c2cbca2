"""Turning what was written into the type that is expected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

import msgspec

from allotment._names import normalise_name
from allotment._wording import listed
from allotment.units import MemoryAmount

_BOOLEANS: Final = {"1": True, "true": True, "yes": True, "on": True} | {
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}
_NOTHING: Final = ("none", "null")
_PLAIN_NAMES: Final[Mapping[Any, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    MemoryAmount: "an amount of memory such as '2 GiB' or 0.5",
    Any: "any value",
}


def read(value: Any, expected: Any, *, text: bool = False) -> Any:
    """Return ``value`` as the type ``expected``.

    Parameters
    ----------
    value
        What was written: in a file, a call or a variable.
    expected
        A type annotation. An enum is read by value or name, `MemoryAmount` as `MemoryAmount.parse` does, and functions
        in ``Annotated`` check what was read, or change it.
    text
        The value comes from a place that has only text, such as an environment variable: numbers are read from it,
        ``0/1``, ``true/false``, ``yes/no`` and ``on/off``, and lists separated by commas, or as TOML has them in
        brackets.

    Raises
    ------
    ValueError
        With what was expected and what was found.
    """
    origin = get_origin(expected)
    if origin is Annotated:
        return _read_annotated(value, expected, text=text)
    if origin in (Union, UnionType):
        return _read_union(value, expected, text=text)
    if origin in (tuple, list, frozenset, set):
        return _read_items(value, expected, text=text)
    if expected is Any:
        return value
    if isinstance(expected, type):
        return _read_class(value, expected, text=text)
    return _read_plain(value, expected, text=text)


def describe(expected: Any) -> str:
    """Return in words what ``expected`` takes."""
    origin, arguments = get_origin(expected), get_args(expected)
    if origin is Annotated:
        return describe(arguments[0])
    if origin in (Union, UnionType):
        return " or ".join(describe(member) for member in arguments if member is not NoneType)
    if origin in (tuple, list, frozenset, set):
        return f"a list, each item {describe(arguments[0])}" if arguments else "a list"
    if isinstance(expected, type) and issubclass(expected, Enum):
        return f"one of {listed([repr(_spelling(member)) for member in expected])}"
    return _PLAIN_NAMES.get(expected) or str(getattr(expected, "__name__", expected))


def _read_annotated(value: Any, expected: Any, *, text: bool) -> Any:
    plain, *notes = get_args(expected)
    result = read(value, plain, text=text)
    for note in notes:
        if isinstance(note, msgspec.Meta):
            result = _read_plain(result, Annotated[plain, note])
        elif callable(note):
            result = note(result)
    return result


def _read_union(value: Any, expected: Any, *, text: bool) -> Any:
    members = get_args(expected)
    others = [member for member in members if member is not NoneType]
    if len(others) < len(members) and (value is None or (text and str not in others and value.lower() in _NOTHING)):
        return None
    problems = []
    for member in others:
        try:
            return read(value, member, text=text)
        except ValueError as error:
            problems.append(str(error))
    raise _misfit(value, expected) if len(problems) > 1 else ValueError(problems[0])


def _read_items(value: Any, expected: Any, *, text: bool) -> Any:
    make: Callable[[Any], Any] = get_origin(expected)
    item_type = (get_args(expected) or (Any,))[0]
    items = _split(value) if text else value
    if isinstance(items, (str, bytes, Mapping)) or not hasattr(items, "__iter__"):
        raise _misfit(value, expected)
    return make([read(item, item_type, text=text) for item in items])


def _split(text: str) -> list[Any]:
    if text.strip().startswith("["):
        return _read_toml(text)
    items = [item.strip() for item in text.split(",")] if text.strip() else []
    if "" in items:
        raise ValueError(f"an item is empty in {text!r}")
    return items


def _read_toml(text: str) -> list[Any]:
    import tomllib

    try:
        items: list[Any] = tomllib.loads(f"items = {text}")["items"]
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{text!r} is no list as TOML has it: {error}") from error
    return items


def _read_class(value: Any, expected: type, *, text: bool) -> Any:
    if isinstance(value, expected) and not (text or isinstance(value, bool)):
        return value
    if issubclass(expected, MemoryAmount):
        return _read_amount(value)
    if issubclass(expected, Enum):
        return _read_member(value, expected, text=text)
    if expected is bool and text:
        return _read_word(value)
    return _read_plain(value, expected, text=text)


def _read_amount(value: Any) -> MemoryAmount:
    try:
        return MemoryAmount.parse(value)
    except TypeError as error:
        raise ValueError(str(error)) from error


def _read_member(value: Any, expected: type[Enum], *, text: bool) -> Enum:
    for member in expected:
        same_value = type(member.value) is type(value) and member.value == value
        if value is member or same_value or (text and str(member.value) == value):
            return member
    if isinstance(value, str):
        wanted = normalise_name(value)
        for member in expected:
            if wanted in (normalise_name(member.name), normalise_name(str(member.value))):
                return member
    raise _misfit(value, expected)


def _read_word(value: str) -> bool:
    word = _BOOLEANS.get(value.lower())
    if word is None:
        raise ValueError(f"expected true or false (1/0, yes/no, on/off), got {value!r}")
    return word


def _read_plain(value: Any, expected: Any, *, text: bool = False) -> Any:
    try:
        return msgspec.convert(value, expected, strict=not text)
    except msgspec.ValidationError as error:
        if expected in _PLAIN_NAMES:
            raise _misfit(value, expected) from error
        raise ValueError(f"{str(error)[0].lower()}{str(error)[1:]}, got {value!r}") from error


def _spelling(member: Enum) -> str:
    return member.value if isinstance(member.value, str) else member.name.lower()


def _misfit(value: Any, expected: Any) -> ValueError:
    return ValueError(f"expected {describe(expected)}, got {value!r}")
