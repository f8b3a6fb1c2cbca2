"""All settings at one moment."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from allotment._locks import without_property_locks
from allotment.configuration._origin import OriginKind, Setting, rank_of
from allotment.configuration._schema import Key, Values, assemble, defaults, dotted, keys
from allotment.configuration._sources import Source
from allotment.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@without_property_locks
@dataclass(frozen=True)
class Snapshot:
    """All settings at one moment; never changed.

    Parameters
    ----------
    sources
        The sources, the strongest first. The defaults are the last.
    """

    sources: tuple[Source, ...]

    @classmethod
    def of(cls, sources: Sequence[Source]) -> Snapshot:
        """Return the snapshot of sources given in any order, and the defaults."""
        ranked = sorted((*sources, Source(OriginKind.DEFAULT, defaults())), key=lambda source: rank_of(source.kind))
        return cls(tuple(ranked))

    @cached_property
    def effective(self) -> dict[Key, Setting]:
        """The strongest setting of every key, with those that it shadows."""
        said: dict[Key, list[Setting]] = {}
        for source in self.sources:
            for key, setting in source.settings.items():
                said.setdefault(key, []).append(setting)
        return {key: _strongest(settings) for key, settings in sorted(said.items(), key=_table_order)}

    @cached_property
    def values(self) -> Values:
        """The effective values."""
        return assemble(self.effective)

    def setting(self, key: str) -> Setting:
        """Return the effective setting of a dotted key.

        Raises
        ------
        ConfigError
            If there is no such key, or nothing was said about an optional one.
        """
        for setting in self.effective.values():
            if setting.key == key:
                return setting
        known = tuple(setting.key for setting in self.effective.values())
        raise ConfigError(origin="configuration", key=key, problem="no such setting", accepted=known)

    def allocator_for(self, device: str) -> Setting | None:
        """Return the setting that decides the allocator of a device, ``None`` if nothing was said.

        The strongest source that says anything about the device decides; within it, what is particular to the device
        comes before what is said for all.
        """
        return self._deciding("allocator", device)

    def layers_for(self, device: str) -> Setting:
        """Return the setting that decides the layers before the allocators of a device, as `allocator_for` does."""
        setting = self._deciding("layers", device)
        assert setting is not None  # there is a default
        return setting

    def _deciding(self, name: str, device: str) -> Setting | None:
        for source in self.sources:
            for key in (("devices", device, name), (name,)):
                if key in source.settings and source.settings[key].value is not None:
                    return source.settings[key]
        return None

    def options_of(self, owner: str, table: str = "allocators") -> Iterator[Setting]:
        """Yield what was said about the options of an allocator or a plugin, the weakest first."""
        for source in reversed(self.sources):
            for key, setting in source.settings.items():
                if key[:-1] == (table, owner):
                    yield setting

    @cached_property
    def plugin_tables(self) -> dict[str, Setting]:
        """The plugins about whose options something was said, each with one setting that says so."""
        said = ((key, setting) for key, setting in self.effective.items() if key[0] == "plugins" and len(key) > 2)
        return {key[1]: setting for key, setting in said}

    def overruled_devices(self) -> Iterator[tuple[Setting, Setting]]:
        """Yield the settings for one device that a stronger source's for all overrules, with that setting."""
        for key, setting in self.effective.items():
            if key[0] == "devices":
                decisive = self._deciding(key[2], key[1])
                if decisive is not None and decisive.key == key[2]:
                    yield setting, decisive


def changed_keys(before: Snapshot, after: Snapshot) -> frozenset[str]:
    """Return the keys about which the sources say something else, or say it elsewhere."""
    old, new = (
        {(source.kind, key): setting for source in snapshot.sources for key, setting in source.settings.items()}
        for snapshot in (before, after)
    )
    changed = [place for place in old.keys() | new.keys() if old.get(place) != new.get(place)]
    return frozenset(dotted(key) for _, key in changed)


def _strongest(said: Sequence[Setting]) -> Setting:
    first, *weaker = said
    return replace(first, shadowed=tuple(item for item in weaker if item.origin.kind is not OriginKind.DEFAULT))


def _table_order(item: tuple[Key, object]) -> tuple[int, Key]:
    key, _ = item
    return keys(Values).index(key[0]), key
