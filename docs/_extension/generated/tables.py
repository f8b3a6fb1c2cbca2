"""Tables from core's own data: precedence, keys of the configuration, profiles, errors."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

from allotment import errors as error_module
from allotment.configuration import PRECEDENCE, PluginValues, Values
from allotment.platform.simulated import load_profile, profile_names
from allotment.units import format_bytes
from generated.docstring import attribute_docstrings, entries, summary
from generated.markdown import code, paragraphs, prose, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allotment.platform.simulated import Profile

Error = type[BaseException]
MESSAGES = Path(__file__).parents[3] / "core" / "tests" / "test_errors.py"
"""Where every error's text is stated, and held to it."""


PLUGIN_OPTIONS = "The options of plugins that are no allocators, by name, as they were written."
"""What stands beside the keys of a table, and so is no field whose docstring could say it."""


# Precedence


def precedence() -> str:
    """Return the places where a value can be said, the strongest first."""
    rows = (
        (str(rank), level.kind.value, prose(level.said_by), level.lasts) for rank, level in enumerate(PRECEDENCE, 1)
    )
    return table(("", "place", "what you write", "when it holds"), rows)


# Keys


def keys() -> str:
    """Return every key of the schema with its type, default and meaning."""
    rows = ((code(key), code(type_), default, prose(text)) for key, type_, default, text in _keys((), Values))
    return table(("key", "type", "default", "meaning"), rows)


def _keys(prefix: tuple[str, ...], schema: type) -> Iterator[tuple[str, str, str, str]]:
    hints, texts = get_type_hints(schema, include_extras=True), attribute_docstrings(schema)
    for field in fields(schema):
        hint, key = hints[field.name], (*prefix, field.name)
        if is_dataclass(hint):
            yield from _keys(key, hint)
            continue
        placeholder = {"devices": "<device>", "allocators": "<allocator>"}.get(field.name)
        if placeholder is None:
            yield ".".join(key), type_name(hint), default_of(field), texts[field.name]
        elif is_dataclass(below := get_args(hint)[1]):
            yield from _keys((*key, placeholder), below)
        else:
            yield f"{'.'.join(key)}.{placeholder}.<option>", "any", "", texts[field.name]
    if schema is PluginValues:
        yield "plugins.<plugin>.<option>", "any", "", PLUGIN_OPTIONS


def type_name(hint: Any) -> str:
    """Return a type as people read it."""
    if get_origin(hint) is Annotated:
        return type_name(get_args(hint)[0])
    arguments = get_args(hint)
    if get_origin(hint) in (tuple, list):
        item = type_name(arguments[0])
        return "list" if item == "any" else f"list of {item}"
    if get_origin(hint) is Mapping:
        return "table"
    if arguments:
        return " or ".join(type_name(part) for part in arguments if part is not type(None))
    return "any" if hint is Any else getattr(hint, "__name__", str(hint))


def default_of(field: Any) -> str:
    """Return the default of a field as code."""
    default = field.default if field.default_factory is MISSING else field.default_factory()
    if default is MISSING:
        return "required"
    if default is None:
        return ""
    value = getattr(default, "value", default)
    if isinstance(value, bool):
        return code(str(value).lower())
    return code([getattr(item, "value", item) for item in value]) if isinstance(value, tuple) else code(value)


# Profiles


def profiles() -> str:
    """Return the machines that come with the simulator."""
    titles = (
        "profile",
        "what it is",
        "devices",
        "memory",
        "pools",
        "virtual memory",
        "managed",
        "reads pageable host memory",
        "peers",
    )
    return table(titles, (_profile_row(name, load_profile(name)) for name in profile_names()))


def _profile_row(name: str, profile: Profile) -> tuple[str, ...]:
    device = profile.devices[0]
    managed = "concurrent" if device.concurrent_managed_access else "not concurrent"
    peers = {peer for row, devices in enumerate(profile.peers) for column, peer in enumerate(devices) if row != column}
    return (
        code(name),
        profile.description,
        f"{len(profile.devices)} × {device.name}",
        format_bytes(device.total_memory),
        "yes" if device.memory_pools else "no",
        "yes" if device.virtual_memory else "no",
        managed if device.managed_memory else "no",
        "yes" if device.pageable_memory_access else "no",
        "" if not peers else "all" if peers == {True} else "none" if peers == {False} else "some",
    )


# Errors


def error_classes() -> list[Error]:
    """Return every error and warning class, in the order of the source."""
    found = [cls for cls in vars(error_module).values() if inspect.isclass(cls) and issubclass(cls, Exception)]
    return [cls for cls in found if cls.__module__ == error_module.__name__]


def error_tree() -> str:
    """Return every class with its standard parent, its fields and when it is raised."""
    rows = (
        (
            f"{{py:exc}}`~allotment.{cls.__name__}`",
            ", ".join(code(base.__name__) for base in _standard_parents(cls)),
            ", ".join(code(field) for field in getattr(cls, "fields", ())),
            prose(summary(cls)),
        )
        for cls in error_classes()
    )
    return table(("class", "is also a", "fields", "when"), rows)


def _standard_parents(cls: Error) -> list[type]:
    parents = [base for base in cls.__mro__ if base.__module__ == "builtins" and base not in Exception.__mro__]
    return [base for base in parents if not any(issubclass(other, base) for other in parents if other is not base)]


def errors() -> str:
    """Return an entry for every class: what it inherits and its fields."""
    return paragraphs(_error_entry(cls) for cls in error_classes())


def _error_entry(cls: Error) -> str:
    parents = " and ".join(f"{{py:exc}}`{base.__name__}`" for base in cls.__bases__)
    body = [prose(summary(cls)), f"Inherits from {parents}.", _fields(cls), _message(cls)]
    return f"::::{{py:exception}} allotment.{cls.__name__}\n\n{paragraphs(body)}\n::::"


def _message(cls: Error) -> str:
    """Return what an error of a class says, in one of the cases in which a test reads it."""
    text = _messages().get(cls)
    return f"It says, for example:\n\n```text\n{_folded(text)}\n```" if text else ""


@cache
def _messages() -> dict[Error, str]:
    spec = spec_from_file_location("messages", MESSAGES)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return {type(error): text for error, text in reversed(module.MESSAGES)}


def _folded(text: str) -> str:
    return "\n".join(wrap(text, 100, break_long_words=False, break_on_hyphens=False))


def _fields(cls: Error) -> str:
    names, base = getattr(cls, "fields", ()), cls.__bases__[0]
    if not names:
        return ""
    if names == getattr(base, "fields", ()):
        return f"Its fields are those of {{py:exc}}`{base.__name__}`."
    about: dict[str, str] = {}
    for ancestor in reversed(cls.__mro__):
        if issubclass(ancestor, error_module.AllotmentError):
            about |= entries(ancestor, "Attributes")
    names_by_text: dict[str, list[str]] = {}
    for name in names:
        names_by_text.setdefault(about.get(name, ""), []).append(code(name))
    return table(("field", "meaning"), ((", ".join(names), prose(text)) for text, names in names_by_text.items()))
