"""Sharing memory with other libraries without copying: array interfaces and DLPack.

Out: an `Array` has ``__array_interface__`` on the host, ``__cuda_array_interface__`` (version 3) on CUDA devices, and
DLPack on both. In: `asarray` takes whatever has one of them, `from_dlpack` takes DLPack alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from allotment._array import Array
from allotment._dlpack import DeviceType, export_capsule, import_capsule
from allotment._graph_blocks import BlockState
from allotment._layout import element_type, is_contiguous
from allotment.device import find_device
from allotment.errors import UnsupportedError
from allotment.foreign import from_pointer
from allotment.memory_kind import MemoryKind
from allotment.stream import LEGACY_STREAM, Stream, stream_in_force

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from allotment.device import Device

_DEVICE_TYPES: Final = {
    MemoryKind.HOST: DeviceType.CPU,
    MemoryKind.PINNED: DeviceType.CUDA_HOST,
    MemoryKind.CUDA_MANAGED: DeviceType.CUDA_MANAGED,
}
"""How DLPack calls each kind of memory; everything else on a device is plain device memory."""
_MEMORY_KINDS: Final = {DeviceType.CUDA_HOST: MemoryKind.PINNED, DeviceType.CUDA_MANAGED: MemoryKind.CUDA_MANAGED}
"""The kinds of memory that a DLPack device type says; producers call page-locked memory plain host memory, too."""
_HOST: Final = (DeviceType.CPU, 0)


# ---------------------------------------------------------------------------------------------------------------------
# Array interfaces


def array_interface(array: Array) -> dict[str, Any]:
    """Return NumPy's array interface of an array on the host.

    Raises
    ------
    AttributeError
        For an array on a CUDA device, as the protocol wants it, and for elements that it cannot describe, such as
        structures with gaps: NumPy then asks for ``__array__``.
    """
    if array.device.is_cuda:
        raise AttributeError(f"an array on {array.device.alias!r} has no __array_interface__: use .numpy() to copy it")
    if array.dtype.names is not None and np.dtype(_description(array.dtype)) != array.dtype:
        raise AttributeError(f"the array interface cannot describe elements of {array.dtype}: use .numpy()")
    return _interface(array)


def cuda_array_interface(array: Array) -> dict[str, Any]:
    """Return the CUDA array interface, version 3, of an array on a CUDA device.

    ``stream`` is the stream in force, so a consumer that keeps to the protocol waits for the work queued on it.

    Raises
    ------
    AttributeError
        For an array on the host, as the protocol wants it.
    CaptureError
        For memory of a graph that was not launched yet, unless it is used in captured work.
    """
    if array.device.is_cpu:
        raise AttributeError("an array on 'cpu' has no __cuda_array_interface__")
    require_memory(array)
    stream = stream_in_force(array.device)
    # To wait for a captured stream would end the capture, so nobody is asked to.
    is_captured = array.device.captures.covering(stream) is not None
    return _interface(array) | {"stream": None if is_captured else stream.handle or LEGACY_STREAM}


def require_memory(array: Array) -> None:
    """Raise `CaptureError` for memory of a graph that was not launched, unless work on it is captured."""
    account = array.account
    if account is None or not account.graph_blocks:
        return
    block = account.graph_blocks.find(array.root.ptr)
    if block is not None and not (block.state is BlockState.PROMISED and _is_captured(array.device)):
        block.require_memory()


def _is_captured(device: Device) -> bool:
    return device.is_cuda and device.captures.covering(stream_in_force(device)) is not None


def _interface(array: Array) -> dict[str, Any]:
    interface: dict[str, Any] = {
        "shape": array.shape,
        "typestr": array.dtype.str,
        "data": (array.ptr, array.readonly),
        "strides": None if array.is_contiguous else array.strides,
        "version": 3,
    }
    if description := _description(array.dtype):
        interface["descr"] = description
    return interface


def _description(dtype: np.dtype[np.generic]) -> list[Any] | None:
    """Return the fields of a structure, gaps included; ``None`` for plain types and for fields that overlap."""
    try:
        return dtype.descr if dtype.names is not None else None
    except ValueError:
        return None


def numpy_over(array: Array) -> NDArray[Any]:
    """Return a NumPy array over the memory, which it keeps alive. Over memory of a device it must not be read."""
    found = np.asarray(_Exported(array))
    return found if found.dtype == array.dtype else found.view(array.dtype)


class _Exported:
    """What NumPy reads memory from; its array keeps this, and so the memory, alive."""

    __slots__ = ("__array_interface__", "source")

    def __init__(self, source: Array) -> None:
        self.source = source
        self.__array_interface__ = _interface(source)


def from_numpy(source: NDArray[Any]) -> Array:
    """Return an array on ``cpu`` that shares the memory of a NumPy array and keeps it alive.

    Raises
    ------
    TypeError
        If its elements are Python objects or have no size.
    """
    element = element_type(source.dtype)
    strides = None if source.flags.c_contiguous else source.strides
    ptr = source.__array_interface__["data"][0] if source.size else 0
    readonly = not source.flags.writeable
    return Array(ptr, source.shape, element, find_device("cpu"), owner=source, strides=strides, readonly=readonly)


def is_foreign_array(candidate: object) -> bool:
    """Return whether an object offers its memory by the CUDA array interface or DLPack. NumPy arrays do not count."""
    if isinstance(candidate, np.ndarray | np.generic):
        return False
    return hasattr(candidate, "__cuda_array_interface__") or hasattr(candidate, "__dlpack__")


def asarray(source: Any) -> Array:
    """Return an array that shares the memory of an object of another library, and keeps the object alive.

    Parameters
    ----------
    source
        An object with ``__cuda_array_interface__``, DLPack or ``__array_interface__``; the first that it has is used.
        An array of this library is returned as it is.

    Raises
    ------
    TypeError
        If it has none of them.
    ValueError
        If what it says cannot be: a null pointer with a size, a mask.
    """
    if isinstance(source, Array):
        return source
    if isinstance(source, np.ndarray):
        return from_numpy(source)
    interface = getattr(source, "__cuda_array_interface__", None)
    if interface is not None and (interface.get("version", 0) >= _WITH_STREAM or not hasattr(source, "__dlpack__")):
        return _from_cuda_array_interface(source, interface)
    if hasattr(source, "__dlpack__"):
        return from_dlpack(source)
    if hasattr(source, "__array_interface__"):
        return from_numpy(np.asarray(source))
    raise TypeError(
        f"{type(source).__name__} shares no memory: "
        "it has no __cuda_array_interface__, __dlpack__ or __array_interface__"
    )


_WITH_STREAM: Final = 3
"""The version of the CUDA array interface from which on it says whom to wait for; before that, DLPack is better."""


def described(source: Any) -> Array:
    """Return an array over memory of another library, for questions about it: no work is ordered or waited for.

    Raises
    ------
    TypeError, ValueError, BufferError
        As `asarray`.
    """
    if isinstance(source, Array):
        return source
    interface = getattr(source, "__cuda_array_interface__", None)
    if interface is not None:
        return _over_cuda_array_interface(source, interface)
    return _over_dlpack(source, _NO_ORDER)


def _from_cuda_array_interface(source: Any, interface: dict[str, Any]) -> Array:
    array = _over_cuda_array_interface(source, interface)
    _wait_for_producer(interface.get("stream"), array.device)
    return array


def _over_cuda_array_interface(source: Any, interface: dict[str, Any]) -> Array:
    if interface.get("mask") is not None:
        raise ValueError("masked arrays of the CUDA array interface are not supported: pass data and mask apart")
    ptr, readonly = interface["data"]
    ptr = int(ptr or 0)
    return from_pointer(
        ptr,
        tuple(interface["shape"]),
        _described_type(interface),
        _device_of(ptr),
        strides=interface.get("strides"),
        owner=source,
        readonly=bool(readonly),
    )


def _described_type(interface: dict[str, Any]) -> np.dtype[np.generic]:
    """Return the element type that an interface describes; unnamed fields are gaps."""
    typestr, fields = interface["typestr"], interface.get("descr") or []
    is_structure = typestr[1] == "V" and any(name for name, *_ in fields)
    found: np.dtype[np.generic] = np.lib.format.descr_to_dtype(fields) if is_structure else np.dtype(typestr)
    return found


def _device_of(ptr: int) -> Device:
    """Return the CUDA device of an address, as the platform says; the default CUDA device for a null pointer."""
    default = find_device("cuda")
    if not ptr:
        return default
    attributes = default.platform.pointer_attributes(ptr)
    return find_device(attributes.device) if attributes.kind is not MemoryKind.UNKNOWN else default


def _wait_for_producer(stream: object, device: Device) -> None:
    """Order the stream in force after the producer's, if it named one."""
    if stream is None:
        return
    if not isinstance(stream, int) or stream <= 0:
        raise ValueError(f"the stream of a CUDA array interface is a handle, 1 or 2, not {stream!r}")
    producer = Stream.from_external(0 if stream == LEGACY_STREAM else stream, device)
    consumer = stream_in_force(device)
    if producer.handle != consumer.handle:
        consumer.wait_for(producer)


