"""Devices: what they are, which exist, and which one is meant."""

from __future__ import annotations

import platform as python_platform
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakSet, WeakValueDictionary

from allotment import _process, configuration
from allotment import platform as platforms
from allotment._captures import Captures
from allotment._grants import Grants, reaches_built_in_memory
from allotment._locks import RenewedLock
from allotment._scope import ScopeStack
from allotment.errors import DeviceNotFoundError, ForkedProcessError, ShuttingDownError, UnsupportedError
from allotment.memory_kind import MemoryKind
from allotment.platform import HOST_LOCATION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

    from allotment.layers.accounting import AccountedAllocator
    from allotment.layers.limit import Budget
    from allotment.platform import DeviceProperties, MemoryInfo, Platform
    from allotment.stream import Stream

CPU: Final = "cpu"
_SERVING: Final = "allotment.serving"
"""What tells other processes how memory stands. It is above this module, and imported where it is configured only."""


class Device:
    """A place where memory can be: the host or one CUDA device.

    There is one object a device, so devices compare by identity and can key a dictionary. Get it from `get_device`.

    Attributes
    ----------
    alias : str
        ``"cpu"`` or ``"cuda:0"``.
    ordinal : int
        The CUDA ordinal; -1 for the host.
    name : str
        The product's name.
    is_cpu, is_cuda : bool
        Which of the two it is.
    platform : Platform
        What the device belongs to.
    """

    __slots__ = (
        "__weakref__",
        "_properties",
        "accounts",
        "alias",
        "built_in",
        "captures",
        "chosen",
        "is_cpu",
        "is_cuda",
        "is_mempool_enabled",
        "is_retired",
        "named_accounts",
        "ordinal",
        "pinned_supply",
        "platform",
        "registry",
        "setting",
        "stream_in_place",
        "supply",
    )

    def __init__(self, platform: Platform, ordinal: int, registry: DeviceRegistry) -> None:
        self.platform = platform
        self.registry = registry
        """What the device belongs to: it lives as long as any of its devices, so that an end reaches them all."""
        self.is_retired = False
        """Whether the platform must not be called any more: the process is ending, or was forked."""
        self.ordinal = ordinal
        self.is_cpu = ordinal == HOST_LOCATION
        self.is_cuda = not self.is_cpu
        self.alias = CPU if self.is_cpu else f"cuda:{ordinal}"
        self._properties: DeviceProperties | None = None if self.is_cpu else platform.device_properties(ordinal)
        self.is_mempool_enabled = self.is_mempool_supported and configuration.current().enable_mempools_at_init
        """Whether the built-in allocator of the device is the memory pool; `set_mempool_enabled` changes it."""

        # What selection and streams keep about the device; each is theirs to fill and to empty.
        self.supply: AccountedAllocator | None = None
        self.pinned_supply: AccountedAllocator | None = None
        self.chosen: AccountedAllocator | None = None
        self.setting: AccountedAllocator | None = None
        self.built_in: dict[str, AccountedAllocator] = {}
        self.named_accounts: dict[object, AccountedAllocator] = {}
        self.accounts: WeakValueDictionary[object, AccountedAllocator] = WeakValueDictionary()
        self.stream_in_place: Stream | None = None
        self.captures = registry.captures
        """The graph captures under way on the platform; see `allotment.capture`."""

    def __repr__(self) -> str:
        return f"<Device {self.alias!r}: {self.name}>"

    def __str__(self) -> str:
        return self.alias

    def _property(self, name: str) -> Any:
        return False if self._properties is None else getattr(self._properties, name)

    @property
    def name(self) -> str:
        """The product's name; of the host, its processor architecture."""
        if self._properties is None:
            return python_platform.processor() or python_platform.machine() or CPU
        return self._properties.name

    @property
    def is_uva(self) -> bool:
        """Whether host and device share one address space (CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING)."""
        return bool(self._property("unified_addressing"))

    @property
    def is_cpu_memory_access_from_gpu_supported(self) -> bool:
        """Whether the GPU may touch pageable host memory (CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS)."""
        return bool(self._property("pageable_memory_access"))

    @property
    def is_gpu_memory_access_from_cpu_supported(self) -> bool:
        """Whether the host may touch managed memory that resides on the GPU without moving it.

        CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST. It says nothing about memory that is not managed.
        """
        return bool(self._property("direct_managed_access_from_host"))

    @property
    def is_cpu_gpu_atomic_supported(self) -> bool:
        """Whether host and device atomics work on each other's memory (HOST_NATIVE_ATOMIC_SUPPORTED)."""
        return bool(self._property("host_native_atomic"))

    @property
    def is_managed_memory_supported(self) -> bool:
        """Whether the device supports managed memory (CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY)."""
        return bool(self._property("managed_memory"))

    @property
    def is_concurrent_managed_access_supported(self) -> bool:
        """Whether host and device may touch managed memory at once (CONCURRENT_MANAGED_ACCESS)."""
        return bool(self._property("concurrent_managed_access"))

    @property
    def is_mempool_supported(self) -> bool:
        """Whether the device supports stream-ordered memory pools (CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)."""
        return bool(self._property("memory_pools"))

    @property
    def is_virtual_memory_supported(self) -> bool:
        """Whether memory can be mapped behind reserved addresses (VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)."""
        return bool(self._property("virtual_memory"))

    @property
    def is_ipc_supported(self) -> bool | None:
        """Whether memory can be shared with other processes; ``None`` where the driver cannot say."""
        if self._properties is None or self._properties.integrated:
            return False
        return self._properties.ipc

    @property
    def arch(self) -> int:
        """The compute capability as one number, such as 90; 0 for the host."""
        if self._properties is None:
            return 0
        major, minor = self._properties.compute_capability
        return 10 * major + minor

    @property
    def sm_count(self) -> int:
        """The number of streaming multiprocessors; 0 for the host."""
        return int(self._property("sm_count"))

    @property
    def max_shared_memory_per_block(self) -> int:
        """The shared memory that a block of threads may use, in bytes; 0 for the host."""
        return int(self._property("max_shared_memory_per_block"))

    @property
    def uuid(self) -> str | None:
        """The device's identifier, ``GPU-…``; ``None`` for the host."""
        return None if self._properties is None else self._properties.uuid

    @property
    def pci_bus_id(self) -> str | None:
        """The device's place on the bus, ``domain:bus:device``; ``None`` for the host."""
        return None if self._properties is None else self._properties.pci_bus_id

    @property
    def memory_info(self) -> MemoryInfo:
        """The device's free and total memory in bytes. Opens the device's context.

        Raises
        ------
        UnsupportedError
            For the host, whose memory Allotment does not manage.
        """
        if self.is_cpu:
            raise UnsupportedError("memory_info is about CUDA devices; the operating system answers for 'cpu'")
        return self.platform.memory_info(self.ordinal)

    @property
    def total_memory(self) -> int:
        """The device's memory in bytes, without opening a context; 0 for the host."""
        return int(self._property("total_memory"))

    @property
    def free_memory(self) -> int:
        """The device's free memory in bytes. Opens the device's context; 0 for the host."""
        return 0 if self.is_cpu else self.memory_info.free

    @property
    def has_context(self) -> bool:
        """Whether the device's context is open. Opens none."""
        return self.is_cuda and self.platform.has_context(self.ordinal)

    @property
    def stream(self) -> Stream:
        """The stream that work on the device goes to; see `get_stream`.

        Raises
        ------
        UnsupportedError
            For the host, which has no streams.
        """
        from allotment.stream import get_stream

        return get_stream(self)

    @property
    def is_capturing(self) -> bool:
        """Whether a graph is being captured: for a CUDA device, on it or another one; for the host, of host work."""
        return bool(self.captures.on_host if self.is_cpu else self.captures.on_devices)

    def can_access(self, other: DeviceLike) -> bool:
        """Return whether this device reaches memory that the built-in allocator of another device hands out now.

        A coarse answer for when there is no array yet: `allotment.can_access` is the answer about an array.
        """
        return reaches_built_in_memory(self, find_device(other))

    def synchronize(self) -> None:
        """Wait for all work on the device.

        Raises
        ------
        CaptureError
            While a graph is captured on the device, which a wait for it ends from any thread.
        """
        if self.is_cuda:
            self.captures.refuse_device_wait(self)
            self.platform.synchronize_device(self.ordinal)

    def forget_supply(self) -> None:
        """Let the allocator in force be found anew when it is next needed: a setting changed."""
        self.supply = self.pinned_supply = self.chosen = None
        self.built_in.clear()


