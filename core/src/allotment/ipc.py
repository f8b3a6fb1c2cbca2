"""Device memory shared between processes, by handles that travel as bytes.

A handle is CUDA's own, the first 64 bytes, which name a whole allocation, and after it where in the allocation the
array begins, its size in bytes, both as 64-bit little-endian integers, and 8 bytes that name the exporting process.
The first 64 bytes alone are a handle too, as other libraries make them: it opens at the beginning of the allocation.

Who exports must keep the array alive until everybody has let go of it: CUDA does not count users across processes. Nor
does it order the work of two processes: synchronise before a handle, or word that contents changed, is handed on.
"""

from __future__ import annotations

from secrets import token_bytes
from struct import Struct
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary, WeakValueDictionary

from allotment import _process
from allotment._foreign_memory import report_lost_block
from allotment._grants import on_device
from allotment._locks import RenewedLock
from allotment.allocator import IpcKind
from allotment.device import find_device
from allotment.errors import PlatformError, UnsupportedError
from allotment.foreign import from_pointer
from allotment.memory_kind import MemoryKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment._array import Array
    from allotment._layout import Shape, ShapeLike
    from allotment.device import Device, DeviceLike, DeviceRegistry

CUDA_HANDLE_SIZE: Final = 64
"""CUDA_IPC_HANDLE_SIZE: the bytes of a handle that are CUDA's own."""
_PLACE: Final = Struct("<QQ8s")
HANDLE_SIZE: Final = CUDA_HANDLE_SIZE + _PLACE.size
"""The bytes of a handle that `Array.ipc_handle` returns."""

_ON_HOST: Final = "Share host memory with multiprocessing.shared_memory, and wrap it with from_numpy."
_ON_DEVICE: Final = "Memory of cudaMalloc can be shared: allocate the array with memory pools disabled (ScopedMempool)."
_WITHOUT_HANDLE: Final = {
    MemoryKind.HOST: f"it is ordinary memory of the host. {_ON_HOST}",
    MemoryKind.PINNED: f"it is page-locked memory of the host. {_ON_HOST}",
    MemoryKind.CUDA_MANAGED: f"CUDA has no handles for managed memory. {_ON_DEVICE}",
    MemoryKind.CUDA_MEMPOOL: f"CUDA has no handles for memory of a memory pool. {_ON_DEVICE}",
}
"""Why memory of a kind cannot be shared, and what can."""


class _Mapping:
    """Memory of another process, mapped until the last array over it is gone."""

    __slots__ = ("__weakref__", "device", "nbytes", "ptr")

    def __init__(self, device: Device, ptr: int, nbytes: int) -> None:
        self.device, self.ptr, self.nbytes = device, ptr, nbytes

    def __del__(self, is_running: Callable[[], bool] = _process.is_running) -> None:
        if not is_running() or self.device.is_retired:
            return
        device, ptr = self.device, self.ptr
        try:
            device.captures.postpone(lambda: _unmap(device, ptr))
        except Exception as error:  # noqa: BLE001 - nothing leaves a finaliser
            report_lost_block(ptr, self.nbytes, "the process that shares them", error)


class _Exchange:
    """What the devices of one platform share with other processes.

    Attributes
    ----------
    token : bytes
        What names this process in the handles that it makes.
    """

    def __init__(self) -> None:
        self.token = token_bytes(8)
        self._lock = RenewedLock()
        self._mappings: WeakValueDictionary[tuple[Device, bytes], _Mapping] = WeakValueDictionary()

    def open(self, handle: bytes, device: Device) -> _Mapping:
        """Return the memory of a handle, which is mapped once however often it is asked for."""
        with self._lock():
            found = self._mappings.get((device, handle))
            if found is None:
                found = self._mappings[device, handle] = _map(handle, device)
            return found


_exchanges: WeakKeyDictionary[DeviceRegistry, _Exchange] = WeakKeyDictionary()


def _exchange_of(device: Device) -> _Exchange:
    found = _exchanges.get(device.registry)
    return found if found is not None else _exchanges.setdefault(device.registry, _Exchange())


