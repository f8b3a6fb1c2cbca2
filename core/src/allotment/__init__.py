"""One GPU memory allocator for every library in a Python process, chosen by name.

Every name here is loaded when it is first used, so importing the package costs next to nothing and touches no driver.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allotment._array import (
        Array as Array,
    )
    from allotment.access import (
        AccessReport as AccessReport,
    )
    from allotment.access import (
        Verdict as Verdict,
    )
    from allotment.access import (
        can_access as can_access,
    )
    from allotment.access import (
        explain_access as explain_access,
    )
    from allotment.access import (
        reset_access_warnings as reset_access_warnings,
    )
    from allotment.allocator import (
        API_VERSION as API_VERSION,
    )
    from allotment.allocator import (
        AccountAnswers as AccountAnswers,
    )
    from allotment.allocator import (
        Allocator as Allocator,
    )
    from allotment.allocator import (
        AllocatorPlugin as AllocatorPlugin,
    )
    from allotment.allocator import (
        AllocatorTraits as AllocatorTraits,
    )
    from allotment.allocator import (
        Availability as Availability,
    )
    from allotment.allocator import (
        IpcKind as IpcKind,
    )
    from allotment.allocator import (
        KeepsAccounts as KeepsAccounts,
    )
    from allotment.allocator import (
        OwnAccounts as OwnAccounts,
    )
    from allotment.allocator import (
        PrivatePool as PrivatePool,
    )
    from allotment.allocator import (
        Reservation as Reservation,
    )
    from allotment.allocator import (
        Statistics as Statistics,
    )
    from allotment.allocator import (
        SupportsClose as SupportsClose,
    )
    from allotment.allocator import (
        SupportsLimits as SupportsLimits,
    )
    from allotment.allocator import (
        SupportsPeers as SupportsPeers,
    )
    from allotment.allocator import (
        SupportsPool as SupportsPool,
    )
    from allotment.allocator import (
        SupportsPrivatePools as SupportsPrivatePools,
    )
    from allotment.allocator import (
        SupportsReservation as SupportsReservation,
    )
    from allotment.allocator import (
        SupportsStreams as SupportsStreams,
    )
    from allotment.allocator import (
        SupportsTrim as SupportsTrim,
    )
    from allotment.allocator import (
        SupportsUse as SupportsUse,
    )
    from allotment.capture import (
        CaptureMode as CaptureMode,
    )
    from allotment.capture import (
        Graph as Graph,
    )
    from allotment.capture import (
        ScopedCapture as ScopedCapture,
    )
    from allotment.capture import (
        capture_begin as capture_begin,
    )
    from allotment.capture import (
        capture_end as capture_end,
    )
    from allotment.capture import (
        capture_launch as capture_launch,
    )
    from allotment.configuration import (
        configure as configure,
    )
    from allotment.configuration import settings as config  # noqa: F401 - exported by __getattr__
    from allotment.copying import (
        array as array,
    )
    from allotment.copying import (
        clone as clone,
    )
    from allotment.copying import (
        copy as copy,
    )
    from allotment.device import (
        Device as Device,
    )
    from allotment.device import (
        ScopedDevice as ScopedDevice,
    )
    from allotment.device import (
        get_cuda_device as get_cuda_device,
    )
    from allotment.device import (
        get_cuda_device_count as get_cuda_device_count,
    )
    from allotment.device import (
        get_cuda_devices as get_cuda_devices,
    )
    from allotment.device import (
        get_device as get_device,
    )
    from allotment.device import (
        get_devices as get_devices,
    )
    from allotment.device import (
        get_preferred_device as get_preferred_device,
    )
    from allotment.device import (
        is_cpu_available as is_cpu_available,
    )
    from allotment.device import (
        is_cuda_available as is_cuda_available,
    )
    from allotment.device import (
        is_device_available as is_device_available,
    )
    from allotment.device import (
        set_device as set_device,
    )
    from allotment.device import (
        synchronize as synchronize,
    )
    from allotment.device import (
        synchronize_device as synchronize_device,
    )
    from allotment.dtypes import (
        float16 as float16,
    )
    from allotment.dtypes import (
        float32 as float32,
    )
    from allotment.dtypes import (
        float64 as float64,
    )
    from allotment.dtypes import (
        int8 as int8,
    )
    from allotment.dtypes import (
        int16 as int16,
    )
    from allotment.dtypes import (
        int32 as int32,
    )
    from allotment.dtypes import (
        int64 as int64,
    )
    from allotment.dtypes import (
        uint8 as uint8,
    )
    from allotment.dtypes import (
        uint16 as uint16,
    )
    from allotment.dtypes import (
        uint32 as uint32,
    )
    from allotment.dtypes import (
        uint64 as uint64,
    )
    from allotment.errors import (
        AccessError as AccessError,
    )
    from allotment.errors import (
        AccessWarning as AccessWarning,
    )
    from allotment.errors import (
        AllocatorContractError as AllocatorContractError,
    )
    from allotment.errors import (
        AllotmentError as AllotmentError,
    )
    from allotment.errors import (
        AllotmentWarning as AllotmentWarning,
    )
    from allotment.errors import (
        CaptureError as CaptureError,
    )
    from allotment.errors import (
        ClosedError as ClosedError,
    )
    from allotment.errors import (
        ConfigError as ConfigError,
    )
    from allotment.errors import (
        ConfigWarning as ConfigWarning,
    )
    from allotment.errors import (
        DeviceNotFoundError as DeviceNotFoundError,
    )
    from allotment.errors import (
        ForkedProcessError as ForkedProcessError,
    )
    from allotment.errors import (
        FreeFailedWarning as FreeFailedWarning,
    )
    from allotment.errors import (
        InvalidPointerError as InvalidPointerError,
    )
    from allotment.errors import (
        ObserverError as ObserverError,
    )
    from allotment.errors import (
        ObserverWarning as ObserverWarning,
    )
    from allotment.errors import (
        OutOfMemoryError as OutOfMemoryError,
    )
    from allotment.errors import (
        PlatformError as PlatformError,
    )
    from allotment.errors import (
        PlatformUnavailableError as PlatformUnavailableError,
    )
    from allotment.errors import (
        PluginConflictError as PluginConflictError,
    )
    from allotment.errors import (
        PluginDisabledError as PluginDisabledError,
    )
    from allotment.errors import (
        PluginError as PluginError,
    )
    from allotment.errors import (
        PluginIncompatibleError as PluginIncompatibleError,
    )
    from allotment.errors import (
        PluginLoadError as PluginLoadError,
    )
    from allotment.errors import (
        PluginUnavailableError as PluginUnavailableError,
    )
    from allotment.errors import (
        ShuttingDownError as ShuttingDownError,
    )
    from allotment.errors import (
        SizeMismatchError as SizeMismatchError,
    )
    from allotment.errors import (
        TraceError as TraceError,
    )
    from allotment.errors import (
        UnknownAllocatorError as UnknownAllocatorError,
    )
    from allotment.errors import (
        UnsupportedError as UnsupportedError,
    )
    from allotment.factories import (
        empty as empty,
    )
    from allotment.factories import (
        empty_like as empty_like,
    )
    from allotment.factories import (
        full as full,
    )
    from allotment.factories import (
        full_like as full_like,
    )
    from allotment.factories import (
        ones as ones,
    )
    from allotment.factories import (
        ones_like as ones_like,
    )
    from allotment.factories import (
        zeros as zeros,
    )
    from allotment.factories import (
        zeros_like as zeros_like,
    )
    from allotment.foreign import (
        from_pointer as from_pointer,
    )
    from allotment.grants import (
        ScopedMempoolAccess as ScopedMempoolAccess,
    )
    from allotment.grants import (
        ScopedPeerAccess as ScopedPeerAccess,
    )
    from allotment.grants import (
        is_mempool_access_enabled as is_mempool_access_enabled,
    )
    from allotment.grants import (
        is_mempool_access_supported as is_mempool_access_supported,
    )
    from allotment.grants import (
        is_peer_access_enabled as is_peer_access_enabled,
    )
    from allotment.grants import (
        is_peer_access_supported as is_peer_access_supported,
    )
    from allotment.grants import (
        set_mempool_access_enabled as set_mempool_access_enabled,
    )
    from allotment.grants import (
        set_peer_access_enabled as set_peer_access_enabled,
    )
    from allotment.interchange import (
        asarray as asarray,
    )
    from allotment.interchange import (
        from_dlpack as from_dlpack,
    )
    from allotment.interchange import (
        from_numpy as from_numpy,
    )
    from allotment.ipc import (
        from_ipc_handle as from_ipc_handle,
    )
    from allotment.launching import (
        KernelAdapter as KernelAdapter,
    )
    from allotment.launching import (
        LaunchRequest as LaunchRequest,
    )
    from allotment.launching import (
        launch as launch,
    )
    from allotment.launching import (
        launch_dim as launch_dim,
    )
    from allotment.launching import (
        register_kernel_adapter as register_kernel_adapter,
    )
    from allotment.layers.accounting import (
        AccountedAllocator as AccountedAllocator,
    )
    from allotment.memory_kind import (
        MemoryKind as MemoryKind,
    )
    from allotment.memory_use import (
        clear_cache as clear_cache,
    )
    from allotment.memory_use import (
        get_active_memory as get_active_memory,
    )
    from allotment.memory_use import (
        get_cache_limit as get_cache_limit,
    )
    from allotment.memory_use import (
        get_cache_memory as get_cache_memory,
    )
    from allotment.memory_use import (
        get_memory_limit as get_memory_limit,
    )
    from allotment.memory_use import (
        get_peak_memory as get_peak_memory,
    )
    from allotment.memory_use import (
        reset_peak_memory as reset_peak_memory,
    )
    from allotment.memory_use import (
        set_cache_limit as set_cache_limit,
    )
    from allotment.memory_use import (
        set_memory_limit as set_memory_limit,
    )
    from allotment.platform import (
        MemoryAdvice as MemoryAdvice,
    )
    from allotment.platform import (
        Platform as Platform,
    )
    from allotment.platform import (
        PoolAccess as PoolAccess,
    )
    from allotment.platform import (
        PoolAttribute as PoolAttribute,
    )
    from allotment.pools import (
        get_mempool_release_threshold as get_mempool_release_threshold,
    )
    from allotment.pools import (
        get_mempool_used_mem_current as get_mempool_used_mem_current,
    )
    from allotment.pools import (
        get_mempool_used_mem_high as get_mempool_used_mem_high,
    )
    from allotment.pools import (
        set_mempool_release_threshold as set_mempool_release_threshold,
    )
    from allotment.pools import (
        trim_mempool as trim_mempool,
    )
    from allotment.registry import (
        PluginOrigin as PluginOrigin,
    )
    from allotment.registry import (
        PluginRecord as PluginRecord,
    )
    from allotment.registry import (
        PluginStatus as PluginStatus,
    )
    from allotment.registry import (
        list_allocators as list_allocators,
    )
    from allotment.registry import (
        register_allocator as register_allocator,
    )
    from allotment.report import (
        startup_report as startup_report,
    )
    from allotment.selection import (
        ScopedAllocator as ScopedAllocator,
    )
    from allotment.selection import (
        ScopedMempool as ScopedMempool,
    )
    from allotment.selection import (
        get_allocator as get_allocator,
    )
    from allotment.selection import (
        get_device_allocator as get_device_allocator,
    )
    from allotment.selection import (
        is_mempool_enabled as is_mempool_enabled,
    )
    from allotment.selection import (
        is_mempool_supported as is_mempool_supported,
    )
    from allotment.selection import (
        set_cuda_allocator as set_cuda_allocator,
    )
    from allotment.selection import (
        set_device_allocator as set_device_allocator,
    )
    from allotment.selection import (
        set_mempool_enabled as set_mempool_enabled,
    )
    from allotment.session import (
        init as init,
    )
    from allotment.session import (
        simulate as simulate,
    )
    from allotment.statistics import (
        memory_stats as memory_stats,
    )
    from allotment.stream import (
        ScopedStream as ScopedStream,
    )
    from allotment.stream import (
        Stream as Stream,
    )
    from allotment.stream import (
        get_stream as get_stream,
    )
    from allotment.stream import (
        set_stream as set_stream,
    )
    from allotment.stream import (
        synchronize_stream as synchronize_stream,
    )
    from allotment.units import (
        MemoryAmount as MemoryAmount,
    )

_HOMES = {
    "_array": "Array",
    "access": "AccessReport Verdict can_access explain_access reset_access_warnings",
    "allocator": """
        API_VERSION AccountAnswers Allocator AllocatorPlugin AllocatorTraits Availability IpcKind KeepsAccounts
        OwnAccounts PrivatePool Reservation Statistics SupportsClose SupportsLimits SupportsPeers SupportsPool
        SupportsPrivatePools SupportsReservation SupportsStreams SupportsTrim SupportsUse
    """,
    "capture": "CaptureMode Graph ScopedCapture capture_begin capture_end capture_launch",
    "configuration": "configure",
    "copying": "array clone copy",
    "device": """
        Device ScopedDevice get_cuda_device get_cuda_device_count get_cuda_devices get_device get_devices
        get_preferred_device is_cpu_available is_cuda_available is_device_available set_device synchronize
        synchronize_device
    """,
    "dtypes": "float16 float32 float64 int16 int32 int64 int8 uint16 uint32 uint64 uint8",
    "errors": """
        AccessError AccessWarning AllocatorContractError AllotmentError AllotmentWarning CaptureError
        ClosedError ConfigError ConfigWarning DeviceNotFoundError ForkedProcessError FreeFailedWarning
        InvalidPointerError ObserverError ObserverWarning OutOfMemoryError PlatformError
        PlatformUnavailableError PluginConflictError PluginDisabledError PluginError PluginIncompatibleError
        PluginLoadError PluginUnavailableError ShuttingDownError SizeMismatchError TraceError
        UnknownAllocatorError UnsupportedError
    """,
    "factories": "empty empty_like full full_like ones ones_like zeros zeros_like",
    "foreign": "from_pointer",
    "grants": """
        ScopedMempoolAccess ScopedPeerAccess is_mempool_access_enabled is_mempool_access_supported
        is_peer_access_enabled is_peer_access_supported set_mempool_access_enabled set_peer_access_enabled
    """,
    "interchange": "asarray from_dlpack from_numpy",
    "ipc": "from_ipc_handle",
    "launching": "KernelAdapter LaunchRequest launch launch_dim register_kernel_adapter",
    "layers.accounting": "AccountedAllocator",
    "memory_kind": "MemoryKind",
    "memory_use": """
        clear_cache get_active_memory get_cache_limit get_cache_memory get_memory_limit get_peak_memory
        reset_peak_memory set_cache_limit set_memory_limit
    """,
    "platform": "MemoryAdvice Platform PoolAccess PoolAttribute",
    "pools": """
        get_mempool_release_threshold get_mempool_used_mem_current get_mempool_used_mem_high
        set_mempool_release_threshold trim_mempool
    """,
    "registry": "PluginOrigin PluginRecord PluginStatus list_allocators register_allocator",
    "report": "startup_report",
    "selection": """
        ScopedAllocator ScopedMempool get_allocator get_device_allocator is_mempool_enabled
        is_mempool_supported set_cuda_allocator set_device_allocator set_mempool_enabled
    """,
    "session": "init simulate",
    "statistics": "memory_stats",
    "stream": "ScopedStream Stream get_stream set_stream synchronize_stream",
    "units": "MemoryAmount",
}
"""The module of each public name."""

_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = sorted([*_MODULE_OF, "CudaManagedAllocator", "__version__", "config"])  # noqa: PLE0605 - one owner of the names


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        value = getattr(import_module(f"allotment.{_MODULE_OF[name]}"), name)
    elif name == "config":
        from allotment.configuration import settings as value
    elif name == "__version__":
        from allotment._version import version

        value = version()
    elif name == "CudaManagedAllocator":
        return _managed_allocator()
    else:
        raise AttributeError(f"module 'allotment' has no attribute {name!r}")
    globals()[name] = value
    return value


def _managed_allocator() -> Any:
    """Return the class that the guides call ``CudaManagedAllocator``: the installed allocator of that role."""
    from allotment import registry
    from allotment.configuration import BUILT_IN

    return registry.current().get(BUILT_IN.managed).factory


def __dir__() -> list[str]:
    return list(__all__)
