"""Which libraries draw from Allotment, from which allocator, and who said so."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from allotment import configuration
from allotment import registry as registries
from allotment._locks import RenewedLock
from allotment._names import normalise_name
from allotment.bridges._delivery import Delivery
from allotment.configuration import Setting, call_origin, decode_options
from allotment.errors import BridgeError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from allotment.bridges._bridge import Bridge
    from allotment.configuration import Origin
    from allotment.selection import AllocatorLike

BridgeLike: TypeAlias = "str | Mapping[str, Any]"
"""A bridge's name, or a table of the name alone with what is said about it."""


class BridgeState(Enum):
    """Whether a library draws from Allotment."""

    INSTALLED = "installed"
    DISPLACED = "displaced"
    """It was installed, and somebody gave the library another allocator since."""
    AVAILABLE = "available"
    """It can be installed."""
    UNAVAILABLE = "unavailable"
    """It cannot be installed here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeStatus:
    """How a library stands.

    Parameters
    ----------
    library
        Its name, which is that of the bridge.
    state
        Whether it draws from Allotment.
    allocator
        What it draws from, in words; ``None`` for its own allocator, or one that is not known.
    by
        Who installed the bridge: a line of the program, or where it is configured.
    reason
        Why the bridge cannot be installed.
    distribution
        What brings the bridge, with its version.
    """

    library: str
    state: BridgeState
    allocator: str | None = None
    by: str | None = None
    reason: str | None = None
    distribution: str | None = None


@dataclass(frozen=True, slots=True)
class _Installation:
    bridge: Bridge
    options: Any
    delivery: Delivery
    by: str


class Installations:
    """The bridges that are installed in this process."""

    def __init__(self) -> None:
        self._lock = RenewedLock()
        self._installed: dict[str, _Installation] = {}

    def install(self, requests: Iterable[BridgeLike], allocator: AllocatorLike, origin: Origin) -> None:
        """Install bridges, all or none of them."""
        with self._lock():
            done: list[str] = []
            try:
                for request in requests:
                    name, options = _read(request, origin)
                    if self._add(name, options, allocator, origin):
                        done.append(name)
            except BaseException:
                for name in reversed(done):
                    self.uninstall(name)
                raise

    def _add(self, name: str, options: Mapping[str, Any], allocator: AllocatorLike, origin: Origin) -> bool:
        """Install one bridge; return whether it was not there."""
        kind = registries.current().bridges.get(name)
        decoded = _decoded(kind, options, origin)
        if (before := self._installed.get(kind.name)) is not None:
            _refuse_other(before, decoded, Delivery(kind.name, allocator).source)
            return False
        answer = kind.availability()
        if not answer.ok:
            raise BridgeError(bridge=kind.name, cause=answer.reason)
        bridge, delivery = kind(decoded), Delivery(kind.name, allocator)
        delivery.check()
        bridge.install(delivery)
        self._installed[kind.name] = _Installation(bridge, decoded, delivery, str(origin))
        return True

    def uninstall(self, name: str) -> None:
        """Uninstall one bridge."""
        with self._lock():
            installed = self._installed.get(normalise_name(name))
            if installed is None:
                raise BridgeError(bridge=name, cause="it is not installed in this process")
            installed.bridge.uninstall()
            del self._installed[installed.bridge.name]

    def names(self) -> tuple[str, ...]:
        """Return the names of the bridges that are installed, in the order in which they were."""
        return tuple(self._installed)

    def status(self) -> list[BridgeStatus]:
        """Return how each library stands that there is a bridge to."""
        with self._lock():
            installed = dict(self._installed)
        return [
            self._status_of(record, installed.get(record.name)) for record in registries.current().bridges.records()
        ]

    def _status_of(self, record: registries.PluginRecord, installed: _Installation | None) -> BridgeStatus:
        if installed is None:
            reason = _why_not(record)
            state = BridgeState.AVAILABLE if reason is None else BridgeState.UNAVAILABLE
            return BridgeStatus(library=record.name, state=state, reason=reason, distribution=record.provider)
        other = installed.bridge.describe()
        return BridgeStatus(
            library=record.name,
            state=BridgeState.INSTALLED if other is None else BridgeState.DISPLACED,
            allocator=installed.delivery.source if other is None else other,
            by=installed.by,
            distribution=record.provider,
        )


installations: Final = Installations()


def _why_not(record: registries.PluginRecord) -> str | None:
    if record.error is not None:
        return record.error
    try:
        answer = registries.current().bridges.get(record.qualified_name).availability()
    except BridgeError as error:
        return error.cause
    return None if answer.ok else answer.reason


def _read(request: BridgeLike, origin: Origin) -> tuple[str, Mapping[str, Any]]:
    if isinstance(request, str):
        return request, {}
    try:
        ((name, options),) = request.items()
    except (AttributeError, ValueError):
        problem = (
            f"expected the name of a bridge, or a table such as {{ torch = {{ mode = 'replace' }} }}, got {request!r}"
        )
        raise ConfigError(origin=str(origin), key="bridges.install", problem=problem) from None
    return name, options


def _decoded(kind: type[Any], options: Mapping[str, Any], origin: Origin) -> Any:
    said = [Setting(f"bridges.{kind.name}.{option}", value, origin) for option, value in options.items()]
    return decode_options(kind.name, kind.Options, said, table="bridges")


def _refuse_other(before: _Installation, options: Any, source: str) -> None:
    """Let a bridge be installed again as it is, and no other way."""
    if (options, source) != (before.options, before.delivery.source):
        raise BridgeError(
            bridge=before.bridge.name,
            cause=f"it is installed already, drawing from {before.delivery.source}, by {before.by}",
            remedy=f"Call allotment.uninstall({before.bridge.name!r}) first.",
        )


# ---------------------------------------------------------------------------------------------------------------------
# What users call


def install(*bridges: BridgeLike, allocator: AllocatorLike = None) -> None:
    """Let libraries draw their memory from Allotment, in the whole process.

    Parameters
    ----------
    *bridges
        The libraries: names such as ``"cupy"``, or tables of a name with options of the bridge,
        ``{"torch": {"mode": "replace"}}``. Those of ``[bridges] install`` in the configuration if none is given.
    allocator
        The allocator that they draw from: a name or an object with the two methods. By default the one in force at
        each allocation, so that settings and scopes count for them too.

    Raises
    ------
    BridgeError
        If there is no such bridge, its library is not installed, it is installed in another way, or the library does
        not allow it. None of those given is installed then.
    ConfigError
        If an option is wrong.
    PluginError
        If there is no such allocator.

    Notes
    -----
    A bridge that is installed already, in the same way, stays. Nothing is installed by importing a bridge, and
    what a library allocated before stays where it is.
    """
    if bridges:
        installations.install(bridges, allocator, call_origin("install()"))
    else:
        install_configured(allocator)


def install_configured(allocator: AllocatorLike = None) -> None:
    """Install the bridges of ``[bridges] install``."""
    setting = configuration.current().value("bridges.install")
    installations.install(setting.value, allocator, setting.origin)


def uninstall(*bridges: str) -> None:
    """Give libraries the allocators back that they had.

    Parameters
    ----------
    *bridges
        The names of the libraries; all that are installed if none is given.

    Raises
    ------
    BridgeError
        If one is not installed, or its library does not allow it.

    Notes
    -----
    Memory that the library has is given back to the allocator that it came from when the library frees it.
    """
    for name in bridges or reversed(installations.names()):
        installations.uninstall(name)


def status() -> list[BridgeStatus]:
    """Return how each library stands that there is a bridge to: what it draws from, and who said so."""
    return installations.status()
