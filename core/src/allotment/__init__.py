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
        Verdict as Verdict,
        can_access as can_access,
        explain_access as explain_access,
        reset_access_warnings as reset_access_warnings,
    )
    from allotment.allocator import (
        API_VERSION as API_VERSION,
        AccountAnswers as AccountAnswers,
        Allocator as Allocator,
        AllocatorPlugin as AllocatorPlugin,
        AllocatorTraits as AllocatorTraits,
        Availability as Availability,
        CClient as CClient,
        CFunctions as CFunctions,
        IpcKind as IpcKind,
        KeepsAccounts as KeepsAccounts,
        OwnAccounts as OwnAccounts,
        PrivatePool as PrivatePool,
        Reservation as Reservation,
        Statistics as Statistics,
        SupportsCFunctions as SupportsCFunctions,
        SupportsClose as SupportsClose,
        SupportsLargestFree as SupportsLargestFree,
        SupportsLimits as SupportsLimits,
        SupportsPeers as SupportsPeers,
        SupportsPool as SupportsPool,
        SupportsPrivatePools as SupportsPrivatePools,
        SupportsReservation as SupportsReservation,
        SupportsStreams as SupportsStreams,
        SupportsTrim as SupportsTrim,
        SupportsUse as SupportsUse,
    )
    from allotment.bridges import (
        Bridge as Bridge,
        BridgeState as BridgeState,
        BridgeStatus as BridgeStatus,
        Delivery as Delivery,
        install as install,
        status as status,
        uninstall as uninstall,
    )
    from allotment.capture import (
        CaptureMode as CaptureMode,
        Graph as Graph,
        ScopedCapture as ScopedCapture,
        capture_begin as capture_begin,
        capture_end as capture_end,
        capture_launch as capture_launch,
    )
    from allotment.configuration import (
        configure as configure,
        plugin_options as plugin_options,
    )
    from allotment.copying import (
        array as array,
        clone as clone,
        copy as copy,
    )
    from allotment.device import (
        Device as Device,
        ScopedDevice as ScopedDevice,
        get_cuda_device as get_cuda_device,
        get_cuda_device_count as get_cuda_device_count,
        get_cuda_devices as get_cuda_devices,
        get_device as get_device,
        get_devices as get_devices,
        get_preferred_device as get_preferred_device,
        is_cpu_available as is_cpu_available,
        is_cuda_available as is_cuda_available,
        is_device_available as is_device_available,
        set_device as set_device,
        synchronize as synchronize,
        synchronize_device as synchronize_device,
    )
    from allotment.dtypes import (
        float16 as float16,
        float32 as float32,
        float64 as float64,
        int8 as int8,
        int16 as int16,
        int32 as int32,
        int64 as int64,
        uint8 as uint8,
        uint16 as uint16,
        uint32 as uint32,
        uint64 as uint64,
    )
    from allotment.errors import (
        AccessError as AccessError,
        AccessWarning as AccessWarning,
        AllocatorContractError as AllocatorContractError,
        AllotmentError as AllotmentError,
        AllotmentWarning as AllotmentWarning,
        BridgeError as BridgeError,
        CaptureError as CaptureError,
        ClosedError as ClosedError,
        ConfigError as ConfigError,
        ConfigWarning as ConfigWarning,
        DeviceNotFoundError as DeviceNotFoundError,
        ForkedProcessError as ForkedProcessError,
        FreeFailedWarning as FreeFailedWarning,
        GuardError as GuardError,
        InvalidPointerError as InvalidPointerError,
        LeakWarning as LeakWarning,
        ObserverError as ObserverError,
        ObserverWarning as ObserverWarning,
        OutOfBoundsError as OutOfBoundsError,
        OutOfMemoryError as OutOfMemoryError,
        PlatformError as PlatformError,
        PlatformUnavailableError as PlatformUnavailableError,
        PluginConflictError as PluginConflictError,
        PluginDisabledError as PluginDisabledError,
        PluginError as PluginError,
        PluginIncompatibleError as PluginIncompatibleError,
        PluginLoadError as PluginLoadError,
        PluginUnavailableError as PluginUnavailableError,
        ServingError as ServingError,
        ShuttingDownError as ShuttingDownError,
        SizeMismatchError as SizeMismatchError,
        TraceError as TraceError,
        UnknownAllocatorError as UnknownAllocatorError,
        UnsupportedError as UnsupportedError,
        UseAfterFreeError as UseAfterFreeError,
    )
    from allotment.factories import (
        empty as empty,
        empty_like as empty_like,
        full as full,
        full_like as full_like,
        ones as ones,
        ones_like as ones_like,
        zeros as zeros,
        zeros_like as zeros_like,
    )
    from allotment.foreign import (
        from_pointer as from_pointer,
    )
    from allotment.grants import (
        ScopedMempoolAccess as ScopedMempoolAccess,
        ScopedPeerAccess as ScopedPeerAccess,
        is_mempool_access_enabled as is_mempool_access_enabled,
        is_mempool_access_supported as is_mempool_access_supported,
        is_peer_access_enabled as is_peer_access_enabled,
        is_peer_access_supported as is_peer_access_supported,
        set_mempool_access_enabled as set_mempool_access_enabled,
        set_peer_access_enabled as set_peer_access_enabled,
    )
    from allotment.guides import (
        utils as utils,
    )
    from allotment.interchange import (
        asarray as asarray,
        from_dlpack as from_dlpack,
        from_numpy as from_numpy,
    )
    from allotment.ipc import (
        from_ipc_handle as from_ipc_handle,
    )
    from allotment.labels import (
        label as label,
    )
    from allotment.launching import (
        KernelAdapter as KernelAdapter,
        LaunchRequest as LaunchRequest,
        launch as launch,
        launch_dim as launch_dim,
        register_kernel_adapter as register_kernel_adapter,
    )
    from allotment.layers.accounting import (
        AccountedAllocator as AccountedAllocator,
    )
    from allotment.layers.holder import (
        Holder as Holder,
        LiveBlock as LiveBlock,
    )
    from allotment.leaks import (
        check_guards as check_guards,
        expect_no_leaks as expect_no_leaks,
        live_blocks as live_blocks,
        memory_holders as memory_holders,
    )
    from allotment.measurement import (
        Measurement as Measurement,
        MemoryCount as MemoryCount,
        ScopedMeasurement as ScopedMeasurement,
        measure as measure,
    )
    from allotment.memory_kind import (
        MemoryKind as MemoryKind,
    )
    from allotment.memory_use import (
        clear_cache as clear_cache,
        get_active_memory as get_active_memory,
        get_cache_limit as get_cache_limit,
        get_cache_memory as get_cache_memory,
        get_memory_limit as get_memory_limit,
        get_peak_memory as get_peak_memory,
        reset_peak_memory as reset_peak_memory,
        set_cache_limit as set_cache_limit,
        set_memory_limit as set_memory_limit,
    )
    from allotment.platform import (
        MemoryAdvice as MemoryAdvice,
        Platform as Platform,
        PoolAccess as PoolAccess,
        PoolAttribute as PoolAttribute,
    )
    from allotment.pools import (
        get_mempool_release_threshold as get_mempool_release_threshold,
        get_mempool_used_mem_current as get_mempool_used_mem_current,
        get_mempool_used_mem_high as get_mempool_used_mem_high,
        set_mempool_release_threshold as set_mempool_release_threshold,
        trim_mempool as trim_mempool,
    )
    from allotment.recording import (
        Recording as Recording,
        record as record,
    )
    from allotment.registry import (
        PluginKind as PluginKind,
        PluginOrigin as PluginOrigin,
        PluginRecord as PluginRecord,
        PluginStatus as PluginStatus,
        list_allocators as list_allocators,
        list_plugins as list_plugins,
        refresh_plugins as refresh_plugins,
        register_allocator as register_allocator,
    )
    from allotment.report import (
        startup_report as startup_report,
    )
    from allotment.selection import (
        ScopedAllocator as ScopedAllocator,
        ScopedMempool as ScopedMempool,
        get_allocator as get_allocator,
        get_device_allocator as get_device_allocator,
        is_mempool_enabled as is_mempool_enabled,
        is_mempool_supported as is_mempool_supported,
        set_cuda_allocator as set_cuda_allocator,
        set_device_allocator as set_device_allocator,
        set_mempool_enabled as set_mempool_enabled,
    )
    from allotment.serving import (
        MetricsServer as MetricsServer,
        StatusServer as StatusServer,
        serve_metrics as serve_metrics,
        serve_status as serve_status,
        watch as watch,
    )
    from allotment.session import (
        init as init,
        simulate as simulate,
    )
    from allotment.statistics import (
        memory_stats as memory_stats,
    )
    from allotment.stream import (
        ScopedStream as ScopedStream,
        Stream as Stream,
        get_stream as get_stream,
        set_stream as set_stream,
        synchronize_stream as synchronize_stream,
    )
    from allotment.summary import (
        MemoryRow as MemoryRow,
        MemorySummary as MemorySummary,
        memory_summary as memory_summary,
    )
    from allotment.trace import (
        memory_snapshot as memory_snapshot,
    )
    from allotment.units import (
        MemoryAmount as MemoryAmount,
    )
    from allotment.configuration import settings as config  # noqa: F401 - exported by __getattr__

