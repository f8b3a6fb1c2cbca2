"""The platform of a machine without CUDA: the host alone. It is always there."""

# ruff: noqa: ARG002 - the protocol has arguments that mean nothing here

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from allotment.errors import PlatformError, UnsupportedError
from allotment.memory_kind import MemoryKind
from allotment.platform._values import HOST_LOCATION, PointerAttributes

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment.platform._values import StridedMemory


def _needs_cuda(call: str) -> Callable[..., NoReturn]:
    """Return the method that stands where a CUDA platform has ``call``."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise UnsupportedError(
            f"{call} needs a CUDA device, and the host platform has none. "
            'Simulated devices can be had anywhere: with allotment.simulate("2xh200"): ...'
        )

    refuse.__name__ = call
    refuse.__doc__ = "Raise `UnsupportedError`."
    return refuse


class HostPlatform:
    """CPU only.

    Copies and fills work between host addresses, at once: there are no streams, so a stream named is ignored. All that
    needs a CUDA device raises `UnsupportedError`.

    Parameters
    ----------
    why
        Why this platform was chosen.
    """

    name = "host"
    description = "CPU only"

    def __init__(self, why: str = "it was made directly") -> None:
        self.why = why

    def device_count(self) -> int:
        """Return 0."""
        return 0

    def versions(self) -> tuple[int, int]:
        """Return zeros: there is no CUDA."""
        return 0, 0

    def error_from(self, exception: BaseException) -> PlatformError | None:
        """Return ``None``: no exception comes from this platform."""
        return None

    def pointer_attributes(self, ptr: int) -> PointerAttributes:
        """Return that the address is unknown, as CUDA does for pageable memory."""
        return PointerAttributes(kind=MemoryKind.UNKNOWN, device=HOST_LOCATION, accessible=False)

    def copy(self, dst: int, src: int, nbytes: int, stream: int, ordinal: int) -> None:
        """Copy bytes; the ranges may overlap."""
        ctypes.memmove(dst, src, nbytes)

    def fill(self, ptr: int, byte: int, nbytes: int, stream: int, ordinal: int) -> None:
        """Set bytes."""
        ctypes.memset(ptr, byte, nbytes)

    def copy_elements(self, dst: StridedMemory, src: StridedMemory, stream: int, ordinal: int) -> None:
        """Copy elements of equal shape and type; they may overlap."""
        if dst.dtype.itemsize:
            _elements(dst)[...] = _elements(src)

    def fill_elements(self, dst: StridedMemory, value: np.generic, stream: int, ordinal: int) -> None:
        """Set elements."""
        if dst.dtype.itemsize:
            pattern = np.asarray(value, dtype=dst.dtype).tobytes()
            _elements(dst)[...] = np.frombuffer(pattern, dtype=f"V{len(pattern)}")[0]

    def driver_entry_point(self, name: str) -> int:
        """Return 0: there is no driver."""
        return 0

    def driver_error(self, call: str, result: int) -> PlatformError:
        """Return the error by its number: there is no driver that knows its name."""
        return PlatformError(call=call, code=f"CUresult {result}")

    device_properties = _needs_cuda("device_properties")
    has_context = _needs_cuda("has_context")
    memory_info = _needs_cuda("memory_info")
    current_device = _needs_cuda("current_device")
    set_current_device = _needs_cuda("set_current_device")
    switch_device = _needs_cuda("switch_device")
    restore_context = _needs_cuda("restore_context")
    synchronize_device = _needs_cuda("synchronize_device")

    create_stream = _needs_cuda("create_stream")
    destroy_stream = _needs_cuda("destroy_stream")
    synchronize_stream = _needs_cuda("synchronize_stream")
    stream_is_done = _needs_cuda("stream_is_done")
    wait_for_stream = _needs_cuda("wait_for_stream")
    wait_for_event = _needs_cuda("wait_for_event")
    create_event = _needs_cuda("create_event")
    destroy_event = _needs_cuda("destroy_event")
    record_event = _needs_cuda("record_event")
    event_is_done = _needs_cuda("event_is_done")
    synchronize_event = _needs_cuda("synchronize_event")

    malloc = _needs_cuda("malloc")
    free = _needs_cuda("free")
    malloc_managed = _needs_cuda("malloc_managed")
    host_alloc = _needs_cuda("host_alloc")
    host_free = _needs_cuda("host_free")
    malloc_from_pool = _needs_cuda("malloc_from_pool")
    free_async = _needs_cuda("free_async")

    create_pool = _needs_cuda("create_pool")
    destroy_pool = _needs_cuda("destroy_pool")
    default_pool = _needs_cuda("default_pool")
    pool_attribute = _needs_cuda("pool_attribute")
    set_pool_attribute = _needs_cuda("set_pool_attribute")
    trim_pool = _needs_cuda("trim_pool")
    pool_access = _needs_cuda("pool_access")
    set_pool_access = _needs_cuda("set_pool_access")

    begin_capture = _needs_cuda("begin_capture")
    end_capture = _needs_cuda("end_capture")
    capture_status = _needs_cuda("capture_status")
    exchange_capture_mode = _needs_cuda("exchange_capture_mode")
    instantiate_graph = _needs_cuda("instantiate_graph")
    launch_graph = _needs_cuda("launch_graph")
    destroy_graph = _needs_cuda("destroy_graph")
    destroy_graph_executable = _needs_cuda("destroy_graph_executable")
    graph_memory = _needs_cuda("graph_memory")
    trim_graph_memory = _needs_cuda("trim_graph_memory")

    address_range = _needs_cuda("address_range")
    free_address_range = _needs_cuda("free_address_range")
    create_physical = _needs_cuda("create_physical")
    release_physical = _needs_cuda("release_physical")
    map_physical = _needs_cuda("map_physical")
    unmap_physical = _needs_cuda("unmap_physical")
    set_mapping_access = _needs_cuda("set_mapping_access")
    mapping_granularity = _needs_cuda("mapping_granularity")

    can_access_peer = _needs_cuda("can_access_peer")
    enable_peer_access = _needs_cuda("enable_peer_access")
    disable_peer_access = _needs_cuda("disable_peer_access")
    copy_peer = _needs_cuda("copy_peer")
    advise = _needs_cuda("advise")
    prefetch = _needs_cuda("prefetch")

    ipc_handle = _needs_cuda("ipc_handle")
    open_ipc_handle = _needs_cuda("open_ipc_handle")
    close_ipc_handle = _needs_cuda("close_ipc_handle")


class _Exported:
    """An object with the array interface, which is how NumPy takes memory by its address."""

    __slots__ = ("__array_interface__",)

    def __init__(self, memory: StridedMemory) -> None:
        self.__array_interface__: dict[str, Any] = {
            "version": 3,
            "data": (memory.ptr, False),
            "shape": memory.shape,
            "strides": memory.strides,
            "typestr": f"|V{memory.dtype.itemsize}",
        }


def _elements(memory: StridedMemory) -> np.ndarray[Any, np.dtype[np.void]]:
    """Return the elements as opaque bytes of the same size, so that every type is copied alike."""
    return np.asarray(_Exported(memory))