DeviceLike = Device | str | int | None
"""What names a device: the object, an alias, a CUDA ordinal, or ``None`` for the default device."""


class DeviceRegistry:
    """The devices of a platform.

    Parameters
    ----------
    platform
        Whose devices.
    """

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.serves = platform
        """The platform, also after the devices were retired."""
        self.captures = Captures(platform)
        self.cpu = Device(platform, HOST_LOCATION, self)
        self.cuda = tuple(Device(platform, ordinal, self) for ordinal in range(platform.device_count()))
        self.by_alias = {device.alias: device for device in self}
        self.default = self.cuda[0] if self.cuda else self.cpu
        self.grants = Grants()
        """Who was given access to whose memory."""
        self.shared_allocators: dict[object, object] = {}
        """Allocators that serve all devices, by name and options; see `allotment.selection`."""
        self.budgets: dict[object, Budget] = {}
        """What accounts with a limit have handed out together, by device or name; see `allotment.layers.limit`."""
        configuration.current().seal("enable_mempools_at_init")
        _process.on_shutdown(self._retire_at_shutdown)
        if self.cuda:
            _process.on_fork_in_child(self._retire_after_fork)

    def __iter__(self) -> Iterator[Device]:
        yield self.cpu
        yield from self.cuda

    def find(self, ident: str | int) -> Device:
        """Return the device with this alias or CUDA ordinal.

        Raises
        ------
        DeviceNotFoundError
            If there is none.
        """
        alias = ident if isinstance(ident, str) else f"cuda:{ident}"
        if device := self.by_alias.get(alias):
            return device
        if alias == "cuda" and self.cuda:
            return self.cuda[self.platform.current_device()]
        wants_cuda = alias.startswith("cuda")
        raise DeviceNotFoundError(
            device=alias,
            existing=tuple(self.by_alias),
            platform=f"{self.platform.name!r} ({self.platform.why})",
            remedy='Try it on a simulated one: with allotment.simulate("2xh200"): ...' if wants_cuda else None,
        )

    def _retire_at_shutdown(self) -> None:
        self._retire(self, ShuttingDownError)

    def _retire_after_fork(self) -> None:
        """Leave the child the host: its memory is the child's own copy."""
        from allotment.platform.host import HostPlatform

        self._retire(self.cuda, ForkedProcessError)
        self.captures.forget_devices()
        for account in list(self.cpu.accounts.values()):
            if account.memory_kind is not MemoryKind.HOST:
                account.retire(ForkedProcessError)
        self.cpu.platform = HostPlatform("this process was forked after its parent had initialised the GPU platform")

    def _retire(self, devices: Iterable[Device], error: type[ShuttingDownError | ForkedProcessError]) -> None:
        """Let no call reach the platform any more: allocation and all else raises ``error``, frees do nothing."""
        self.platform = retired = cast("Platform", _RetiredPlatform(self.platform, error))
        for device in devices:
            device.platform, device.is_retired = retired, True
            for account in list(device.accounts.values()):
                account.retire(error)


