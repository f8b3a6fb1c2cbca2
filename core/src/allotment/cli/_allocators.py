"""``allotment allocators``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from allotment import registry
from allotment.cli._in_force import choice_for, made_for
from allotment.cli._output import AsJson, Column, PlatformName, console, print_json, print_table
from allotment.cli._platform import asked_devices, asked_platform
from allotment.registry import PluginStatus

if TYPE_CHECKING:
    from rich.console import Console

    from allotment.cli._in_force import InForce
    from allotment.device import Device
    from allotment.registry import PluginRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAnswer:
    """What an allocator says about a device: its alias, whether it can be used there, and if not, why."""

    device: str
    ok: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorRow:
    """An allocator as ``--json`` prints it.

    Parameters
    ----------
    name, qualified_name
        What chooses it, and what does whatever else has its name.
    distribution, version, summary
        The distribution that provides it.
    status
        ``"available"``, ``"loaded"``, ``"disabled"``, ``"conflict"``, ``"incompatible"``, ``"unavailable"`` or
        ``"broken"``.
    reason, remedy
        Why it cannot be used and what to do; null if nothing is known against it.
    devices
        Its answer for each device; null without ``--check``.
    """

    name: str
    qualified_name: str
    distribution: str | None
    version: str | None
    summary: str
    status: PluginStatus
    reason: str | None
    remedy: str | None
    devices: list[DeviceAnswer] | None


def allocators(
    device: Annotated[str | None, typer.Argument(help="A device, such as cuda:0; all devices if not given.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Load each one and ask where it can be used.")] = False,
    platform: PlatformName = None,
    as_json: AsJson = False,
) -> None:
    """List the installed allocators, and which one each device draws from.

    Nothing is imported without --check. With it, the exit code is 1 if a device cannot have its allocator.

    Keys of --json: allocators, each with name, qualified_name, distribution, version, summary, status, reason, remedy,
    devices (device, ok, reason); in_force, each with device, asked, origin, configured, got, error.
    """
    with asked_platform(platform):
        devices = asked_devices(device)
        answers = {record.key: _answers(record, devices) for record in registry.list_allocators()} if check else {}
        rows = [row_of(record, answers.get(record.key)) for record in registry.list_allocators()]
        in_force = [made_for(each) if check else choice_for(each) for each in devices]
        if as_json:
            print_json({"allocators": rows, "in_force": in_force})
        else:
            _print(console(), rows, in_force)
        if any(each.error for each in in_force):
            raise typer.Exit(1)


def _answers(record: PluginRecord, devices: list[Device]) -> list[DeviceAnswer]:
    current = registry.current()
    answers = ((device.alias, current.availability(record, device)) for device in devices)
    return [DeviceAnswer(device=alias, ok=answer.ok, reason=answer.reason) for alias, answer in answers]


def row_of(record: PluginRecord, answers: list[DeviceAnswer] | None = None) -> AllocatorRow:
    """Return what is said about an allocator."""
    return AllocatorRow(
        name=record.name,
        qualified_name=record.qualified_name,
        distribution=record.distribution,
        version=record.version,
        summary=record.summary,
        status=record.status,
        reason=record.error,
        remedy=record.remedy,
        devices=answers,
    )


_STYLES = {
    PluginStatus.AVAILABLE: "green",
    PluginStatus.LOADED: "green",
    PluginStatus.BROKEN: "red",
    PluginStatus.INCOMPATIBLE: "red",
}


def _print(out: Console, rows: list[AllocatorRow], in_force: list[InForce]) -> None:
    print_allocators(out, rows)
    out.print()
    columns = [Column("device"), Column("draws from"), Column("because", fold=24)]
    print_table(out, columns, [[each.device, _drawn(each), each.error or each.origin] for each in in_force])


def _drawn(choice: InForce) -> Text:
    return Text(f"{choice.asked} (failed)", "red") if choice.error else Text(choice.got or choice.asked, "bold")


def print_allocators(out: Console, rows: list[AllocatorRow]) -> None:
    """Print the allocators as a table."""
    checked = any(row.devices is not None for row in rows)
    columns = [
        Column("allocator"),
        Column("distribution", optional=checked),
        Column("version", optional=True),
        Column("status"),
        *([Column("usable on")] if checked else []),
        Column("reason", fold=24),
    ]
    print_table(out, columns, [_cells(row) for row in rows])


def _cells(row: AllocatorRow) -> list[str | Text]:
    usable = [", ".join(answer.device for answer in row.devices if answer.ok) or "–"] if row.devices is not None else []
    status = Text(row.status.value, _STYLES.get(row.status, "yellow"))
    return [row.name, row.distribution or "–", row.version or "–", status, *usable, _reason(row)]


def _reason(row: AllocatorRow) -> str:
    """Return what is known against a plugin, or else why the devices that cannot use it cannot."""
    if row.reason is not None:
        return " ".join(filter(None, [f"{row.reason.rstrip('.')}.", row.remedy]))
    refused: dict[str, list[str]] = {}
    for answer in row.devices or ():
        if not answer.ok:
            refused.setdefault(answer.reason, []).append(answer.device)
    return "; ".join(f"{', '.join(devices)}: {reason}" for reason, devices in refused.items())
