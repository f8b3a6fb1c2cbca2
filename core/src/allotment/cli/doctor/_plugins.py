"""The plugins: each is loaded, asked which devices it can be used on, and what else there is to know of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allotment import registry
from allotment.cli._in_force import is_installed
from allotment.cli.doctor._finding import ok, problem, warning
from allotment.configuration import BUILT_IN
from allotment.device import device_registry
from allotment.registry import PluginStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allotment.cli.doctor._finding import Finding
    from allotment.device import Device
    from allotment.registry import PluginRecord

_FAULTS = {PluginStatus.BROKEN: "is broken", PluginStatus.INCOMPATIBLE: "is not compatible"}
_REMARKS = {
    PluginStatus.UNAVAILABLE: "cannot be loaded",
    PluginStatus.CONFLICT: "is not chosen by its name alone",
}


def examine_plugins() -> Iterator[Finding]:
    """Yield the state of each installed allocator, and those that are missing."""
    devices = list(device_registry())
    for record in registry.list_allocators():
        yield _examine_plugin(record, devices)
    yield from _examine_missing(devices)


def _examine_plugin(listed: PluginRecord, devices: list[Device]) -> Finding:
    current = registry.current()
    answers = {device.alias: current.availability(listed, device) for device in devices} if listed.usable else {}
    record = next(each for each in current.records() if each.key == listed.key)
    named = f"{record.name} ({record.provider})" if record.provider else record.name
    if record.status in _FAULTS:
        return problem("plugin", _said(f"{named} {_FAULTS[record.status]}", record), f"pip show {record.distribution}")
    if record.status in _REMARKS:
        return warning("plugin", _said(f"{named} {_REMARKS[record.status]}", record))
    if record.status is PluginStatus.DISABLED:
        return ok("plugin", _said(f"{named} is switched off", record))
    usable = [alias for alias, answer in answers.items() if answer.ok]
    if usable:
        text, remark = f"{named} can be used on {', '.join(usable)}", current.diagnosis(record)
        return ok("plugin", text) if remark is None else warning("plugin", f"{text}; {remark}")
    reason = next(iter(answers.values())).reason if len(answers) == 1 else answers[devices[1].alias].reason
    has_gpu = len(devices) > 1
    return (warning if has_gpu else ok)("plugin", f"{named} can be used on no device here: {reason}")


def _said(what: str, record: PluginRecord) -> str:
    return " ".join(filter(None, [f"{what}: {(record.error or 'no reason given').rstrip('.')}.", record.remedy]))


def _examine_missing(devices: list[Device]) -> Iterator[Finding]:
    """Yield what a CUDA device lacks: without the plain allocator it has nothing to fall back on."""
    if len(devices) == 1:
        return
    if not is_installed(BUILT_IN.plain):
        text = f"{BUILT_IN.plain} is not installed: a device without memory pools has nothing to draw from"
        yield warning("plugin", text, f"pip install allotment-{BUILT_IN.plain}")
    if not is_installed(BUILT_IN.pool):
        text = f"{BUILT_IN.pool} is not installed: devices with memory pools use {BUILT_IN.plain} instead"
        yield warning("plugin", text, f"pip install allotment-{BUILT_IN.pool}")


def examine_observers() -> Iterator[Finding]:
    """Yield the state of each installed observer."""
    for record in registry.current().hooks.load_observers():
        if record.error is not None:
            yield warning("observer", _said(f"{record.qualified_name} is left out", record))
        else:
            yield ok("observer", f"{record.qualified_name} is in place")
