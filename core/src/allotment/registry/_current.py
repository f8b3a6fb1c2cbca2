"""The registry in force, and the functions that act on it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from allotment._locks import RenewedLock
from allotment.registry._policy import PluginPolicy
from allotment.registry._registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from allotment.registry._record import PluginKind, PluginRecord

_lock = RenewedLock()
_current: Registry | None = None


def current() -> Registry:
    """Return the registry in force; it is made when it is first needed, with the configured allow and deny lists."""
    global _current
    registry = _current
    if registry is None:
        with _lock():
            registry = _current = _current or Registry(policy=configured_policy)
    return registry


@contextmanager
def use(registry: Registry) -> Iterator[Registry]:
    """Put another registry in force, in every thread, for the length of a ``with`` block."""
    global _current
    with _lock():
        previous, _current = _current, registry
    try:
        yield registry
    finally:
        with _lock():
            _current = previous


def reset() -> None:
    """Forget the registry in force, with all that was loaded, registered and observed."""
    global _current
    with _lock():
        _current = None


def configured_policy() -> PluginPolicy:
    """Return the allow and deny lists of the configuration in force."""
    from allotment import configuration

    plugins = configuration.current().plugins
    return PluginPolicy(plugins.allow, plugins.deny)


def list_allocators() -> tuple[PluginRecord, ...]:
    """Return a record for each allocator that is built in, installed or registered, sorted by name.

    Nothing is imported, so a plugin that would fail to load is listed as available until it is chosen.
    """
    return current().records()


def list_plugins() -> dict[PluginKind, tuple[PluginRecord, ...]]:
    """Return a record for each allocator, layer, bridge and observer there is, by kind.

    Nothing is imported, so of what would fail to load, only the faults are known that show without: metadata that
    outlived its module, another version of Allotment, a name that two distributions have, an allow or deny list.
    """
    return current().survey()


def refresh_plugins() -> None:
    """Look again which plugins are installed, as after an installation while the program runs.

    What is loaded and registered stays, and goes on working; what failed to load is tried again when it is next chosen.
    """
    current().refresh()


def register_allocator(name: str, factory: Callable[..., Any], *, replace: bool = False) -> PluginRecord:
    """Make an allocator known by a name without installing a distribution, as in a notebook or a frozen application.

    Parameters
    ----------
    name
        What to choose it by.
    factory
        A class or function that makes the allocator. It is called with ``options=`` and ``device=`` if it accepts
        them.
    replace
        Take the name even if another allocator has it.

    Raises
    ------
    ValueError
        If the name cannot be one.
    PluginConflictError
        If the name is taken and ``replace`` is false.
    TypeError, AllocatorContractError
        If ``factory`` makes no allocators.
    """
    return current().register(name, factory, replace=replace)