class _RetiredPlatform:
    """Stands where a platform was that must not be called any more."""

    def __init__(self, platform: Platform, error: type[ShuttingDownError | ForkedProcessError]) -> None:
        self.name, self.description, self.why = platform.name, platform.description, platform.why
        self._error = error

    def __getattr__(self, name: str) -> Any:
        raise self._error()


_lock = RenewedLock()
_registry: DeviceRegistry | None = None
_registries: WeakSet[DeviceRegistry] = WeakSet()
"""All registries with live devices: arrays may outlive the platform's time in force."""


@dataclass(slots=True, eq=False)
class _Scope:
    """A default device, and what was current in the thread before it.

    Without a device it stands for the registry's default, and holds the registry that was in force before.
    """

    device: Device | None = None
    before: object = None


_scopes: ScopeStack[_Scope] = ScopeStack("allotment_default_device")


def device_registry() -> DeviceRegistry:
    """Return the devices of the platform in force, which is chosen now if it was not before."""
    global _registry
    platform = platforms.current()
    registry = _registry
    if registry is None or registry.serves is not platform:
        with _lock():
            registry = _registry
            if registry is None or registry.serves is not platform:
                found = _known_registry(platform)
                _serve_if_configured()
                registry = _registry = found
    return registry


def registry_in_use() -> DeviceRegistry | None:
    """Return the devices that were last in use; ``None`` while none was. Chooses no platform."""
    return _registry


def _serve_if_configured() -> None:
    current = configuration.current()
    if current.values.watch or current.values.metrics.port is not None:
        import_module(_SERVING).serve_configured()
    for key in ("watch", "metrics.port", "metrics.address"):
        current.seal(key)


def _known_registry(platform: Platform) -> DeviceRegistry:
    """Return the registry of a platform: the one whose devices are alive, for a platform that is in force again."""
    found = next((registry for registry in _registries if registry.serves is platform), None)
    if found is not None:
        return found
    if not _registries:
        configuration.subscribe(_forget_supplies)
    registry = DeviceRegistry(platform)
    _registries.add(registry)
    return registry


def _forget_supplies(_: frozenset[str]) -> None:
    for registry in list(_registries):
        for device in registry:
            device.forget_supply()


