"""The keys that can be configured, each with its type and default, written down once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import msgspec

from allotment._names import normalise_name
from allotment.configuration._origin import DEFAULT_ORIGIN, Origin, OriginKind, Setting
from allotment.configuration._reading import read
from allotment.errors import ConfigError

Key = tuple[str, ...]
"""A key, one step an item: ``("devices", "cuda:1", "allocator")``."""

_DEVICE: Final = re.compile(r"cpu|cuda:(0|[1-9]\d*)")
_WITHDRAWN: Final = object()
_PLATFORM: Final = re.compile(r"auto|cuda|host|sim:.+")


def dotted(key: Key) -> str:
    """Return a key as it is printed: ``devices.cuda:1.allocator``."""
    return ".".join(key)


def check_name(name: str) -> str:
    """Return the name of an allocator or a plugin, or refuse an empty one."""
    if not name.strip():
        raise ValueError(f"expected a name, got {name!r}")
    return name.strip()


def check_device(alias: str) -> str:
    """Return the alias of a device, or refuse one that names no single device."""
    if not _DEVICE.fullmatch(alias):
        raise ValueError(f"expected a device such as 'cuda:0' or 'cpu', got {alias!r}")
    return alias


def check_platform(platform: str) -> str:
    """Return the choice of a platform, or refuse one that no platform can have."""
    if not _PLATFORM.fullmatch(platform):
        raise ValueError(f"expected 'auto', 'cuda', 'host' or 'sim:<profile>', got {platform!r}")
    return platform


def check_port(port: int) -> int:
    """Return a TCP port, or refuse a number that is none."""
    if not 0 <= port <= 65535:
        raise ValueError(f"expected a port, a number from 0 to 65535, got {port!r}")
    return port


def check_address(address: str) -> str:
    """Return an address to listen at, or refuse an empty one, which would mean every interface."""
    if not address.strip():
        raise ValueError(f"expected an address such as '127.0.0.1' or '0.0.0.0', got {address!r}")
    return address.strip()


def check_named(item: Any) -> str | dict[str, Any]:
    """Return what is asked for as a name, or as a table of the name alone with what is said about it."""
    if isinstance(item, str):
        name, is_said, value = item.partition("=")
        name = normalise_name(check_name(name))
        return {name: value.strip()} if is_said else name
    if not isinstance(item, Mapping) or len(item) != 1 or not isinstance(next(iter(item)), str):
        raise ValueError(f"expected a name, or a table of one such as {{ limit = '60 GiB' }}, got {item!r}")
    ((name, said),) = item.items()
    return {normalise_name(check_name(name)): dict(said) if isinstance(said, Mapping) else said}


Layers = tuple[Annotated[Any, check_named], ...]
"""The layers before an allocator, the nearest to the user first."""


class LaunchArrayAccessMode(IntEnum):
    """What is checked about the arrays of a launch. The values are Warp's."""

    RELAXED = 0
    """Nothing."""
    CHECKED = 1
    """An array that the device cannot touch is an error, one that nobody knows about a warning."""
    STRICT = 2
    """An array of another device is an error, whether the device can touch it or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceValues:
    """What can be said about one device."""

    allocator: Annotated[str, check_name] | None = None
    """The allocator of the device."""
    layers: Layers | None = None
    """The layers before it, instead of the general ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginValues:
    """Which plugins may be used. The deny list beats the allow list."""

    allow: tuple[Annotated[str, check_name], ...] | None = None
    """The only plugins that may be used; ``None`` for all, an empty list for none."""
    deny: tuple[Annotated[str, check_name], ...] = ()
    """Plugins that may not be used."""


