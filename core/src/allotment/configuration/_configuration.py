"""The configuration of a process: read when it is first needed, changed by calls."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, overload

from allotment._locks import RenewedLock
from allotment._names import normalise_name
from allotment.configuration._options import decode_options
from allotment.configuration._origin import OriginKind, Setting, call_origin
from allotment.configuration._schema import Key, Said, Values, keys, parse
from allotment.configuration._snapshot import Snapshot, changed_keys
from allotment.configuration._sources import Reading, Source, read_sources
from allotment.errors import ConfigWarning

if TYPE_CHECKING:
    from allotment.configuration._origin import Origin

Options = TypeVar("Options")
Listener: TypeAlias = Callable[[frozenset[str]], None]
"""What is called after a change, with the keys that changed."""

_versions: Final = count(1)


class Configuration:
    """Settings from calls, the environment, files and defaults, each with its origin.

    The environment and the files are read together when the first setting is needed, never at import. A variable that
    changes later is noticed by `notes` and takes effect with `reload`.

    Parameters
    ----------
    read
        What reads the environment and the files.

    Notes
    -----
    `Values` lists the keys. Each is also an attribute: ``configuration.platform`` is the effective value.
    """

    def __init__(self, read: Callable[[], Reading] = read_sources) -> None:
        self._read = read
        self._lock = RenewedLock()
        self._reading: Reading | None = None
        self._said_by_calls: dict[Key, Setting] = {}
        self._snapshot: Snapshot | None = None
        self._sealed: dict[str, Any] = {}
        self._listeners: list[Listener] = []
        self._version = next(_versions)

    @classmethod
    def isolated(cls, **settings: Any) -> Configuration:
        """Return a configuration that reads neither the environment nor files, with the given settings."""
        configuration = cls(read=Reading)
        configuration.configure(**settings)
        return configuration

    # Asking

    @property
    def version(self) -> int:
        """A number that grows with each change, and that no two configurations share."""
        return self._version

    @property
    def values(self) -> Values:
        """The effective values."""
        return self._current().values

    def __getattr__(self, key: str) -> Any:
        if key in keys(Values):
            return getattr(self.values, key)
        raise AttributeError(f"{type(self).__name__!r} has no attribute {key!r}", name=key, obj=self)

    def value(self, key: str) -> Setting:
        """Return the effective setting of a dotted key, such as ``platform`` or ``plugins.allow``.

        Raises
        ------
        ConfigError
            If there is no such key, or if the sources cannot be read.
        """
        return self._current().setting(key)

    def table(self) -> list[Setting]:
        """Return every key with its effective value, its origin, and what weaker sources said."""
        return list(self._current().effective.values())

    def notes(self) -> tuple[str, ...]:
        """Return what a user should know beside the table: files passed over, settings overruled or come too late."""
        with self._lock():
            current, reading, sealed = self._current(), self._reading or Reading(), dict(self._sealed)
        overruled = (
            f"{setting.key} in {setting.origin} is overruled by {decisive.key} in {decisive.origin}"
            for setting, decisive in current.overruled_devices()
        )
        changed = (
            f"{variable} changed after it was read; it takes effect when the configuration is reloaded"
            for variable in reading.changed_variables()
        )
        too_late = (
            f"{setting.key} was set to {setting.value!r} in {setting.origin}, after it had taken effect as {value!r}"
            for setting, value in ((current.setting(key), value) for key, value in sealed.items())
            if setting.value != value
        )
        return (*reading.notes, *overruled, *changed, *too_late)

    def allocator_for(self, device: str) -> Setting | None:
        """Return the setting that decides the allocator of a device, ``None`` if nothing was said.

        The strongest source that says anything about the device decides; within it, ``devices`` comes before
        ``allocator``. The device is named by its full alias, such as ``cuda:1``.
        """
        return self._current().allocator_for(device)

    def layers_for(self, device: str, given: Any = None) -> Setting:
        """Return the setting that decides which layers stand before the allocators of a device.

        Parameters
        ----------
        device
            Its full alias.
        given
            What a call gives, which is stronger than anything configured; ``None`` if it gives nothing.

        Raises
        ------
        ConfigError
            If what the call gives is no list of layers.
        """
        if given is None:
            return self._current().layers_for(device)
        return parse({"layers": given}, call_origin("call")).settings[("layers",)]

    def configured_allocators(self) -> tuple[str, ...]:
        """Return the names of the allocators about whose options something was said."""
        return tuple(self.values.allocators)

    def configured_devices(self) -> tuple[str, ...]:
        """Return the aliases of the devices about which something was said."""
        return tuple(self.values.devices)

    @overload
    def options_for(self, allocator: str, options_type: type[Options], /, **given: Any) -> Options: ...

    @overload
    def options_for(self, allocator: str, options_type: None, /, **given: Any) -> None: ...

    def options_for(self, allocator: str, options_type: type[Options] | None, /, **given: Any) -> Options | None:
        """Return the options of an allocator from all sources.

        Parameters
        ----------
        allocator
            Its name.
        options_type
            The frozen dataclass that it declares; ``None`` if it takes no options.
        **given
            Options that a call gives, which are stronger than anything configured.

        Raises
        ------
        ConfigError
            For an unknown option, a value of the wrong type, or one that the dataclass refuses.
        """
        name = normalise_name(allocator)
        prefix, origin = f"allocators.{name}", call_origin("call")
        from_call = [Setting(f"{prefix}.{option}", value, origin) for option, value in given.items()]
        return decode_options(name, options_type, [*self._current().options_of(name), *from_call])

    def configured_plugins(self) -> Mapping[str, Setting]:
        """Return the plugins about whose options something was said, each with one setting that says so."""
        return self._current().plugin_tables

    @overload
    def plugin_options(self, plugin: str, options_type: type[Options], /) -> Options: ...

    @overload
    def plugin_options(self, plugin: str, options_type: None, /) -> None: ...

    def plugin_options(self, plugin: str, options_type: type[Options] | None, /) -> Options | None:
        """Return the options of a plugin from all sources, as `options_for` does those of an allocator."""
        name = normalise_name(plugin)
        return decode_options(name, options_type, self._current().options_of(name, "plugins"), table="plugins")

    # Changing

    def configure(self, **settings: Any) -> None:
        """Change settings of this process: all that are given, or none if one is refused.

        Parameters
        ----------
        **settings
            Keys as in `Values`. Tables add to what earlier calls said; ``None`` takes it back, so that the environment
            and the files count again.

        Raises
        ------
        ConfigError
            For an unknown key or a value of the wrong type.
        """
        self.say(settings, call_origin("configure()"))

    def say(self, settings: Mapping[str, Any], origin: Origin) -> None:
        """Change settings as `configure` does, on behalf of ``origin``, which is a call."""
        said = parse(settings, origin)
        with self._lock():
            before = self._current()
            kept = {key: setting for key, setting in self._said_by_calls.items() if not _is_withdrawn(key, said)}
            after = _compose(self._reading, kept | said.settings)
            self._warn_of_sealed(before, after)
            self._said_by_calls = kept | said.settings
            changed = self._install(before, after)
        self._notify(changed)

    def reload(self) -> None:
        """Read the environment and the files again. What calls said stays; if reading fails, everything stays.

        Raises
        ------
        ConfigError
            If a source cannot be read or says what is not accepted.
        """
        with self._lock():
            reading = self._read()
            after = _compose(reading, self._said_by_calls)
            before, self._reading = self._snapshot or after, reading
            changed = self._install(before, after)
        self._notify(changed)

    def seal(self, key: str) -> None:
        """Note that a key has taken effect, so that a later change of it brings a `ConfigWarning`."""
        self._sealed[key] = self.value(key).value

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` with the changed keys after each change; return what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _current(self) -> Snapshot:
        snapshot = self._snapshot
        if snapshot is not None:
            return snapshot
        with self._lock():
            if self._snapshot is None:
                self._reading = self._read()
                self._snapshot = _compose(self._reading, self._said_by_calls)
            return self._snapshot

    def _install(self, before: Snapshot, after: Snapshot) -> frozenset[str]:
        """Make a snapshot the current one; return the keys that it changes."""
        self._snapshot, changed = after, changed_keys(before, after)
        if changed:
            self._version = next(_versions)
        return changed

    def _notify(self, changed: frozenset[str]) -> None:
        for listener in tuple(self._listeners) if changed else ():
            listener(changed)

    def _warn_of_sealed(self, before: Snapshot, after: Snapshot) -> None:
        for key, used in self._sealed.items():
            value = after.setting(key).value
            if value not in (used, before.setting(key).value):
                warnings.warn(
                    f"{key} = {value!r} has no effect: it was used already, as {used!r}. "
                    "Set it before the first device is used.",
                    ConfigWarning,
                    stacklevel=4,
                )


def _compose(reading: Reading | None, said_by_calls: Mapping[Key, Setting]) -> Snapshot:
    return Snapshot.of((Source(OriginKind.CALL, said_by_calls), *(reading or Reading()).sources))


def _is_withdrawn(key: Key, said: Said) -> bool:
    return any(key[: len(prefix)] == prefix for prefix in said.withdrawn)