# ---------------------------------------------------------------------------------------------------------------------
# DLPack


def dlpack_device(array: Array) -> tuple[int, int]:
    """Return DLPack's device type and number of an array: those of its memory, whatever device is current."""
    kind = _DEVICE_TYPES.get(array.memory_kind, DeviceType.CUDA)
    return kind, 0 if array.device.is_cpu or kind is DeviceType.CUDA_HOST else array.device.ordinal


def to_dlpack(
    array: Array,
    *,
    stream: object = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """Return a DLPack capsule over the memory of an array, which lives until the consumer lets go of it.

    Parameters
    ----------
    stream
        The consumer's stream, for memory of a device: it is made to wait for the stream in force. ``None`` and 1 mean
        the null stream, 2 the per-thread one, -1 no waiting; 0 is refused because it is ambiguous. Managed memory
        without a stream is exported when its work is done, because its consumer may be the host.
    max_version
        The newest version that the consumer reads. From 1.0 on the capsule says whether the memory is read-only; a
        read-only array cannot be exported to an older consumer.
    dl_device
        The device that the consumer wants: that of the memory, plain device memory for managed memory, or ``(1, 0)``,
        the host, to which memory of a device is copied unless ``copy`` is ``False``.
    copy
        ``True`` exports a copy.

    Raises
    ------
    BufferError
        If the array cannot be exported so.
    """
    wanted = None if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
    to_host = wanted == _HOST and array.device.is_cuda and copy is not False
    source = array.to("cpu") if to_host else array.copy() if copy else array
    device = _exported_device(source, wanted)
    if source.device.is_cuda:
        require_memory(source)
        _let_consumer_wait(source, stream)
    elif stream is not None and not to_host:
        raise ValueError(f"memory of 'cpu' is exported without a stream, not with {stream!r}")
    versioned = max_version is not None and max_version >= (1, 0)
    return export_capsule(numpy_over(source), device, versioned=versioned, copied=source is not array)


def _exported_device(array: Array, wanted: tuple[int, int] | None) -> tuple[int, int]:
    device = dlpack_device(array)
    if wanted is None or wanted == device:
        return device
    if device[0] == DeviceType.CUDA_MANAGED and wanted == (DeviceType.CUDA, device[1]):
        return wanted
    if device[0] == DeviceType.CUDA_HOST and wanted == _HOST:
        return wanted
    raise BufferError(f"memory of DLPack device {device} cannot be exported as {wanted}: copy it with .to()")


def _let_consumer_wait(array: Array, stream: object) -> None:
    if stream == -1:
        return
    if stream is not None and (not isinstance(stream, int) or isinstance(stream, bool) or stream <= 0):
        raise ValueError(f"a DLPack stream is None, -1, 1, 2 or a handle, not {stream!r}")
    producer = stream_in_force(array.device)
    if stream is None and array.memory_kind is MemoryKind.CUDA_MANAGED:
        producer.synchronize()
        return
    consumer = Stream.from_external(0 if stream in (None, LEGACY_STREAM) else stream, array.device)
    if consumer.handle != producer.handle:
        consumer.wait_for(producer)


def from_dlpack(source: Any) -> Array:
    """Return an array that shares the memory of an object with ``__dlpack__``, and keeps it alive.

    Raises
    ------
    TypeError
        If the object has no DLPack, or its element type has no equal in NumPy.
    UnsupportedError
        If its memory is neither of the host nor of a CUDA device.
    DeviceNotFoundError
        If its memory is on a device that is not there.
    BufferError
        If the producer refuses.
    """
    return _over_dlpack(source)


_NO_ORDER: Final = -1
"""The DLPack stream of a consumer that queues no work: the producer lets nobody wait."""


def _over_dlpack(source: Any, stream: int | None = None) -> Array:
    if not hasattr(source, "__dlpack__") or not hasattr(source, "__dlpack_device__"):
        raise TypeError(f"{type(source).__name__} has no __dlpack__ and __dlpack_device__")
    kind, ordinal = source.__dlpack_device__()
    if kind not in DeviceType.__members__.values():
        raise UnsupportedError(f"DLPack device type {int(kind)} is neither host nor CUDA memory")
    device = find_device("cpu" if kind in (DeviceType.CPU, DeviceType.CUDA_HOST) else f"cuda:{ordinal}")
    tensor = import_capsule(_capsule_of(source, device, stream))
    strides = None if is_contiguous(tensor.shape, tensor.strides, tensor.dtype.itemsize) else tensor.strides
    memory_kind = _MEMORY_KINDS.get(kind)
    return Array(
        tensor.ptr,
        tensor.shape,
        tensor.dtype,
        device,
        owner=tensor,
        strides=strides,
        kind=memory_kind,
        readonly=tensor.readonly,
    )


def _capsule_of(source: Any, device: Device, stream: int | None) -> Any:
    """Return a producer's capsule, for use on a stream, on that in force if none is given."""
    options = {} if device.is_cpu else {"stream": stream or stream_in_force(device).handle or LEGACY_STREAM}
    try:
        return source.__dlpack__(max_version=(1, 0), **options)
    except TypeError:  # a producer of before version 1.0
        return source.__dlpack__(**options)