def export_handle(array: Array) -> bytes:
    """Return a handle by which another process opens an array's memory; see `Array.ipc_handle`."""
    _require_exportable(array)
    device = array.device
    attributes = on_device(device, device.platform.pointer_attributes, array.ptr)
    handle: bytes = on_device(device, device.platform.ipc_handle, array.ptr)
    place = _PLACE.pack(array.ptr - (attributes.base or array.ptr), array.nbytes, _exchange_of(device).token)
    return handle + place


def _require_exportable(array: Array) -> None:
    """Raise `UnsupportedError` for an array that cannot be shared, with the reason that is its own."""
    if problem := _problem(array):
        raise UnsupportedError(f"{array!r} cannot be shared with another process: {problem}")


def _problem(array: Array) -> str | None:
    account = array.account
    if array.memory_kind in _WITHOUT_HANDLE:
        return _WITHOUT_HANDLE[array.memory_kind]
    if array.device.is_ipc_supported is False:
        return f"device {array.device.alias!r} does not support it."
    if array.root is not array:
        return "it is a view. Share the array that it was taken from, and take the view there."
    if account is None:
        return "its memory belongs to another owner, who alone can share it."
    if account.traits.ipc is not IpcKind.LEGACY:
        return f"allocator {account.name!r} does not say that its memory has handles (traits.ipc). {_ON_DEVICE}"
    return None if array.ptr else "it has no elements."


def from_ipc_handle(
    handle: bytes,
    dtype: Any = float,
    shape: ShapeLike = 0,
    strides: Shape | None = None,
    device: DeviceLike = None,
) -> Array:
    """Return an array over memory of another process. The last array over it unmaps it, once the device is idle.

    Parameters
    ----------
    handle
        What `Array.ipc_handle` returned there, or the 64 bytes of ``cudaIpcGetMemHandle``.
    dtype, shape
        The element type and the extents.
    strides
        The step in bytes of each dimension; those of C order if not given.
    device
        The device that the memory is on; the default device if not given.

    Raises
    ------
    UnsupportedError
        If the device cannot open handles, or the handle was made by this very process.
    ValueError
        If the bytes are no handle, or the array would reach past the memory.
    PlatformError
        If the driver cannot open it: the memory is gone, or on another device.
    """
    where = find_device(device)
    _require_importable(where)
    handle, offset, nbytes, token = _parts_of(handle)
    exchange = _exchange_of(where)
    if token == exchange.token:
        raise UnsupportedError("the handle was made by this process, which has the array already: use that")
    mapping = exchange.open(handle, where)
    capacity = mapping.nbytes - offset if nbytes is None else nbytes
    return from_pointer(mapping.ptr + offset, shape, dtype, where, strides=strides, capacity=capacity, owner=mapping)


def _require_importable(device: Device) -> None:
    if device.is_cpu:
        raise UnsupportedError(f"handles are for memory of CUDA devices. {_ON_HOST}")
    if device.is_ipc_supported is False:
        raise UnsupportedError(f"device {device.alias!r} cannot open memory of other processes")
    device.captures.refuse_unsafe("opening memory of another process")


def _parts_of(handle: bytes) -> tuple[bytes, int, int | None, bytes]:
    """Return CUDA's handle, where the array begins, its size if that is said, and who made it."""
    raw = bytes(handle)
    if len(raw) == CUDA_HANDLE_SIZE:
        return raw, 0, None, b""
    if len(raw) != HANDLE_SIZE:
        raise ValueError(f"a handle has {HANDLE_SIZE} bytes, or CUDA's {CUDA_HANDLE_SIZE}, not {len(raw)}")
    return raw[:CUDA_HANDLE_SIZE], *_PLACE.unpack(raw[CUDA_HANDLE_SIZE:])


def _map(handle: bytes, device: Device) -> _Mapping:
    try:
        ptr = on_device(device, device.platform.open_ipc_handle, handle)
    except PlatformError as error:
        error.add_note(
            "The handle could not be opened: the memory may be gone, on another device than "
            f"{device.alias!r}, or of this very process."
        )
        raise
    nbytes = on_device(device, device.platform.pointer_attributes, ptr).nbytes
    return _Mapping(device, ptr, nbytes)


def _unmap(device: Device, ptr: int) -> None:
    """Unmap memory when the device's work is done, some of which may use it."""
    device.synchronize()
    on_device(device, device.platform.close_ipc_handle, ptr)