def find_device(device: DeviceLike = None) -> Device:
    """Return the device that is meant; the hot path behind `get_device`."""
    if type(device) is Device:
        return device
    if device is None:
        scopes = _scopes.get()
        return (scopes[-1][1].device if scopes else None) or device_registry().default
    if isinstance(device, str | int) and not isinstance(device, bool):
        return device_registry().find(device)
    raise TypeError(f"a device is named by a Device, an alias such as 'cuda:0', an ordinal or None, not {device!r}")


def get_device(ident: DeviceLike = None) -> Device:
    """Return a device.

    Parameters
    ----------
    ident
        A `Device`, an alias (``"cpu"``, ``"cuda:1"``; ``"cuda"`` is the current CUDA device), a CUDA ordinal, or
        ``None`` for the default device: that of the innermost `ScopedDevice`, or of `set_device`, or the first CUDA
        device, or the host where there is none.

    Raises
    ------
    DeviceNotFoundError
        If there is no such device; it says which exist and why this platform was chosen.
    """
    return find_device(ident)


def set_device(ident: DeviceLike) -> None:
    """Make a device the default of the process; a CUDA device also becomes current in the calling thread."""
    device = find_device(ident)
    device_registry().default = device
    if device.is_cuda:
        device.platform.set_current_device(device.ordinal)


def get_devices() -> list[Device]:
    """Return all devices, the host first. Opens no context."""
    return list(device_registry())


def get_cuda_devices() -> list[Device]:
    """Return the CUDA devices in the order of their ordinals. Opens no context."""
    return list(device_registry().cuda)


def get_cuda_device_count() -> int:
    """Return the number of CUDA devices. Opens no context."""
    return len(device_registry().cuda)


def get_cuda_device(ordinal: int | None = None) -> Device:
    """Return a CUDA device by its ordinal, or the current one.

    Parameters
    ----------
    ordinal
        The ordinal; ``None`` for the device that is current in the calling thread, which in a call of an allocator is
        the device of the array.

    Raises
    ------
    DeviceNotFoundError
        If there is no such device.
    """
    return device_registry().find("cuda" if ordinal is None else f"cuda:{ordinal}")


def get_preferred_device() -> Device:
    """Return the first CUDA device, or the host where there is none."""
    registry = device_registry()
    return registry.cuda[0] if registry.cuda else registry.cpu


def is_cpu_available() -> bool:
    """Return ``True``: the host is always there."""
    return True


def is_cuda_available() -> bool:
    """Return whether there is a CUDA device that this process can use. Never raises; opens no context."""
    return any(not device.is_retired for device in device_registry().cuda)


def is_device_available(device: DeviceLike) -> bool:
    """Return whether a device exists."""
    try:
        find_device(device)
    except DeviceNotFoundError:
        return False
    return True


class ScopedDevice:
    """Make a device the default, and current if it is a CUDA device, for the length of a ``with`` block.

    Parameters
    ----------
    device
        The device.

    Notes
    -----
    The default is that of the running thread or task alone; scopes may be nested and entered again.
    """

    def __init__(self, device: DeviceLike) -> None:
        self.device = find_device(device)

    def __enter__(self) -> Device:
        device, before = self.device, None
        if device.is_cuda:
            before = device.platform.switch_device(device.ordinal)
        _scopes.push(self, _Scope(device, before))
        return device

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        scopes = [scope for _, scope in _scopes.get()]
        left = _scopes.pop(self)
        if left is None or self.device.is_cpu:
            return
        later = [scope for scope in scopes[scopes.index(left) + 1 :] if scope.device in self.device.registry.cuda]
        if later:  # left out of turn: what was current before is for the next one to restore
            later[0].before = left.before
        elif not self.device.is_retired:
            self.device.platform.restore_context(left.before)


def hide_scoped_devices(scope: object) -> None:
    """Let the registry's default device be the default until ``scope`` is left: another platform is in force.

    The devices that were in force until now are kept, with their settings, also if nobody else holds them.
    """
    _scopes.push(scope, _Scope(before=_registry))


def reveal_scoped_devices(scope: object) -> None:
    """Undo `hide_scoped_devices`."""
    _scopes.pop(scope)


def forget_devices() -> None:
    """Forget the devices and the default of this context, so that the next use starts anew."""
    global _registry
    _registry = None
    _scopes.clear()


def synchronize_device(device: DeviceLike = None) -> None:
    """Wait for all work on a device."""
    find_device(device).synchronize()


def synchronize() -> None:
    """Wait for all work on all CUDA devices that have a context."""
    for device in device_registry().cuda:
        if device.has_context:
            device.synchronize()
