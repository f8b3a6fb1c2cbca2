"""The registry of allocators: what is installed, and the plugin that a name means."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from allotment._locks import RenewedLock
from allotment._names import normalise_name
from allotment.allocator import Availability
from allotment.errors import PluginConflictError, PluginError, UnknownAllocatorError
from allotment.registry import _plugin
from allotment.registry._bridges import BridgeCatalogue
from allotment.registry._compatibility import CORE, running_version
from allotment.registry._discovery import discover
from allotment.registry._hooks import HookBus
from allotment.registry._layers import LayerCatalogue
from allotment.registry._loading import find_faults
from allotment.registry._plugin import Plugin, checked_plugin, load_plugin
from allotment.registry._policy import PluginPolicy, chooses
from allotment.registry._record import PluginKind, PluginOrigin, PluginRecord, PluginStatus
from allotment.registry._resolution import apply_policy, mark_conflicts, refusal, resolve, usable_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from threading import RLock

    from allotment.device import Device
    from allotment.registry._record import PluginKey

GROUP: Final = "allotment.allocators"
"""The group of entry points; an entry point's name is what a user types."""

BUILTIN: Final = MappingProxyType({"host": "allotment.host_allocator:HostAllocator"})
"""The allocators that core brings, by name."""

_NAME: Final = re.compile(r"[a-z0-9]+([-.][a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class _Table:
    """All that a registry knows at one moment. It is replaced, never changed."""

    records: Mapping[PluginKey, PluginRecord]
    plugins: Mapping[PluginKey, Plugin]

    def having(self, record: PluginRecord, plugin: Plugin | None) -> _Table:
        loaded = {} if plugin is None else {record.key: plugin}
        return _Table({**self.records, record.key: record}, {**self.plugins, **loaded})

    def lacking(self, key: PluginKey) -> _Table:
        return _Table(_without(self.records, key), _without(self.plugins, key))


class Registry:
    """The allocators that can be chosen by name.

    Installed plugins are found by one scan of metadata when something is first asked. Only a plugin that is chosen is
    imported, once, and what happened then is kept until `refresh`.

    Parameters
    ----------
    builtin
        The allocators that core brings: name to ``"module:attribute"``.
    policy
        Returns the allow and deny lists in force; it is called whenever they matter, so a change takes effect at once.
    core_version
        The version of core that plugins are held against; by default the installed one.

    Attributes
    ----------
    hooks : HookBus
        The observers, under the same policy.
    layers : LayerCatalogue
        The layers, likewise.
    bridges : BridgeCatalogue
        The bridges to other libraries, likewise.
    """

    __slots__ = ("_builtin", "_core_version", "_loading", "_lock", "_policy", "_table", "bridges", "hooks", "layers")

    def __init__(
        self,
        *,
        builtin: Mapping[str, str] = BUILTIN,
        policy: Callable[[], PluginPolicy] = PluginPolicy,
        core_version: str | None = None,
    ) -> None:
        self._builtin = dict(builtin)
        self._policy = policy
        self._core_version = core_version
        self._lock = RenewedLock()
        self._loading: dict[PluginKey, RenewedLock] = {}
        self._table: _Table | None = None
        self.hooks = HookBus(policy, core_version)
        self.layers = LayerCatalogue(policy, core_version)
        self.bridges = BridgeCatalogue(policy, core_version)

    # What there is

    def records(self) -> tuple[PluginRecord, ...]:
        """Return the record of every plugin, sorted by name and distribution. Imports nothing."""
        known = sorted(self._known().records.values(), key=lambda record: (record.name, record.distribution or ""))
        return mark_conflicts(apply_policy(known, self._policy()))

    def survey(self) -> dict[PluginKind, tuple[PluginRecord, ...]]:
        """Return the records of all plugins by their kind, with the faults that show without importing anything."""
        found = {
            PluginKind.ALLOCATOR: self.records(),
            PluginKind.LAYER: self.layers.survey(),
            PluginKind.BRIDGE: self.bridges.survey(),
            PluginKind.OBSERVER: self.hooks.records(),
        }
        return {kind: tuple(map(find_faults, records)) for kind, records in found.items()}

    def names(self) -> tuple[str, ...]:
        """Return the names that can be chosen, as far as is known without importing anything."""
        return usable_names(self.records())

    def find(self, name: str) -> PluginRecord:
        """Return the record that a name means. Imports nothing.

        Parameters
        ----------
        name
            A name, or ``"distribution:name"``. Case, ``-`` and ``_`` make no difference.

        Raises
        ------
        UnknownAllocatorError
            If nothing has the name.
        PluginConflictError
            If several distributions provide it; the text gives the qualified forms.
        PluginDisabledError, PluginIncompatibleError
            If the plugin may not be used.
        """
        if not isinstance(name, str):
            raise TypeError(f"the name of an allocator is text, not {name!r}")
        return resolve(name, self.records())

    def refresh(self) -> None:
        """Scan the metadata again, and forget which plugins failed. Loaded and registered plugins stay."""
        importlib.invalidate_caches()
        for others in (self.layers, self.bridges, self.hooks):
            others.refresh()
        with self._lock():
            if self._table is not None:
                self._table = _carry_over(self._table, self._scan())

    # What is chosen

    def get(self, name: str) -> Plugin:
        """Return the plugin that a name means, imported and checked.

        Raises
        ------
        PluginLoadError
            If it cannot be imported or has not the shape of an allocator; chained to the cause.
        PluginError
            For what `find` raises.
        """
        record = self.find(name)
        with self._being_loaded(record.key):
            table = self._known()
            plugin = table.plugins.get(record.key)
            record = table.records.get(record.key, record)
            if plugin is None and record.status is PluginStatus.AVAILABLE:
                record, plugin = load_plugin(record)
                self._put(record, plugin)
        if plugin is None:
            raise refusal(record, self.records()) from record.exception
        return plugin

    def availability(self, record: PluginRecord, device: Device) -> Availability:
        """Return whether a plugin can be used on a device; a plugin that cannot be loaded cannot be. Raises nothing."""
        try:
            plugin = self.get(record.qualified_name)
        except PluginError as error:
            return Availability(ok=False, reason=". ".join(filter(None, (error.cause or str(error), error.remedy))))
        return _plugin.availability(plugin, device)

    def diagnosis(self, record: PluginRecord) -> str | None:
        """Return what a user should know of a plugin that can be loaded; ``None`` if all is well. Raises nothing."""
        try:
            return _plugin.diagnosis(self.get(record.qualified_name))
        except PluginError:
            return None

    # What the program adds

    def register(self, name: str, factory: Callable[..., Any], *, replace: bool = False) -> PluginRecord:
        """Add an allocator that no distribution provides, as in a notebook or a frozen application.

        Parameters
        ----------
        name
            What to choose it by: lower-case letters, digits, ``-`` and ``.`` after normalising.
        factory
            A class or function that makes the allocator. It is called with ``options=`` and ``device=`` if it
            accepts them.
        replace
            Take the name even if another plugin has it. That plugin can still be chosen by its qualified name.

        Raises
        ------
        ValueError
            If the name cannot be one.
        PluginConflictError
            If the name is taken and ``replace`` is false.
        TypeError, AllocatorContractError
            If ``factory`` makes no allocators.
        """
        normal = _checked_name(name)
        record = PluginRecord(name=normal, reference=_reference(factory), origin=PluginOrigin.RUNTIME)
        plugin = checked_plugin(record, factory)
        with self._lock():
            self._known()
            if not replace:
                self._refuse_taken(normal)
            self._put(plugin.record, plugin)
        return plugin.record

    def unregister(self, name: str) -> None:
        """Take away an allocator that `register` added. Allocators that it has made go on working.

        Raises
        ------
        UnknownAllocatorError
            If no allocator of that name was registered.
        """
        key = (normalise_name(name), None)
        with self._lock():
            table = self._known()
            if key not in table.records:
                registered = tuple(name for name, distribution in table.records if distribution is None)
                raise UnknownAllocatorError(
                    allocator=name, cause="it was not registered at run time", usable=registered
                )
            self._table = table.lacking(key)

    def _refuse_taken(self, name: str) -> None:
        owner = next((record for record in self.records() if chooses(name, record)), None)
        if owner is not None:
            raise PluginConflictError(
                allocator=name,
                distribution=owner.provider,
                cause="the name is taken",
                remedy="Choose another name, or register it with replace=True.",
            )

    # The table

    def _known(self) -> _Table:
        table = self._table
        if table is None:
            with self._lock():
                table = self._table
                if table is None:
                    table = self._table = self._scan()
        return table

    def _scan(self) -> _Table:
        version = running_version() if self._core_version is None else self._core_version
        builtin = (
            PluginRecord(
                name=name, reference=reference, origin=PluginOrigin.BUILTIN, distribution=CORE, version=version
            )
            for name, reference in self._builtin.items()
        )
        return _Table({record.key: record for record in (*discover(GROUP, version), *builtin)}, {})

    def _put(self, record: PluginRecord, plugin: Plugin | None) -> None:
        with self._lock():
            self._table = self._known().having(record, plugin)

    def _being_loaded(self, key: PluginKey) -> RLock:
        """Return the lock of one plugin's import, so that threads wait for it, and no import waits for another."""
        with self._lock():
            return self._loading.setdefault(key, RenewedLock())()


def _carry_over(old: _Table, new: _Table) -> _Table:
    """Return the new table with what the old one has loaded and still exists."""
    kept = {
        key: plugin
        for key, plugin in old.plugins.items()
        if plugin.record.origin is PluginOrigin.RUNTIME
        or (key in new.records and new.records[key].reference == plugin.record.reference)
    }
    return _Table({**new.records, **{key: plugin.record for key, plugin in kept.items()}}, kept)


def _checked_name(name: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the name of an allocator is text, not {name!r}")
    normal = normalise_name(name)
    if _NAME.fullmatch(normal) is None:
        raise ValueError(f"{name!r} cannot name an allocator: use letters, digits, '-' and '.', such as 'my-pool'")
    return normal


def _reference(factory: object) -> str:
    module, name = getattr(factory, "__module__", None), getattr(factory, "__qualname__", None)
    return f"{module}:{name}" if module and name else repr(factory)


def _without(mapping: Mapping[PluginKey, Any], key: PluginKey) -> dict[PluginKey, Any]:
    return {other: value for other, value in mapping.items() if other != key}
