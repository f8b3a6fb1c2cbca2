"""Tables of what can be said about each allocator of the workspace and each layer, from its Options dataclass."""

from __future__ import annotations

from dataclasses import fields
from enum import Enum
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from allotment import registry
from allotment.units import MemoryAmount
from generated.docstring import entries
from generated.markdown import code, paragraphs, prose, table
from generated.tables import default_of, type_name

if TYPE_CHECKING:
    from allotment.registry import Plugin


def plugins() -> list[Plugin]:
    """Return the allocators of the workspace, loaded, in the order of their names."""
    records = (record for record in registry.list_allocators() if record.distribution)
    return [registry.current().get(record.name) for record in records if record.distribution.startswith("allotment-")]


def options(name: str) -> str:
    """Return the table of one allocator's options."""
    options_type = registry.current().get(name).options_type
    if options_type is None:
        return f"The allocator {code(name)} has no options."
    return _table(options_type)


def _table(options_type: type) -> str:
    hints, about = get_type_hints(options_type), entries(options_type, "Parameters")
    rows = (
        (code(field.name), _type(hints[field.name]), default_of(field), prose(about[field.name]))
        for field in fields(options_type)
    )
    return table(("option", "type", "default", "meaning"), rows)


def option_tables() -> str:
    """Return the tables of all of them, each under the heading that configuration knows it by."""
    return paragraphs(f"### {code(f'allocators.{plugin.name}')}\n\n{options(plugin.name)}" for plugin in plugins())


def layer_tables() -> str:
    """Return the tables of the layers of core, each under its name."""
    layers = registry.current().layers
    names = (record.name for record in layers.records() if record.distribution == "allotment")
    return paragraphs(
        f"### {code(name)}\n\n{_layer(layers.get(name, 'docs', 'layers').Options)}" for name in sorted(names)
    )


def _layer(options_type: type) -> str:
    return _table(options_type) if fields(options_type) else "It has no options."


def _type(hint: Any) -> str:
    if get_origin(hint) is tuple:
        return f"list of {_type(get_args(hint)[0])}"
    named = [part for part in getattr(hint, "__args__", (hint,)) if part is not type(None)]
    return " or ".join(_plain(part) for part in named)


def _plain(part: Any) -> str:
    if part is MemoryAmount:
        return "[amount of memory](#amounts-of-memory)"
    if isinstance(part, type) and issubclass(part, Enum):
        return ", ".join(code(f'"{member.value}"') for member in part)
    return code(type_name(part))
