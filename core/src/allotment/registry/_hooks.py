"""Observers: many may watch what allocators do, and nothing is paid while none does."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, is_dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, get_type_hints
from weakref import WeakSet

from allotment._locks import RenewedLock
from allotment._names import normalise_name
from allotment.errors import ObserverError, ObserverWarning
from allotment.registry._compatibility import running_version
from allotment.registry._discovery import discover
from allotment.registry._loading import describe_exception, load_object
from allotment.registry._policy import PluginPolicy
from allotment.registry._record import PluginOrigin, PluginRecord, PluginStatus
from allotment.registry._resolution import apply_policy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pluggy import HookImpl

    from allotment.registry._hookspecs import ObserverManager
    from allotment.registry._record import PluginKey

OBSERVERS: Final = "allotment.observers"
"""The group of entry points of observers: an object with hooks, or a class that is called without arguments."""


BLOCKS: Final = frozenset({"allotment_after_allocate", "allotment_after_deallocate"})
"""The hooks about single blocks, which cost something on the hot path."""


class Observed(Protocol):
    """What is told when somebody begins to observe blocks, and when nobody does any more."""

    def observe(self, *, is_observed: bool) -> None:
        """Take note of it."""


@dataclass(frozen=True, slots=True)
class Configurable:
    """An observer, as far as it can be configured.

    Parameters
    ----------
    record
        Its record.
    options_type
        The dataclass of its options; ``None`` if it declares none, or could not be imported.
    """

    record: PluginRecord
    options_type: type[Any] | None

    @property
    def is_known(self) -> bool:
        """Whether it can be told what it takes, even if it could be imported and then not made."""
        return self.record.status is PluginStatus.LOADED or self.options_type is not None


class HookBus:
    """The observers of one registry.

    An observer is an object with methods named as the hooks; each takes the hook's arguments, or fewer of them, by
    name. Its attribute ``Options``, if it has one, is the dataclass of what can be configured about it. pluggy is
    imported with the first observer.

    Parameters
    ----------
    policy
        Returns the allow and deny lists for installed observers.
    core_version
        The version of core that installed observers are held against; by default the installed one.

    Attributes
    ----------
    observed : frozenset of str
        The hooks that somebody observes: the one thing to read on the hot path. It is replaced, never changed.
    """

    __slots__ = (
        *("_core_version", "_installed", "_loaded", "_lock", "_manager", "_options", "_policy", "_watching"),
        "observed",
    )

    def __init__(self, policy: Callable[[], PluginPolicy] = PluginPolicy, core_version: str | None = None) -> None:
        self._policy = policy
        self._core_version = core_version
        self._lock = RenewedLock()
        self._manager: ObserverManager | None = None
        self._installed: tuple[PluginRecord, ...] | None = None
        self._loaded: dict[PluginKey, PluginRecord] = {}
        self._options: dict[str, type[Any] | None] = {}
        """What each observer declares, by the name that pluggy has for it."""
        self._watching: WeakSet[Observed] = WeakSet()
        self.observed: frozenset[str] = frozenset()

    def register(self, observer: object, name: str | None = None) -> None:
        """Add an observer.

        Parameters
        ----------
        observer
            An object with at least one method named as a hook.
        name
            What errors and warnings call it, and the name of its table ``[plugins.NAME]``.

        Raises
        ------
        ObserverError
            If it is a class, is registered already, has no hook, has one that does not exist, takes an argument
            that the hook does not give, or has ``Options`` that are no dataclass or cannot be read. Nothing of it is
            registered then.
        """
        with self._lock():
            manager = self._manager or _new_manager()
            _check_hooks(observer, manager)
            options = _options_of(observer)
            if manager.is_registered(observer):
                raise ObserverError(observer=_named(observer), problem="it is registered already")
            try:
                manager.register(observer, name)
                manager.check_pending()
            except Exception as error:
                if manager.is_registered(observer):
                    manager.unregister(observer)
                raise ObserverError(observer=_named(observer), problem=" ".join(str(error).split())) from error
            if name is not None:
                self._options[name] = options
            self._install(manager)

    def unregister(self, observer: object) -> None:
        """Take an observer away.

        Raises
        ------
        ObserverError
            If it is not registered.
        """
        with self._lock():
            manager = self._manager
            if manager is None or not manager.is_registered(observer):
                raise ObserverError(observer=_named(observer), problem="it is not registered")
            self._options.pop(manager.get_name(observer) or "", None)
            manager.unregister(observer)
            self._install(manager)

    def watch(self, observed: Observed) -> bool:
        """Tell somebody from now on when blocks begin or cease to be observed; return whether they are now.

        Installed observers are loaded now, if they were not.
        """
        with self._lock():
            self.load_observers()
            self._watching.add(observed)
            return not BLOCKS.isdisjoint(self.observed)

    def has_observers(self, hook_name: str) -> bool:
        """Return whether somebody observes a hook."""
        return hook_name in self.observed

    def notify(self, hook_name: str, **facts: Any) -> None:
        """Call a hook of every observer that has it, the latest registered first.

        An observer that raises ends the call with an `ObserverWarning`: what is observed has happened already, and
        must not fail for it.
        """
        if self._manager is None or hook_name not in self.observed:
            return
        try:
            getattr(self._manager.hook, hook_name)(**facts)
        except Exception as error:  # noqa: BLE001 - an observer's fault is not the allocation's
            text = f"an observer of {hook_name} failed: {describe_exception(error)}"
            warnings.warn(text, ObserverWarning, stacklevel=2)

    def records(self) -> tuple[PluginRecord, ...]:
        """Return the record of every observer that is installed. Imports nothing."""
        with self._lock():
            if self._installed is not None:
                return self._installed
            return tuple(self._loaded.get(record.key, record) for record in self._find())

    def load_observers(self) -> tuple[PluginRecord, ...]:
        """Import and register the observers that are installed, once, and return their records.

        A broken one is a record with the reason, and does not hinder the others.
        """
        with self._lock():
            if self._installed is None:
                self._installed = tuple(self._load(record) for record in self._find())
            return self._installed

    def configurable(self) -> tuple[Configurable, ...]:
        """Return every observer that has a name, installed or registered, after loading those that are installed."""
        with self._lock():
            installed = self.load_observers()
            added = self._options.keys() - {record.qualified_name for record in installed}
            records = (*installed, *map(_registered_record, sorted(added)))
            return tuple(Configurable(record, self._options.get(record.qualified_name)) for record in records)

    def refresh(self) -> None:
        """Scan the metadata again when it is next needed. What is registered stays; what failed is tried again."""
        with self._lock():
            self._installed = None

    def _find(self) -> tuple[PluginRecord, ...]:
        version = running_version() if self._core_version is None else self._core_version
        return apply_policy(discover(OBSERVERS, version), self._policy())

    def _load(self, record: PluginRecord) -> PluginRecord:
        if record.key in self._loaded:
            return self._loaded[record.key]
        if record.status is not PluginStatus.AVAILABLE:
            return record
        record, observer = load_object(record)
        if record.error is not None:
            return record
        try:
            self._options[record.qualified_name] = _options_of(observer)  # known also if it cannot be made
            self.register(observer() if isinstance(observer, type) else observer, record.qualified_name)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - its constructor may raise anything
            return record.become(PluginStatus.BROKEN, describe_exception(error), exception=error)
        loaded = self._loaded[record.key] = record.become(PluginStatus.LOADED)
        return loaded

    def implementations(self, hook_name: str) -> list[tuple[str, Callable[[Mapping[str, Any]], object]]]:
        """Return the observers of a hook by name, in the order of their registration, for one who calls each alone.

        Each is called with all facts of the hook.
        """
        if self._manager is None:
            return []
        found = getattr(self._manager.hook, hook_name).get_hookimpls()
        return [(implementation.plugin_name, partial(_call, implementation)) for implementation in found]

    def _install(self, manager: ObserverManager) -> None:
        """Put the manager and what it observes in force, in this order: a reader sees the second first."""
        self._manager = manager
        self.observed = frozenset(name for name in manager.hooks if getattr(manager.hook, name).get_hookimpls())
        for each in tuple(self._watching):
            each.observe(is_observed=not BLOCKS.isdisjoint(self.observed))


def _call(implementation: HookImpl, facts: Mapping[str, Any]) -> object:
    """Call one observer with the facts that it takes."""
    return implementation.function(*(facts[name] for name in implementation.argnames))


def _new_manager() -> ObserverManager:
    from allotment.registry._hookspecs import ObserverManager

    return ObserverManager()


def _check_hooks(observer: object, manager: ObserverManager) -> None:
    from allotment.registry._hookspecs import PREFIX

    named = [name for name in dir(observer) if name.startswith(PREFIX)]
    unknown = next((name for name in named if name not in manager.hooks), None)
    if isinstance(observer, type):
        raise ObserverError(observer=_named(observer), problem="it is a class; give an object of it")
    if unknown is not None:
        raise ObserverError(
            observer=_named(observer), problem=f"there is no hook {unknown!r}", hook=unknown, accepted=manager.hooks
        )
    if not named:
        raise ObserverError(observer=_named(observer), problem="it has no hook", accepted=manager.hooks)


def _options_of(observer: object) -> type[Any] | None:
    """Return the dataclass of what can be configured about an observer; ``None`` if it declares none."""
    options = getattr(observer, "Options", None)
    if options is None:
        return None
    if not (isinstance(options, type) and is_dataclass(options)):
        raise ObserverError(observer=_named(observer), problem=f"its Options are {options!r}, not a dataclass")
    try:
        get_type_hints(options)
    except NameError as error:
        problem = f"the annotations of its Options cannot be read: {error}"
        raise ObserverError(observer=_named(observer), problem=problem) from error
    return options


def _registered_record(name: str) -> PluginRecord:
    return PluginRecord(
        name=normalise_name(name), reference=name, origin=PluginOrigin.RUNTIME, status=PluginStatus.LOADED
    )


def _named(observer: object) -> str:
    return getattr(observer, "__qualname__", None) or getattr(observer, "__name__", None) or type(observer).__qualname__
