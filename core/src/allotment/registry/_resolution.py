"""Which plugin a name means: pure functions over records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from allotment.errors import (
    PluginConflictError,
    PluginDisabledError,
    PluginError,
    PluginIncompatibleError,
    PluginLoadError,
    UnknownAllocatorError,
)
from allotment.registry._policy import chooses
from allotment.registry._record import PluginOrigin, PluginStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from allotment.registry._policy import PluginPolicy
    from allotment.registry._record import PluginRecord

_PRECEDENCE: Final = (PluginOrigin.RUNTIME, PluginOrigin.BUILTIN, PluginOrigin.ENTRY_POINT)
"""Whose plugin a plain name means: the program's, else core's, else the installed one, if there is only one."""

_OUT: Final = (PluginStatus.DISABLED, PluginStatus.INCOMPATIBLE)
"""Plugins of these statuses have no claim to their name."""

_ERRORS: Final = {
    PluginStatus.DISABLED: PluginDisabledError,
    PluginStatus.INCOMPATIBLE: PluginIncompatibleError,
    PluginStatus.UNAVAILABLE: PluginLoadError,
    PluginStatus.BROKEN: PluginLoadError,
}


def apply_policy(records: Iterable[PluginRecord], policy: PluginPolicy) -> tuple[PluginRecord, ...]:
    """Return the records with those disabled that the policy refuses."""
    return tuple(
        record.become(PluginStatus.DISABLED, reason) if (reason := policy.refusal(record)) else record
        for record in records
    )


def mark_conflicts(records: Sequence[PluginRecord]) -> tuple[PluginRecord, ...]:
    """Return the records with those marked whose plain name does not choose them."""
    return tuple(_mark_conflict(record, records) for record in records)


def _mark_conflict(record: PluginRecord, records: Sequence[PluginRecord]) -> PluginRecord:
    chosen = _meant_by_name_of(record, records)
    if record.status is not PluginStatus.AVAILABLE or chosen == [record]:
        return record
    others = [other for other in chosen if other is not record]
    remedy = f"Choose it as {record.qualified_name!r}."
    return record.become(PluginStatus.CONFLICT, f"{_owners(others)} has the name too", remedy=remedy)


def _meant_by_name_of(record: PluginRecord, records: Sequence[PluginRecord]) -> list[PluginRecord]:
    return holders([other for other in records if other.name == record.name])


def holders(namesakes: Sequence[PluginRecord]) -> list[PluginRecord]:
    """Return the records that a plain name means, among those that have it; more than one is a conflict."""
    claims = [record for record in namesakes if record.status not in _OUT]
    first = min((_PRECEDENCE.index(record.origin) for record in claims), default=None)
    return [record for record in claims if _PRECEDENCE.index(record.origin) == first]


def usable_names(records: Sequence[PluginRecord]) -> tuple[str, ...]:
    """Return the names that choose a plugin against which nothing is known, qualified where they must be."""
    return tuple(
        record.name if _meant_by_name_of(record, records) == [record] else record.qualified_name
        for record in records
        if record.usable
    )


def resolve(name: str, records: Sequence[PluginRecord]) -> PluginRecord:
    """Return the record that a name, qualified or not, means.

    Raises
    ------
    UnknownAllocatorError
        If no record has the name.
    PluginConflictError
        If several distributions provide it and none has precedence.
    PluginDisabledError, PluginIncompatibleError
        If what has the name may not be used.
    """
    matches = sorted((record for record in records if chooses(name, record)), key=lambda record: record.qualified_name)
    if not matches:
        raise _unknown(name, records)
    chosen = holders(matches)
    if len(chosen) > 1:
        raise _conflict(name, chosen)
    if not chosen:
        raise refusal(matches[0], records)
    return chosen[0]


def refusal(record: PluginRecord, records: Sequence[PluginRecord]) -> PluginError:
    """Return the error for choosing a plugin that cannot be used."""
    return _ERRORS[record.status](
        allocator=record.name,
        distribution=record.provider,
        cause=record.error,
        remedy=record.remedy,
        usable=usable_names(records),
    )


def _unknown(name: str, records: Sequence[PluginRecord]) -> UnknownAllocatorError:
    unusable = tuple(f"{record.qualified_name} ({record.error})" for record in records if not record.usable)
    return UnknownAllocatorError(allocator=name, usable=usable_names(records), unusable=unusable)


def _conflict(name: str, chosen: Sequence[PluginRecord]) -> PluginConflictError:
    forms = " or ".join(repr(record.qualified_name) for record in chosen)
    return PluginConflictError(
        allocator=name,
        cause=f"it is provided by {_owners(chosen)}",
        remedy=f"Choose one of them as {forms}.",
    )


def _owners(records: Sequence[PluginRecord]) -> str:
    return " and ".join(record.provider or "the program (registered at run time)" for record in records)
