"""``allotment plugins``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.text import Text

from allotment import configuration, registry
from allotment.cli._output import AsJson, Column, console, print_json, print_table
from allotment.configuration import OriginKind
from allotment.registry import PluginKind, PluginOrigin, PluginStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from allotment.configuration import Setting
    from allotment.registry import PluginRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRow:
    """A plugin as ``--json`` prints it; see `PluginRecord` for what the keys mean."""

    kind: PluginKind
    name: str
    qualified_name: str
    distribution: str | None
    version: str | None
    summary: str
    origin: PluginOrigin
    reference: str
    status: PluginStatus
    reason: str | None
    remedy: str | None
    location: str | None
    editable: bool
    shadowed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginList:
    """An allow or deny list as ``--json`` prints it.

    Parameters
    ----------
    key
        Its key in the configuration.
    entries
        What it names; null if there is no such list.
    origin
        Where it was said.
    unknown
        The entries that nothing installed here has for its name.
    """

    key: str
    entries: list[str] | None
    origin: Any
    unknown: list[str]


def plugins(as_json: AsJson = False) -> None:
    """List everything that is installed for Allotment: allocators, layers, bridges and observers.

    Nothing is imported. Each row tells what is known against a plugin, and what to do about it; a name that several
    distributions have, or that is not that of the distribution, is shown with the qualified name that chooses it.

    Keys of --json: plugins, each with kind, name, qualified_name, distribution, version, summary, origin, reference,
    status, reason, remedy, location, editable, shadowed; lists, each with key, entries, origin (kind, place), unknown.
    """
    survey = registry.list_plugins()
    rows = [_row(kind, record) for kind, records in survey.items() for record in records]
    everything = [record for records in survey.values() for record in records]
    lists = [_list(f"plugins.{each}", everything) for each in ("allow", "deny")]
    if as_json:
        print_json({"plugins": rows, "lists": lists})
    else:
        _print(console(), rows, lists)


def _row(kind: PluginKind, record: PluginRecord) -> PluginRow:
    return PluginRow(
        kind=kind,
        name=record.name,
        qualified_name=record.qualified_name,
        distribution=record.distribution,
        version=record.version,
        summary=record.summary,
        origin=record.origin,
        reference=record.reference,
        status=record.status,
        reason=record.error,
        remedy=record.remedy,
        location=record.location,
        editable=record.is_editable,
        shadowed=record.shadowed,
    )


def _list(key: str, records: Iterable[PluginRecord]) -> PluginList:
    setting: Setting = configuration.current().value(key)
    entries = None if setting.value is None else list(setting.value)
    unknown = [entry for entry in entries or () if not any(registry.chooses(entry, record) for record in records)]
    return PluginList(key=key, entries=entries, origin=setting.origin, unknown=unknown)


_STYLES = {
    PluginStatus.AVAILABLE: "green",
    PluginStatus.LOADED: "green",
    PluginStatus.BROKEN: "red",
    PluginStatus.INCOMPATIBLE: "red",
    PluginStatus.UNAVAILABLE: "red",
}


def _print(out: Console, rows: list[PluginRow], lists: list[PluginList]) -> None:
    columns = [
        Column("kind"),
        Column("name"),
        Column("distribution"),
        Column("version", optional=True),
        Column("status"),
        Column("because", fold=24),
    ]
    print_table(out, columns, [_cells(row) for row in rows])
    for each in lists:
        if each.origin.kind is not OriginKind.DEFAULT:
            out.print(Text(f"\n{each.key} in {each.origin}: {', '.join(each.entries or ()) or 'none'}"))
            for entry in each.unknown:
                out.print(Text.assemble(("note: ", "bold yellow"), f"nothing installed here is called {entry!r}"))


def _cells(row: PluginRow) -> list[str | Text]:
    distribution = f"{row.distribution} (in place)" if row.editable else row.distribution or "–"
    status = Text(row.status.value, _STYLES.get(row.status, "yellow"))
    return [row.kind.value, row.name, distribution, row.version or "–", status, _because(row)]


def _because(row: PluginRow) -> str:
    """Return what is known against a plugin and what to do, and which other metadata it has."""
    reason = f"{row.reason.rstrip('.')}." if row.reason else None
    shadowed = f"Passed over: {'; '.join(row.shadowed)}." if row.shadowed else None
    return " ".join(filter(None, (reason, row.remedy, shadowed)))
