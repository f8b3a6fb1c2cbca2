"""Which plugins a user allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from allotment._names import normalise_name
from allotment.registry._record import PluginOrigin

if TYPE_CHECKING:
    from collections.abc import Iterable

    from allotment.registry._record import PluginRecord


@dataclass(frozen=True, slots=True)
class PluginPolicy:
    """The allow list and the deny list; each entry is a name or a ``"distribution:name"``.

    Parameters
    ----------
    allow
        The installed plugins that may be used; ``None`` allows all, an empty list none. What core brings itself and
        what the program registers need no permission.
    deny
        The plugins that may not be used, whatever their origin. Stronger than ``allow``.
    """

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()

    def refusal(self, record: PluginRecord) -> str | None:
        """Return why ``record`` may not be used, or ``None`` if it may."""
        if _names_it(record, self.deny):
            return "the deny list names it"
        if self.allow is None or record.origin is not PluginOrigin.ENTRY_POINT or _names_it(record, self.allow):
            return None
        return "the allow list does not name it"


def _names_it(record: PluginRecord, entries: Iterable[str]) -> bool:
    return any(chooses(entry, record) for entry in entries)


def chooses(name: str, record: PluginRecord) -> bool:
    """Return whether a name, qualified or not, is that of a record."""
    distribution, _, plain = name.rpartition(":")
    own_name, own_distribution = record.key
    same_distribution = not distribution or canonicalize_name(distribution) == own_distribution
    return same_distribution and normalise_name(plain) == own_name
