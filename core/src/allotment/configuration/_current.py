"""The configuration in force: one at a time in a process, held here and nowhere else."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from allotment._locks import RenewedLock
from allotment.configuration._configuration import Configuration
from allotment.configuration._origin import call_origin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from allotment.configuration._configuration import Listener

Options = TypeVar("Options")


class _InForce:
    """The configuration in force, and who wants to hear that it changed."""

    def __init__(self) -> None:
        self.lock = RenewedLock()
        self.listeners: list[Listener] = []
        self.configuration = Configuration()
        self._unsubscribe = self.configuration.subscribe(self.announce)

    def replace(self, configuration: Configuration) -> Configuration:
        """Put another configuration in force; return the one that was."""
        with self.lock():
            # In this order: a child that is forked meanwhile hears of changes, of one configuration too many at worst.
            unsubscribe, self._unsubscribe = self._unsubscribe, configuration.subscribe(self.announce)
            previous, self.configuration = self.configuration, configuration
            unsubscribe()
        self.announce(frozenset())
        return previous

    def announce(self, changed: frozenset[str]) -> None:
        """Tell all listeners."""
        for listener in tuple(self.listeners):
            listener(changed)


_in_force = _InForce()


def current() -> Configuration:
    """Return the configuration in force."""
    return _in_force.configuration


@contextmanager
def use(configuration: Configuration) -> Iterator[Configuration]:
    """Put a configuration in force for the whole process until the block is left. Meant for tests."""
    previous = _in_force.replace(configuration)
    try:
        yield configuration
    finally:
        _in_force.replace(previous)


def reset() -> None:
    """Forget everything that was read and said: the next need reads the environment and the files anew."""
    _in_force.replace(Configuration())


def subscribe(listener: Listener) -> Callable[[], None]:
    """Hear of every change of the configuration in force, also of another one coming in force.

    Parameters
    ----------
    listener
        It is called after the change with the keys that changed; with none when another configuration came in force,
        where anything may differ.

    Returns
    -------
    Callable
        Ends it.
    """
    _in_force.listeners.append(listener)
    return lambda: _in_force.listeners.remove(listener)


def plugin_options(plugin: str, options_type: type[Options]) -> Options:
    """Return what is configured for a plugin in ``[plugins.NAME]``, checked and typed.

    Parameters
    ----------
    plugin
        The name of its entry point in the group ``allotment.observers``.
    options_type
        The frozen dataclass of its options, which the observer also has as its attribute ``Options``: by that it is
        known to everybody else, so that a mistake is found before the plugin asks.

    Returns
    -------
    Options
        An instance of ``options_type``, made of all places that say something, and its defaults. Ask again to see what
        `configure` has changed.

    Raises
    ------
    ConfigError
        For an unknown option, a value of the wrong type, or one that the dataclass refuses.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, slots=True, kw_only=True)
    ... class MailerOptions:
    ...     recipient: str = "nobody"
    >>> plugin_options("leak-mailer", MailerOptions)
    MailerOptions(recipient='nobody')
    """
    return current().plugin_options(plugin, options_type)


def configure(**settings: Any) -> None:
    """Change settings of this process: all that are given, or none if one is refused.

    Parameters
    ----------
    **settings
        ``allocator``, ``layers``, ``devices``, ``allocators``, ``platform``, ``plugins``, ``enable_mempools_at_init``,
        ``quiet``, ``launch_array_access_mode``, ``watch``, ``metrics``. Tables add to what earlier calls said; ``None``
        takes back what they said, so that the environment and the files count again.

    Raises
    ------
    ConfigError
        For an unknown key or a value of the wrong type.

    Examples
    --------
    >>> configure(allocator="managed", devices={"cuda:1": "mempool"})
    >>> configure(allocator=None, devices=None)
    """
    current().say(settings, call_origin("configure()"))