PluginTables = Mapping[Annotated[str, check_name, normalise_name], Mapping[str, Any]]
"""The options of plugins, by name, as they were written. These tables stand beside the keys of `PluginValues`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeValues:
    """Which libraries draw from Allotment."""

    install: tuple[Annotated[Any, check_named], ...] = ()
    """What `install` without names installs, and `init`: names, or tables of a name with options of the bridge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsValues:
    """Where metrics are served, to be scraped."""

    port: Annotated[int, check_port] | None = None
    """The TCP port at which metrics are served from the first use of a device on, 0 for any free one; ``None`` for no
    metrics. Needs the extra ``allotment[metrics]``."""
    address: Annotated[str, check_address] = "127.0.0.1"
    """The address to listen at; ``0.0.0.0`` lets other machines connect, without a password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """All that can be configured, with the defaults. A new key is a new field here."""

    allocator: Annotated[str, check_name] | None = None
    """The allocator of every device about which ``devices`` says nothing; ``None`` leaves it to the library."""
    layers: Layers = ()
    """The layers before the allocators of CUDA devices, the nearest to the user first."""
    devices: Mapping[Annotated[str, check_device], DeviceValues] = field(default_factory=dict)
    """What is particular to a device, by its alias."""
    allocators: Mapping[Annotated[str, check_name, normalise_name], Mapping[str, Any]] = field(default_factory=dict)
    """The options of allocators, by name, as they were written."""
    platform: Annotated[str, check_platform] = "auto"
    """``auto``, ``cuda``, ``host`` or ``sim:<profile>``."""
    plugins: PluginValues = field(default_factory=PluginValues)
    """Which plugins may be used."""
    enable_mempools_at_init: bool = True
    """Devices that support memory pools start with them enabled."""
    quiet: bool = False
    """No startup report is printed."""
    launch_array_access_mode: LaunchArrayAccessMode = LaunchArrayAccessMode.RELAXED
    """What is checked about the arrays of a launch."""
    bridges: BridgeValues = field(default_factory=BridgeValues)
    """Which libraries draw from Allotment."""
    watch: bool = False
    """Other processes of the user may watch this one, from the first use of a device on; see `serve_status`."""
    metrics: MetricsValues = field(default_factory=MetricsValues)
    """Where metrics are served, to be scraped."""

    def __post_init__(self) -> None:
        # Read-only views: an item assigned to a table would change nothing, and must not look as if it did.
        options = {name: MappingProxyType(dict(said)) for name, said in self.allocators.items()}
        object.__setattr__(self, "devices", MappingProxyType(dict(self.devices)))
        object.__setattr__(self, "allocators", MappingProxyType(options))


def keys(table: type) -> tuple[str, ...]:
    """Return the keys that a table of the schema accepts."""
    return tuple(item.name for item in fields(table))


@dataclass(frozen=True, slots=True)
class Said:
    """What one place said.

    Parameters
    ----------
    settings
        The settings by key.
    withdrawn
        Keys about which the place takes back what was said before, with all keys below them.
    """

    settings: dict[Key, Setting]
    withdrawn: frozenset[Key] = frozenset()


def parse(table: Mapping[str, Any], origin: Origin) -> Said:
    """Check a table of settings against the schema and return it flat.

    Parameters
    ----------
    table
        Keys as in `Values`, nested.
    origin
        Where the table was said.

    Raises
    ------
    ConfigError
        For a key that does not exist or a value of the wrong type, with the origin, the key and what is accepted.
    """
    said: dict[Key, Setting] = {}
    withdrawn = set()
    for key, value in _walk((), table, Values, origin):
        if value is _WITHDRAWN:
            withdrawn.add(key)
            continue
        setting = Setting(dotted(key), value, origin)
        if key in said and said[key] != setting:
            raise ConfigError(origin=str(origin), key=dotted(key), problem="is said twice, with different values")
        said[key] = setting
    return Said(said, frozenset(withdrawn))


def _walk(key: Key, value: Any, expected: Any, origin: Origin) -> Iterator[tuple[Key, Any]]:
    if value is None and expected is not Any:
        yield key, _WITHDRAWN
        return
    if not is_dataclass(expected) and get_origin(expected) is not Mapping:
        yield key, _leaf(key, value, expected, origin)
        return
    if expected is DeviceValues and isinstance(value, str):
        value = {"allocator": value}
    if not isinstance(value, Mapping):
        raise ConfigError(origin=str(origin), key=dotted(key), problem=f"expected a table, got {value!r}")
    for name, item in value.items():
        step, below = _step(key, name, _narrowed(expected, name, item), origin)
        yield from _walk((*key, step), item, below, origin)


def _narrowed(expected: Any, name: Any, item: Any) -> Any:
    """Return what a key is held against: below ``plugins`` every table but those of its own keys is a plugin's."""
    if expected is not PluginValues or normalise_name(str(name)) in keys(PluginValues):
        return expected
    return PluginTables if item is None or isinstance(item, Mapping) else expected


def _step(key: Key, name: Any, expected: Any, origin: Origin) -> tuple[str, Any]:
    """Return the name of a key below ``key`` as it is compared, and what it accepts."""
    if not is_dataclass(expected):
        name_type, below = get_args(expected)
        return _checked((*key, str(name)), name, name_type, origin), below
    accepted = get_type_hints(expected, include_extras=True)
    if name not in accepted:
        raise ConfigError(
            origin=str(origin), key=dotted((*key, str(name))), problem="unknown key", accepted=tuple(accepted)
        )
    return name, accepted[name]


def _leaf(key: Key, value: Any, expected: Any, origin: Origin) -> Any:
    text = origin.kind is OriginKind.ENVIRONMENT
    if text and isinstance(value, Mapping):
        below = dotted((*key, *(str(name) for name in value)))
        raise ConfigError(origin=str(origin), key=below, problem="unknown key", accepted=())
    return value if expected is Any else _checked(key, value, expected, origin)


def _checked(key: Key, value: Any, expected: Any, origin: Origin) -> Any:
    try:
        return read(value, expected, text=origin.kind is OriginKind.ENVIRONMENT)
    except ValueError as error:
        raise ConfigError(origin=str(origin), key=dotted(key), problem=str(error)) from error


def defaults() -> dict[Key, Setting]:
    """Return the default of every key that has one."""
    return {key: Setting(dotted(key), value, DEFAULT_ORIGIN) for key, value in _defaults_of((), Values())}


def _defaults_of(key: Key, table: Any) -> Iterator[tuple[Key, Any]]:
    for name in keys(type(table)):
        value = getattr(table, name)
        if is_dataclass(value):
            yield from _defaults_of((*key, name), value)
        elif not isinstance(value, Mapping):
            yield (*key, name), value


def assemble(settings: Mapping[Key, Setting]) -> Values:
    """Return flat settings, already checked, as the object that they describe."""
    tree: dict[str, Any] = {}
    for key, setting in settings.items():
        table = tree
        for step in key[:-1]:
            table = table.setdefault(step, {})
        table[key[-1]] = setting.value
    return msgspec.convert(tree, Values)
