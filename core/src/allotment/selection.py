"""Which allocator is in force.

The order, strongest first: a scope of the running thread or task; the device's own setting (`set_device_allocator`,
`set_cuda_allocator`); configuration (call, environment, project file, user file); the built-in one. The choice is made
when it is first needed and kept on the device until a setting changes, so an allocation reads one attribute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeAlias, cast

from allotment import configuration
from allotment import registry as registries
from allotment._allocator_scopes import AllocatorScope, allocator_scopes, is_pooling
from allotment._grants import grants_of
from allotment._locks import RenewedLock
from allotment.allocator import Allocator, SupportsClose, SupportsPeers, SupportsPool
from allotment.configuration import BUILT_IN
from allotment.device import Device, device_registry, find_device
from allotment.errors import PluginUnavailableError, UnknownAllocatorError, UnsupportedError
from allotment.layers.account import account
from allotment.layers.accounting import AccountedAllocator
from allotment.layers.stack import build_layers, read_layers
from allotment.memory_kind import MemoryKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from allotment.device import DeviceLike
    from allotment.layers.stack import LayerRequest
    from allotment.registry import Plugin

    LayersLike: TypeAlias = Sequence[str | Mapping[str, Any]] | None

AllocatorLike: TypeAlias = Allocator | AccountedAllocator | str | None
"""What names an allocator: an object with the two methods, a name, or ``None`` for the built-in one."""

_lock = RenewedLock()


# ---------------------------------------------------------------------------------------------------------------------
# The choice


def allocator_in_force(device: Device) -> AccountedAllocator:
    """Return the allocator that an array on a device draws from now; the hot path."""
    scopes = allocator_scopes.get()
    if scopes:
        innermost = scopes[-1][1]
        if innermost.device is device and innermost.allocator is not None:
            return innermost.allocator
        return _choose_in_scopes(device, [entry for _, entry in scopes if entry.device is device])
    return device.supply or _choose(device)


def pinned_allocator(device: Device) -> AccountedAllocator:
    """Return the allocator of page-locked arrays on the host."""
    return device.pinned_supply or _choose_pinned(device)


def _choose(device: Device) -> AccountedAllocator:
    with _lock():
        device.chosen = device.setting or _configured(device)
        device.supply = device.chosen or _built_in(device, pooling=device.is_mempool_enabled)
        return device.supply


def _choose_in_scopes(device: Device, scopes: list[AllocatorScope]) -> AccountedAllocator:
    choice = next((scope for scope in reversed(scopes) if scope.pooling is None), None)
    if choice is not None and choice.allocator is not None:
        return choice.allocator
    if choice is None:
        supply = device.supply or _choose(device)
        if device.chosen is not None:
            return supply
    return _built_in(device, pooling=is_pooling(device))


def _choose_pinned(device: Device) -> AccountedAllocator:
    with _lock():
        device.pinned_supply = named_allocator(BUILT_IN.pinned, device)
        return device.pinned_supply


def _configured(device: Device) -> AccountedAllocator | None:
    setting = configuration.current().allocator_for(device.alias)
    if setting is None or (device.is_cpu and not setting.key.startswith("devices.")):
        return None  # a general choice is about CUDA devices; the host keeps its own unless it is named
    return named_allocator(setting.value, device)


def _built_in(device: Device, *, pooling: bool) -> AccountedAllocator:
    name = BUILT_IN.host if device.is_cpu else BUILT_IN.pool if pooling else BUILT_IN.plain
    found = device.built_in.get(name)
    if found is None:
        with _lock():
            found = device.built_in[name] = _first_installed(name, device)
    return found


def _first_installed(name: str, device: Device) -> AccountedAllocator:
    """Return the built-in allocator; the plain one for a pool whose plugin is not installed."""
    try:
        return named_allocator(name, device)
    except UnknownAllocatorError:
        if name == BUILT_IN.plain or device.is_cpu:
            raise
        return named_allocator(BUILT_IN.plain, device)


# ---------------------------------------------------------------------------------------------------------------------
# Objects with accounts


def named_allocator(name: str, device: Device, layers: LayersLike = None, **given: Any) -> AccountedAllocator:
    """Return the allocator of a name for a device, made now unless one with the same options exists.

    Parameters
    ----------
    name
        The name, or ``distribution:name``.
    device
        The device.
    layers
        The layers before it; the configured ones if not given.
    **given
        Options that are stronger than configured ones.

    Raises
    ------
    PluginError
        If there is no such allocator, it cannot be loaded, or it is not available on the device.
    ConfigError
        If an option or a layer is wrong.
    """
    plugin = registries.current().get(name)
    options = configuration.current().options_for(plugin.name, plugin.options_type, **given)
    requests = layers_before(device, layers)
    key = (plugin.record.key, options, requests)
    with _lock():
        if found := device.named_accounts.get(key):
            return found
        if device.is_cuda and not plugin.traits_for(options).capturable:
            device.captures.refuse_allocator(plugin.name, device)
        _require_available(plugin, device)
        made: AccountedAllocator = device.captures.relaxed(_make, plugin, options, requests, device)
        if isinstance(made.allocator, SupportsPool) and device.is_cuda:
            grants_of(device).adopt_pool(device, made.allocator.pool_handle)
        _let_follow_peers(made)
        device.named_accounts[key] = device.accounts[key] = made
        return made


def layers_before(device: Device, given: LayersLike = None) -> tuple[LayerRequest, ...]:
    """Return what stands before the allocators of a device: the layers that a call gives, or the configured ones.

    General configuration is about CUDA devices, as that of allocators is.

    Raises
    ------
    ConfigError
        If a layer, an option or the order is wrong.
    """
    setting = configuration.current().layers_for(device.alias, given)
    is_about_others = given is None and device.is_cpu and not setting.key.startswith("devices.")
    return () if is_about_others else read_layers(setting)


def _make(plugin: Plugin, options: object, requests: tuple[LayerRequest, ...], device: Device) -> AccountedAllocator:
    layers = build_layers(requests, device, stand_in)
    allocator = _instance(plugin, options, device)
    try:
        return account(allocator, device, plugin.name, layers=layers)
    except BaseException:  # a layer refuses it
        if plugin.traits_for(options).device_bound and isinstance(allocator, SupportsClose):
            allocator.close()
        raise


def stand_in(name: str, device: Device) -> AccountedAllocator:
    """Return the allocator of a name, without layers, that can give memory for arrays of a device.

    Page-locked memory is the host's, and every CUDA device reaches it.
    """
    plugin = registries.current().get(name)
    is_pinned = plugin.traits.memory_kind is MemoryKind.PINNED
    return named_allocator(name, device.registry.cpu if is_pinned else device, layers=())


def _require_available(plugin: Plugin, device: Device) -> None:
    answer = registries.availability(plugin, device)
    if not answer.ok:
        raise PluginUnavailableError(
            allocator=plugin.name,
            distribution=plugin.record.provider,
            cause=f"not on device {device.alias!r}: {answer.reason}",
            usable=tuple(record.name for record in usable_on(device)),
        )


def usable_on(device: Device) -> list[registries.PluginRecord]:
    """Return the records of the allocators that can be used on a device. Loads them all."""
    registry = registries.current()
    return [record for record in registry.records() if record.usable and registry.availability(record, device).ok]


def _instance(plugin: Plugin, options: object, device: Device) -> Allocator:
    """Return an allocator of the plugin: its only one for all devices if it is not bound to one."""
    if plugin.traits_for(options).device_bound:
        return registries.build(plugin, options, device)
    shared = device_registry().shared_allocators
    key = (plugin.record.key, options)
    if key not in shared:
        shared[key] = registries.build(plugin, options, device)
    return cast("Allocator", shared[key])


def account_of(allocator: Allocator | AccountedAllocator, device: Device) -> AccountedAllocator:
    """Return the accounts of an object that a user brought, on a device; the same for the same object.

    Raises
    ------
    AllocatorContractError
        If the object has not the two methods.
    UnsupportedError
        If it says that its memory is not of the device.
    """
    if isinstance(allocator, AccountedAllocator):
        if allocator.device is device:
            return allocator
        allocator = allocator.allocator
    with _lock():
        if found := device.accounts.get(id(allocator)):
            return found
        registries.check_instance(allocator)
        name = getattr(allocator, "name", None)
        layers = build_layers(layers_before(device), device, stand_in)
        label = name if isinstance(name, str) else type(allocator).__name__
        made = account(allocator, device, label, allocator, layers)
        _require_kind_of_device(made)
        _let_follow_peers(made)
        device.accounts[id(allocator)] = made
        return made


def _let_follow_peers(made: AccountedAllocator) -> None:
    if isinstance(made.allocator, SupportsPeers) and made.device.is_cuda:
        grants_of(made.device).adopt_follower(made.device, made.allocator)


def _require_kind_of_device(made: AccountedAllocator) -> None:
    if made.declared_kind is not MemoryKind.UNKNOWN and made.declared_kind.on_host != made.device.is_cpu:
        raise UnsupportedError(
            f"allocator {made.name!r} hands out {made.declared_kind.name} memory and cannot serve {made.device.alias!r}"
        )


def _resolve(allocator: AllocatorLike, device: Device) -> AccountedAllocator | None:
    if allocator is None:
        return None
    if isinstance(allocator, str):
        return named_allocator(allocator, device)
    return account_of(allocator, device)


# ---------------------------------------------------------------------------------------------------------------------
# What users call


def get_allocator(
    name: str | None = None, device: DeviceLike = None, *, layers: LayersLike = None, **options: Any
) -> AccountedAllocator:
    """Return an allocator by name, to call directly or to look at.

    Parameters
    ----------
    name
        The name, or ``distribution:name``; the allocator in force on the device if not given.
    device
        The device it is to serve; the default device if not given.
    layers
        The layers before it, the nearest to the user first, each a name or a dictionary of a name with what is said
        about it: ``["ladder", {"limit": "2 GiB"}]``. The configured ones if not given.
    **options
        Its options. The same name with the same options and layers gives the same object.

    Raises
    ------
    PluginError
        If there is no such allocator, it cannot be loaded, or it is not available on the device.
    ConfigError
        If an option or a layer is wrong.
    """
    found = find_device(device)
    return named_allocator(name, found, layers, **options) if name is not None else allocator_in_force(found)


def set_device_allocator(device: DeviceLike, allocator: AllocatorLike) -> None:
    """Choose the allocator of one device for the whole process.

    Parameters
    ----------
    device
        The device.
    allocator
        An object with ``allocate`` and ``deallocate``, a name, or ``None`` to leave the choice to configuration.

    Raises
    ------
    AllocatorContractError
        If the object has not the two methods.
    PluginError
        If the name cannot be used.

    Notes
    -----
    Arrays that exist are freed by the allocator that made them. A scope of the calling thread or task stays stronger
    than this setting until it is left.
    """
    found = find_device(device)
    found.setting = _resolve(allocator, found)
    found.forget_supply()


def set_cuda_allocator(allocator: AllocatorLike) -> None:
    """Choose the allocator of all CUDA devices, as `set_device_allocator` does for each.

    Raises
    ------
    UnsupportedError
        If there is no CUDA device.
    """
    devices = device_registry().cuda
    if not devices:
        platform = device_registry().platform
        raise UnsupportedError(f"there is no CUDA device to choose an allocator for: {platform.why}")
    resolved = [_resolve(allocator, device) for device in devices]
    for device, setting in zip(devices, resolved, strict=True):
        device.setting = setting
        device.forget_supply()


def get_device_allocator(device: DeviceLike = None) -> Any:
    """Return the allocator in force on a device: the object that a user set, or the one made for a name."""
    return allocator_in_force(find_device(device)).public


class ScopedAllocator:
    """Choose the allocator of a device for the length of a ``with`` block, in the running thread or task.

    Parameters
    ----------
    device
        The device.
    allocator
        An object with ``allocate`` and ``deallocate``, a name, or ``None`` for the built-in one.

    Notes
    -----
    Scopes nest, may be entered again, and may be left in any order; what was in force before is in force after, also
    after an exception. Threads start outside of all scopes; tasks begin with a copy of those of their maker.
    """

    def __init__(self, device: DeviceLike, allocator: AllocatorLike) -> None:
        self.device = find_device(device)
        self._scope = AllocatorScope(self.device, _resolve(allocator, self.device))

    def __enter__(self) -> Self:
        allocator_scopes.push(self, self._scope)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        allocator_scopes.pop(self)


# ---------------------------------------------------------------------------------------------------------------------
# Whether the built-in allocator is the memory pool


def is_mempool_supported(device: DeviceLike = None) -> bool:
    """Return whether a device supports stream-ordered memory pools; ``False`` for the host."""
    return find_device(device).is_mempool_supported


def is_mempool_enabled(device: DeviceLike = None) -> bool:
    """Return whether the built-in allocator of a device is the memory pool; ``False`` for the host."""
    return is_pooling(find_device(device))


def set_mempool_enabled(device: DeviceLike, enable: bool) -> None:
    """Make the memory pool the built-in allocator of a device, or the plain one.

    Arrays that exist are not affected, and neither is an allocator that was chosen by a scope, a setting or config.

    Raises
    ------
    ValueError
        If a pool is asked for on the host.
    UnsupportedError
        If the device does not support pools.
    """
    found = find_device(device)
    _require_pool(found, enable=enable)
    if found.is_cuda:
        found.is_mempool_enabled = bool(enable)
        found.forget_supply()


def _require_pool(device: Device, *, enable: bool) -> None:
    if enable and device.is_cpu:
        raise ValueError("memory pools are a feature of CUDA devices: 'cpu' has none")
    if enable and not device.is_mempool_supported:
        raise UnsupportedError(f"device {device.alias!r} does not support memory pools")


class ScopedMempool:
    """Make the memory pool the built-in allocator of a device, or the plain one, for the length of a ``with`` block.

    Parameters
    ----------
    device
        The device.
    enable
        Whether the pool is used.

    Raises
    ------
    ValueError, UnsupportedError
        As `set_mempool_enabled` does, on entry.
    """

    def __init__(self, device: DeviceLike, enable: bool) -> None:
        self.device, self.enable = find_device(device), bool(enable)

    def __enter__(self) -> None:
        _require_pool(self.device, enable=self.enable)
        allocator_scopes.push(self, AllocatorScope(self.device, pooling=self.enable and self.device.is_cuda))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        allocator_scopes.pop(self)
