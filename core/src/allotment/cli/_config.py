"""``allotment config``."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from allotment import configuration, registry
from allotment.cli._in_force import choice_for, made_for
from allotment.cli._output import AsJson, Column, console, print_json, print_table
from allotment.configuration import PRECEDENCE, OriginKind
from allotment.device import device_registry
from allotment.errors import AllotmentError
from allotment.registry import PluginStatus
from allotment.selection import layers_before

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from allotment.configuration import Origin, Setting
    from allotment.device import Device

app = typer.Typer(help="What is configured, and what came of it.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keep ``show`` a command of its own, however many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a setting.

    Parameters
    ----------
    setting
        What was said.
    asked, got
        What was asked for and what came of it; ``got`` is null if nothing did.
    error
        Why nothing came of it.
    """

    setting: str
    asked: str
    got: str | None = None
    error: str | None = None


@app.command()
def show(as_json: AsJson = False) -> None:
    """Show each setting, where it was said, what it overrules, and what came of it.

    The exit code is 1 if a setting cannot take effect.

    Keys of --json: settings, each with key, value, origin (kind, place), shadowed (value, origin); notes; outcomes,
    each with setting, asked, got, error; precedence, the kinds of places from the strongest to the weakest.
    """
    current = configuration.current()
    settings, notes, outcomes = current.table(), current.notes(), list(_outcomes())
    if as_json:
        kinds = [level.kind for level in PRECEDENCE]
        rows = [_document(setting) for setting in settings]
        print_json({"settings": rows, "notes": notes, "outcomes": outcomes, "precedence": kinds})
    else:
        _print(console(), settings, notes, outcomes)
    if any(outcome.error for outcome in outcomes):
        raise typer.Exit(1)


def _outcomes() -> Iterator[Outcome]:
    """Yield what came of the choice of a platform, of the allocators of devices, and of allocators' options."""
    asked = configuration.current().value("platform").value
    try:
        devices = device_registry()
    except AllotmentError as error:
        yield Outcome(setting="platform", asked=asked, error=str(error))
        return
    yield Outcome(setting="platform", asked=asked, got=f"{devices.platform.name} ({devices.platform.why})")
    for device in devices:
        if choice_for(device).configured:
            made = made_for(device)
            yield Outcome(setting=f"allocator of {device.alias}", asked=made.asked, got=made.got, error=made.error)
        yield from _layers_outcome(device)
    for alias in configuration.current().configured_devices():
        if alias not in devices.by_alias:
            yield Outcome(setting=f"devices.{alias}", asked=alias, got="nothing: there is no such device here")
    for name in configuration.current().configured_allocators():
        yield _options_outcome(name)
    for name in configuration.current().configured_plugins():
        yield _plugin_outcome(name)


def _layers_outcome(device: Device) -> Iterator[Outcome]:
    setting = configuration.current().layers_for(device.alias)
    if not setting.value:
        return
    name, asked = f"layers of {device.alias}", _value(setting.value)
    try:
        requests = layers_before(device)
    except AllotmentError as error:
        yield Outcome(setting=name, asked=asked, error=str(error))
    else:
        if requests:
            yield Outcome(setting=name, asked=asked, got=", ".join(map(str, requests)))


def _options_outcome(name: str) -> Outcome:
    setting = f"allocators.{name}"
    try:
        options = configuration.current().options_for(name, registry.current().get(name).options_type)
    except AllotmentError as error:
        return Outcome(setting=setting, asked=name, error=str(error))
    return Outcome(setting=setting, asked=name, got=_told(options))


def _plugin_outcome(name: str) -> Outcome:
    setting = f"plugins.{name}"
    try:
        owner = registry.owner_of_table(name)
        told = _told(registry.configured_options(owner)) if owner.is_known else None
    except AllotmentError as error:
        return Outcome(setting=setting, asked=name, error=str(error))
    if owner.record.status is PluginStatus.DISABLED:
        return Outcome(setting=setting, asked=name, got=f"nothing: {owner.record.error}")
    return Outcome(setting=setting, asked=name, got=told, error=owner.record.error)


def _told(options: Any) -> str:
    """Return options as a sentence has them."""
    return ", ".join(f"{option.name} = {getattr(options, option.name)}" for option in fields(options))


def _document(setting: Setting) -> dict[str, Any]:
    shadowed = [{"value": weaker.value, "origin": weaker.origin} for weaker in setting.shadowed]
    return {"key": setting.key, "value": setting.value, "origin": setting.origin, "shadowed": shadowed}


def _print(out: Console, settings: list[Setting], notes: tuple[str, ...], outcomes: list[Outcome]) -> None:
    columns = [Column("setting"), Column("value", fold=16), Column("said in", fold=24)]
    print_table(out, columns, [row for setting in settings for row in _rows(setting)])
    out.print()
    columns = [Column("what came of it"), Column("asked for"), Column("got", fold=24)]
    print_table(out, columns, [[outcome.setting, outcome.asked, _answer(outcome)] for outcome in outcomes])
    for note in notes:
        out.print(Text.assemble(("\nnote: ", "bold yellow"), note))
    out.print(f"\n[dim]The strongest place wins: {' > '.join(level.kind.value for level in PRECEDENCE)}.[/dim]")


def _rows(setting: Setting) -> Iterator[list[str | Text]]:
    said = setting.origin.kind is not OriginKind.DEFAULT
    yield [
        setting.key,
        Text(_value(setting.value), "bold" if said else ""),
        Text(_place(setting.origin), "" if said else "dim"),
    ]
    for weaker in setting.shadowed:
        yield ["", Text(_value(weaker.value), "dim strike"), Text(f"{_place(weaker.origin)}, overruled", "dim")]


def _value(value: Any) -> str:
    """Return a value as TOML writes it; TOML has no way to write nothing."""
    return "–" if value is None else json.dumps(value, ensure_ascii=False, default=str)


def _place(origin: Origin) -> str:
    return origin.place if origin.kind is OriginKind.DEFAULT else f"{origin.kind.value}: {origin.place}"


def _answer(outcome: Outcome) -> Text:
    return Text(outcome.error, "red") if outcome.error else Text(outcome.got or "", "green")
