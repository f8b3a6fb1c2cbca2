"""What every platform offers: the only door to the hardware.

Names and meanings are those of the CUDA runtime, because that is what every implementation models. A call that fails
raises `PlatformError` with CUDA's own name for the error, except the calls marked *raw*: these are on the hot path, may
raise the binding's own exception, and `Platform.error_from` turns that into a `PlatformError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np

    from allotment.errors import PlatformError
    from allotment.platform._values import (
        CaptureMode,
        CaptureStatus,
        DeviceProperties,
        GraphMemory,
        MemoryAdvice,
        MemoryInfo,
        PointerAttributes,
        PoolAccess,
        PoolAttribute,
        StridedMemory,
    )


@runtime_checkable
class Platform(Protocol):
    """The narrow seam that everything above uses. Ordinals, handles and addresses are plain integers."""

    name: str
    """What it is called where platforms are chosen: ``cuda``, ``host``, ``sim:2xh200``."""
    description: str
    """What it is, in one line for the startup report."""
    why: str
    """Why it was chosen."""

    def device_count(self) -> int:
        """Return the number of CUDA devices. Opens no context."""
        ...

    def device_properties(self, ordinal: int) -> DeviceProperties:
        """Return what a device is and can do. Opens no context."""
        ...

    def versions(self) -> tuple[int, int]:
        """Return the CUDA versions of runtime and driver, as 1000 × major + 10 × minor; zeros without CUDA."""
        ...

    def has_context(self, ordinal: int) -> bool:
        """Return whether a device's primary context is open. Opens none."""
        ...

    def memory_info(self, ordinal: int) -> MemoryInfo:
        """Return a device's free and total memory. Opens its context."""
        ...

    def current_device(self) -> int:
        """Return the ordinal of the calling thread's current device. *Raw*."""
        ...

    def set_current_device(self, ordinal: int, /) -> None:
        """Make a device current in the calling thread. *Raw*."""
        ...

    def switch_device(self, ordinal: int, /) -> Any:
        """Make a device current in the calling thread for a while; return what `restore_context` takes. *Raw*.

        Unlike `set_current_device` it can be undone exactly: ``cudaSetDevice`` back to a device that had only been
        current by default would open that device's context.
        """
        ...

    def restore_context(self, before: Any, /) -> None:
        """Undo `switch_device` in the same thread, which has no context again if it had none. *Raw*."""
        ...

    def synchronize_device(self, ordinal: int) -> None:
        """Wait for all work on a device."""
        ...

    def error_from(self, exception: BaseException) -> PlatformError | None:
        """Return a raw call's exception as an error of ours; ``None`` if it is not from the platform."""
        ...

    # Streams and events

    def create_stream(self, ordinal: int, *, non_blocking: bool, priority: int) -> int:
        """Return a new stream of a device."""
        ...

    def destroy_stream(self, stream: int) -> None:
        """Destroy a stream; work that it holds still runs."""
        ...

    def synchronize_stream(self, stream: int, ordinal: int) -> None:
        """Wait for the work of a stream; 0 is the device's null stream."""
        ...

    def stream_is_done(self, stream: int, ordinal: int) -> bool:
        """Return whether a stream has no unfinished work."""
        ...

    def wait_for_stream(self, waiting: int, awaited: int, waiting_ordinal: int, awaited_ordinal: int) -> None:
        """Make later work of one stream wait for the present work of another, without waiting here."""
        ...

    def wait_for_event(self, event: int, stream: int, ordinal: int) -> None:
        """Make later work of a stream wait for an event's mark, without waiting here."""
        ...

    def create_event(self, ordinal: int) -> int:
        """Return a new event without timing."""
        ...

    def destroy_event(self, event: int) -> None:
        """Destroy an event."""
        ...

    def record_event(self, event: int, stream: int, ordinal: int) -> None:
        """Mark a stream's present end with an event."""
        ...

    def event_is_done(self, event: int) -> bool:
        """Return whether the work before an event's mark is done."""
        ...

    def synchronize_event(self, event: int) -> None:
        """Wait for an event's mark."""
        ...

    # Allocation

    def malloc(self, nbytes: int, /) -> int:
        """Return new memory of the current device. *Raw*."""
        ...

    def free(self, ptr: int, /) -> None:
        """Free memory of malloc or malloc_managed. *Raw*."""
        ...

    def malloc_managed(self, nbytes: int, /) -> int:
        """Return new managed memory, made under the current device. *Raw*."""
        ...

    def host_alloc(self, nbytes: int, /) -> int:
        """Return new page-locked host memory, portable across devices. *Raw*."""
        ...

    def host_free(self, ptr: int, /) -> None:
        """Free memory of host_alloc. *Raw*."""
        ...

    def malloc_from_pool(self, nbytes: int, pool: int, stream: int, /) -> int:
        """Return memory of a pool in the order of a stream. *Raw*."""
        ...

    def free_async(self, ptr: int, stream: int, /) -> None:
        """Free memory in the order of a stream. *Raw*."""
        ...

    # Pools

    def create_pool(self, ordinal: int) -> int:
        """Return a new pool of a device."""
        ...

    def destroy_pool(self, pool: int) -> None:
        """Destroy a pool; memory still live stays valid until it is freed."""
        ...

    def default_pool(self, ordinal: int) -> int:
        """Return the device's default pool, which all libraries of the process share."""
        ...

    def pool_attribute(self, pool: int, attribute: PoolAttribute) -> int:
        """Return an attribute of a pool."""
        ...

    def set_pool_attribute(self, pool: int, attribute: PoolAttribute, value: int) -> None:
        """Set an attribute of a pool."""
        ...

    def trim_pool(self, pool: int, keep_bytes: int) -> None:
        """Give idle memory of a pool back until at most ``keep_bytes`` are reserved."""
        ...

    def pool_access(self, pool: int, ordinal: int) -> PoolAccess:
        """Return whether a device may touch a pool's memory."""
        ...

    def set_pool_access(self, pool: int, ordinal: int, access: PoolAccess) -> None:
        """Let a device touch a pool's memory, or not."""
        ...

    # Virtual memory
    #
    # Addresses are reserved, physical memory is made, and one is mapped behind the other. Sizes and addresses are
    # multiples of `mapping_granularity`. No call waits for work, needs a context or is ruled out by a capture, and
    # peer access neither helps nor is needed: memory is touched by whom `set_mapping_access` lets.

    def address_range(self, nbytes: int) -> int:
        """Reserve device addresses with nothing behind them, and return the first."""
        ...

    def free_address_range(self, ptr: int, nbytes: int) -> None:
        """Give a whole reservation back, behind which nothing is mapped."""
        ...

    def create_physical(self, ordinal: int, nbytes: int) -> int:
        """Return a handle of new physical memory of a device, which has no address."""
        ...

    def release_physical(self, handle: int) -> None:
        """Release a handle of physical memory, which lives until it is mapped nowhere."""
        ...

    def map_physical(self, ptr: int, nbytes: int, handle: int) -> None:
        """Put physical memory behind reserved addresses. No device may touch it yet, not even its own."""
        ...

    def unmap_physical(self, ptr: int, nbytes: int) -> None:
        """Take what is mapped in a range away: whole mappings without a gap. Work that still uses it faults."""
        ...

    def set_mapping_access(self, ptr: int, nbytes: int, ordinal: int, access: PoolAccess) -> None:
        """Let a device touch what is mapped in a range, from a mapping to a mapping, or not."""
        ...

    def mapping_granularity(self, ordinal: int) -> int:
        """Return what addresses and sizes of a device's mappings are multiples of, in bytes. Opens no context."""
        ...

    # What compiled code asks for

    def driver_entry_point(self, name: str) -> int:
        """Return the address of a function of the CUDA driver, such as ``cuMemMap``; 0 where there is no driver."""
        ...

    def driver_error(self, call: str, result: int) -> PlatformError:
        """Return the error for a ``CUresult`` that compiled code got from a function of the driver."""
        ...

    # Peers

    def can_access_peer(self, ordinal: int, peer: int) -> bool:
        """Return whether the hardware lets device ``ordinal`` touch memory of ``peer``. Opens no context."""
        ...

    def enable_peer_access(self, ordinal: int, peer: int) -> None:
        """Let device ``ordinal`` touch cudaMalloc memory of ``peer``."""
        ...

    def disable_peer_access(self, ordinal: int, peer: int) -> None:
        """Undo `enable_peer_access`."""
        ...

    # Capture and graphs

    def begin_capture(self, stream: int, ordinal: int, mode: CaptureMode) -> None:
        """Let later work of a stream become part of a graph instead of being done."""
        ...

    def end_capture(self, stream: int, ordinal: int) -> int:
        """Return the graph of what a stream captured. The stream works again, even if this is refused.

        What a capture met shows here: ``cudaErrorStreamCaptureInvalidated`` after a call that it does not bear,
        ``cudaErrorStreamCaptureUnjoined`` where a stream that joined did not come back,
        ``cudaErrorStreamCaptureWrongThread`` in a thread other than the one that began, unless the mode is relaxed.
        """
        ...

    def capture_status(self, stream: int, ordinal: int) -> CaptureStatus:
        """Return whether a stream is captured. Ends no capture.

        The null stream is refused with ``cudaErrorStreamCaptureImplicit`` while a blocking stream is captured.
        """
        ...

    def exchange_capture_mode(self, mode: CaptureMode) -> CaptureMode:
        """Set which captures the calling thread's own calls may end, and return what was set before.

        With `CaptureMode.RELAXED`, calls that are not safe work while other streams are captured.
        """
        ...

    def instantiate_graph(self, graph: int) -> int:
        """Return a graph made executable. Each launch first frees memory that an earlier one left allocated."""
        ...

    def launch_graph(self, executable: int, stream: int, ordinal: int) -> None:
        """Do a graph's work in the order of a stream."""
        ...

    def destroy_graph(self, graph: int) -> None:
        """Destroy a graph; its executables stay, and so does memory that they allocated."""
        ...

    def destroy_graph_executable(self, executable: int) -> None:
        """Destroy an executable graph; memory that it allocated stays until it is freed."""
        ...

    def graph_memory(self, ordinal: int) -> GraphMemory:
        """Return what graphs hold of a device's memory."""
        ...

    def trim_graph_memory(self, ordinal: int) -> None:
        """Give back what is mapped for graphs and not in use."""
        ...

    # Contents

    def copy(self, dst: int, src: int, nbytes: int, stream: int, ordinal: int) -> None:
        """Copy bytes between any two kinds of memory in the order of a stream of device ``ordinal``.

        Host memory that is not page-locked is read before the call returns and written when the stream gets there.
        """
        ...

    def copy_peer(self, dst: int, dst_ordinal: int, src: int, src_ordinal: int, nbytes: int, stream: int) -> None:
        """Copy bytes between two devices in the order of a stream, with or without access between them."""
        ...

    def copy_elements(self, dst: StridedMemory, src: StridedMemory, stream: int, ordinal: int) -> None:
        """Copy elements of equal shape and type that device ``ordinal`` can reach, in the order of a stream."""
        ...

    def fill(self, ptr: int, byte: int, nbytes: int, stream: int, ordinal: int) -> None:
        """Set bytes of memory that device ``ordinal`` can reach, in the order of a stream."""
        ...

    def fill_elements(self, dst: StridedMemory, value: np.generic, stream: int, ordinal: int) -> None:
        """Set elements of memory that device ``ordinal`` can reach, in the order of a stream."""
        ...

    # Managed memory

    def advise(self, ptr: int, nbytes: int, advice: MemoryAdvice, location: int) -> None:
        """Give advice about a range of managed memory and a place: an ordinal or `HOST_LOCATION`."""
        ...

    def prefetch(self, ptr: int, nbytes: int, location: int, stream: int, ordinal: int) -> None:
        """Move a range of managed memory to a place in the order of a stream of device ``ordinal``."""
        ...

    # Pointers

    def pointer_attributes(self, ptr: int) -> PointerAttributes:
        """Return what is known about an address, as the current device sees it."""
        ...

    # Memory of other processes

    def ipc_handle(self, ptr: int) -> bytes:
        """Return the 64 bytes by which another process may open the allocation around an address.

        The handle names the whole allocation, not the address in it. Memory that is not from `malloc` is refused with
        ``cudaErrorInvalidValue``.
        """
        ...

    def open_ipc_handle(self, handle: bytes) -> int:
        """Return the address, for the current device, of memory that another process allocated.

        A handle of this process's own is refused with ``cudaErrorDeviceUninitialized``.
        """
        ...

    def close_ipc_handle(self, ptr: int) -> None:
        """Undo `open_ipc_handle`."""
        ...


@runtime_checkable
class CountsCalls(Protocol):
    """A platform that knows how often it was called."""

    @property
    def calls_made(self) -> int:
        """The number of all calls so far, without those that ask for the current device or set it."""
        ...
