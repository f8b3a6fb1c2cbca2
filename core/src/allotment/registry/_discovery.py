"""Finding plugins in the metadata of installed distributions. Nothing is imported."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from allotment._names import normalise_name
from allotment.registry._compatibility import check_core_version
from allotment.registry._record import PluginOrigin, PluginRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from allotment.registry._record import PluginKey

_log = logging.getLogger(__name__)


def discover(group: str, core_version: str | None) -> tuple[PluginRecord, ...]:
    """Return a record for each plugin that an installed distribution declares in a group of entry points.

    The result depends neither on the order of ``sys.path`` nor on that of a folder. A distribution seen twice, as
    when it is installed beside its editable form, counts once; where the two differ, the newest version counts.

    Parameters
    ----------
    group
        The group, such as ``"allotment.allocators"``.
    core_version
        The running version of core, against which each distribution's requirement is tested; ``None`` if unknown.
    """
    found = (record for distribution in metadata.distributions() for record in _read(distribution, group))
    return tuple(check_core_version(record, core_version) for record in newest(found))


def newest(records: Iterable[PluginRecord]) -> list[PluginRecord]:
    """Return one record of each name and distribution, that of the newest version, sorted.

    Of records that are the same but for their place, the first counts, as it does for an import.
    """
    found: dict[PluginKey, list[PluginRecord]] = {}
    for record in records:
        found.setdefault(record.key, []).append(record)
    chosen = (_newest(namesakes) for namesakes in found.values())
    return sorted(chosen, key=lambda record: (record.name, record.distribution or "", record.reference))


def _newest(namesakes: list[PluginRecord]) -> PluginRecord:
    first, *others = sorted(
        namesakes, key=lambda each: (_version(each), each.reference, each.summary, each.requires), reverse=True
    )
    return replace(first, shadowed=tuple(f"{other.version} in {other.location}" for other in others))


def _read(distribution: metadata.Distribution, group: str) -> Iterator[PluginRecord]:
    try:
        yield from _records(distribution, group)
    except Exception as error:  # noqa: BLE001 - what an interrupted uninstall leaves behind must not hide the others
        _log.debug("metadata of %r cannot be read: %s: %s", distribution, type(error).__name__, error)


def _records(distribution: metadata.Distribution, group: str) -> list[PluginRecord]:
    if group not in (distribution.read_text("entry_points.txt") or ""):
        return []
    about = distribution.metadata
    name = _first(about, "Name")
    if not name:
        return []
    location, is_editable = _folder_of(distribution), _is_editable(distribution)
    return [
        PluginRecord(
            name=normalise_name(entry_point.name),
            reference=entry_point.value,
            origin=PluginOrigin.ENTRY_POINT,
            distribution=name,
            version=_first(about, "Version"),
            summary=_first(about, "Summary") or "",
            requires=tuple(distribution.requires or ()),
            location=location,
            is_editable=is_editable,
        )
        for entry_point in distribution.entry_points.select(group=group)
    ]


def _folder_of(distribution: metadata.Distribution) -> str:
    return str(Path(str(distribution.locate_file(""))))


def _is_editable(distribution: metadata.Distribution) -> bool:
    """Return what the installer wrote down, as PEP 610 has it."""
    try:
        about = json.loads(distribution.read_text("direct_url.json") or "{}")
        return bool(about.get("dir_info", {}).get("editable"))
    except (AttributeError, ValueError):
        return False


def _first(about: metadata.PackageMetadata, field: str) -> str | None:
    values = about.get_all(field)
    return values[0] if values else None


def _version(record: PluginRecord) -> Version:
    try:
        return Version(record.version or "0")
    except InvalidVersion:
        return Version("0")