_HOMES = {
    "_array": "Array",
    "access": "AccessReport Verdict can_access explain_access reset_access_warnings",
    "allocator": """
        API_VERSION AccountAnswers Allocator AllocatorPlugin AllocatorTraits Availability CClient CFunctions IpcKind
        KeepsAccounts OwnAccounts PrivatePool Reservation Statistics SupportsCFunctions SupportsClose
        SupportsLargestFree SupportsLimits SupportsPeers SupportsPool SupportsPrivatePools SupportsReservation
        SupportsStreams SupportsTrim SupportsUse
    """,
    "bridges": "Bridge BridgeState BridgeStatus Delivery install status uninstall",
    "capture": "CaptureMode Graph ScopedCapture capture_begin capture_end capture_launch",
    "configuration": "configure plugin_options",
    "copying": "array clone copy",
    "device": """
        Device ScopedDevice get_cuda_device get_cuda_device_count get_cuda_devices get_device get_devices
        get_preferred_device is_cpu_available is_cuda_available is_device_available set_device synchronize
        synchronize_device
    """,
    "dtypes": "float16 float32 float64 int16 int32 int64 int8 uint16 uint32 uint64 uint8",
    "errors": """
        AccessError AccessWarning AllocatorContractError AllotmentError AllotmentWarning BridgeError CaptureError
        ClosedError ConfigError ConfigWarning DeviceNotFoundError ForkedProcessError FreeFailedWarning
        GuardError InvalidPointerError LeakWarning ObserverError ObserverWarning OutOfBoundsError
        OutOfMemoryError PlatformError PlatformUnavailableError PluginConflictError PluginDisabledError
        PluginError PluginIncompatibleError PluginLoadError PluginUnavailableError ServingError ShuttingDownError
        SizeMismatchError TraceError UnknownAllocatorError UnsupportedError UseAfterFreeError
    """,
    "factories": "empty empty_like full full_like ones ones_like zeros zeros_like",
    "foreign": "from_pointer",
    "grants": """
        ScopedMempoolAccess ScopedPeerAccess is_mempool_access_enabled is_mempool_access_supported
        is_peer_access_enabled is_peer_access_supported set_mempool_access_enabled set_peer_access_enabled
    """,
    "guides": "utils",
    "interchange": "asarray from_dlpack from_numpy",
    "ipc": "from_ipc_handle",
    "labels": "label",
    "launching": "KernelAdapter LaunchRequest launch launch_dim register_kernel_adapter",
    "layers.accounting": "AccountedAllocator",
    "layers.holder": "Holder LiveBlock",
    "leaks": "check_guards expect_no_leaks live_blocks memory_holders",
    "measurement": "Measurement MemoryCount ScopedMeasurement measure",
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
    "recording": "Recording record",
    "registry": """
        PluginKind PluginOrigin PluginRecord PluginStatus list_allocators list_plugins refresh_plugins
        register_allocator
    """,
    "report": "startup_report",
    "selection": """
        ScopedAllocator ScopedMempool get_allocator get_device_allocator is_mempool_enabled
        is_mempool_supported set_cuda_allocator set_device_allocator set_mempool_enabled
    """,
    "serving": "MetricsServer StatusServer serve_metrics serve_status watch",
    "session": "init simulate",
    "statistics": "memory_stats",
    "stream": "ScopedStream Stream get_stream set_stream synchronize_stream",
    "summary": "MemoryRow MemorySummary memory_summary",
    "trace": "memory_snapshot",
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
