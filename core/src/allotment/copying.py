"""Moving the contents of arrays: between devices, to NumPy, within a device, and filling them.

Work goes to the stream in force on the device that does it: the destination's for a copy between devices and into a
device, the source's for a copy to the host. A copy into pageable host memory, or one that makes an array on the host,
is complete when the call returns; one into page-locked memory that exists is complete when the stream has got there.
"""

from __future__ import annotations

from functools import partial
from operator import index
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from allotment._array import Array
from allotment._grants import Pair, grants_of
from allotment._layout import reach
from allotment.allocator import SupportsPool, SupportsUse
from allotment.device import find_device
from allotment.factories import empty
from allotment.interchange import asarray, from_numpy, is_foreign_array, numpy_over, require_memory
from allotment.memory_kind import MemoryKind
from allotment.stream import ScopedStream, Stream, stream_in_force

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import DTypeLike, NDArray

    from allotment.capture._capture import Capture
    from allotment.device import Device, DeviceLike


def array(
    data: Any,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
    *,
    copy: bool = True,
    pinned: bool = False,
) -> Array:
    """Return a new array with the contents of ``data``.

    Parameters
    ----------
    data
        An array of this library, anything with the CUDA array interface or DLPack, or what NumPy makes an array of.
    dtype
        The element type; that of ``data`` if not given.
    device
        Where the new array is to be; the default device if not given.
    copy
        ``False`` shares the memory of ``data``, which must be an array on the device with elements of the type.
    pinned
        Whether an array on ``cpu`` is to be in page-locked memory.

    Raises
    ------
    TypeError
        If ``copy=False`` and ``data`` is no array, or its elements are Python objects.
    ValueError
        If ``copy=False`` and the memory is elsewhere or of another type.
    """
    where = find_device(device)
    if not copy:
        return _shared(data, dtype, where, pinned=pinned)
    source = asarray(data) if _is_array(data) else from_numpy(np.asarray(data, dtype=dtype))
    if dtype is not None and source.dtype != np.dtype(dtype):
        source = from_numpy(source.numpy().astype(dtype))
    return copied(source, where, pinned=pinned)


def _is_array(data: object) -> bool:
    return isinstance(data, Array) or is_foreign_array(data)


def _shared(data: Any, dtype: DTypeLike | None, device: Device, *, pinned: bool) -> Array:
    source = asarray(data)
    if source.device is not device or (pinned and not source.pinned):
        raise ValueError(
            f"copy=False cannot move memory of {source.device.alias!r} to {device.alias!r} or page-lock it"
        )
    if dtype is not None and source.dtype != np.dtype(dtype):
        raise ValueError(f"copy=False cannot make elements of {source.dtype} into {np.dtype(dtype)}")
    return source


def copy(
    dest: Array,
    src: Array,
    dest_offset: int = 0,
    src_offset: int = 0,
    count: int = 0,
    stream: Stream | None = None,
) -> None:
    """Copy elements from one array to another, on any devices and in any kinds of memory.

    Parameters
    ----------
    dest, src
        The arrays. Without offsets and count their shapes must be equal. They may overlap. Elements of another type of
        the same kind are converted, by way of the host.
    dest_offset, src_offset
        The first element of each, for contiguous arrays.
    count
        The number of elements; 0 for all that follow ``src_offset``.
    stream
        The stream that does the work; see the module's description for the default.

    Raises
    ------
    ValueError
        If shapes differ, elements cannot be converted, the range is not inside the arrays, ``dest`` is read-only, or
        ``stream`` is of a device that has neither array.
    """
    if stream is not None:
        if stream.device not in (dest.device, src.device):
            raise ValueError(f"a stream of {stream.device.alias!r} copies nothing there is on that device")
        with ScopedStream(stream):
            copy(dest, src, dest_offset, src_offset, count)
        return
    if dest_offset or src_offset or count:
        length = index(count) or src.size - index(src_offset)
        dest, src = _range_of(dest, index(dest_offset), length), _range_of(src, index(src_offset), length)
    copy_into(dest, src)


def _range_of(array: Array, offset: int, count: int) -> Array:
    if not 0 <= offset <= offset + count <= array.size:
        raise ValueError(f"elements {offset} to {offset + count} are not inside an array of {array.size}")
    return array.flatten()[offset : offset + count]


def copy_into(dest: Array, src: Array) -> None:
    """Copy all elements; see `copy`."""
    _require_writable(dest)
    if src.shape != dest.shape:
        raise ValueError(f"an array of shape {src.shape} cannot be copied into one of shape {dest.shape}")
    if not dest.size:
        return
    if src.dtype != dest.dtype:
        _require_convertible(src, dest.dtype)
    host = next((end.device for end in (dest, src) if end.device.is_cpu), None)
    if host is None:
        _convert_and_transfer(dest, src)
    else:
        _do_on_host(host, partial(_convert_and_transfer, dest, src))


def assign(target: Array, value: object) -> None:
    """Fill an array with a scalar, or copy what NumPy or another library has for an array into it, broadcast."""
    if isinstance(value, list):
        value = np.asarray(value, target.dtype)
    if isinstance(value, np.ndarray) and not value.ndim:
        value = value[()]
    if isinstance(value, np.ndarray) or _is_array(value):
        copy_into(target, asarray(value).broadcast_to(target.shape))
    else:
        fill(target, value)


def _require_writable(dest: Array) -> None:
    if dest.readonly:
        raise ValueError("the destination is read-only: it is memory of another library that was shared so")


def _require_convertible(src: Array, dtype: np.dtype[np.generic]) -> None:
    if not np.can_cast(src.dtype, dtype, casting="same_kind"):
        raise ValueError(
            f"elements of {src.dtype} are not copied into elements of {dtype}, which may not hold them: "
            f"convert them with allotment.array(source, dtype)"
        )


def _do_on_host(host: Device, work: Callable[[], object]) -> None:
    """Do work that touches host memory, or make it part of the graph that is captured on the host."""
    capture = host.captures.of_host_work()
    if capture is None:
        work()
    else:
        capture.record(work)


# ---------------------------------------------------------------------------------------------------------------------
# The ways between memories, for elements of one type


def _convert_and_transfer(dest: Array, src: Array) -> None:
    _transfer(dest, src if src.dtype == dest.dtype else from_numpy(src.numpy().astype(dest.dtype)))


def _transfer(dest: Array, src: Array) -> None:
    """Copy elements, by way of a contiguous array where there is no direct way."""
    if dest.ptr == src.ptr and dest.strides == src.strides:
        return
    require_memory(dest)
    require_memory(src)
    if dest.device.is_cpu and src.device.is_cpu:
        np.copyto(dest.numpy(), src.numpy())
    elif _overlap(dest, src):
        _transfer_via(src.device, dest, src)
    elif dest.is_contiguous and src.is_contiguous:
        _copy_bytes(dest, src)
    elif dest.device is src.device:
        _copy_elements(dest, src)
    elif dest.device.is_cpu and not dest.is_contiguous:
        np.copyto(dest.numpy(), src.numpy())
    else:
        _transfer_via(dest.device if src.is_contiguous else src.device, dest, src)


def _transfer_via(device: Device, dest: Array, src: Array) -> None:
    """Copy to a contiguous array on a device and from there. It goes back in the order of the work that uses it."""
    between = copied(src, device)
    try:
        _transfer(dest, between)
    finally:
        between.discard()


def _overlap(one: Array, other: Array) -> bool:
    start, end = reach(one.shape, one.strides, one.itemsize)
    other_start, other_end = reach(other.shape, other.strides, other.itemsize)
    return one.ptr + start < other.ptr + other_end and other.ptr + other_start < one.ptr + end


def _copy_bytes(dest: Array, src: Array) -> None:
    """Copy contiguous elements, one end at least on a CUDA device."""
    if dest.device.is_cuda and src.device.is_cuda and dest.device is not src.device:
        _copy_between_devices(dest, src)
        return
    worker = dest.device if dest.device.is_cuda else src.device
    stream = _stream_for_work(worker)
    worker.platform.copy(dest.ptr, src.ptr, dest.nbytes, stream.handle, worker.ordinal)
    capture = worker.captures.covering(stream)
    for end in (dest, src):
        if end.device.is_cpu and capture is not None:
            capture.keep(end)
        elif end.device.is_cpu:
            _settle_host_end(end, stream, is_written=end is dest)


def _settle_host_end(end: Array, stream: Stream, *, is_written: bool) -> None:
    """Wait for a copy, unless its host memory is page-locked and from an allocator that keeps it until then.

    Pageable memory was read before the copy returned.
    """
    if end.memory_kind is MemoryKind.PINNED:
        if end.account is not None and isinstance(end.account.allocator, SupportsUse):
            end.record_use(stream)
        else:
            stream.synchronize()
    elif is_written:
        stream.synchronize()


_FOR_ALL = (MemoryKind.CUDA_MANAGED, MemoryKind.PINNED)
"""The kinds that every device reaches, and that are no peer's own. Page-locked memory can stand in for a device's."""


def _copy_between_devices(dest: Array, src: Array) -> None:
    """Copy in order with the streams in force on both devices, so that either end may be freed afterwards.

    A stream copies memory that is no device's own to and from that of its device, and two devices' memory as peers.
    """
    captures = dest.device.captures
    for end in (dest, src):
        if (capture := captures.covering(stream_in_force(end.device))) is not None:
            _capture_copy_between_devices(capture, dest, src)
            return
    is_for_all = dest.memory_kind in _FOR_ALL or src.memory_kind in _FOR_ALL
    worker, other = dest.device, src.device
    if dest.memory_kind in _FOR_ALL:
        worker, other = other, worker
    stream, other_stream = _stream_for_work(worker), _stream_for_work(other)
    stream.wait_for(other_stream)
    if is_for_all:
        worker.platform.copy(dest.ptr, src.ptr, dest.nbytes, stream.handle, worker.ordinal)
    else:
        worker.platform.copy_peer(
            dest.ptr, dest.device.ordinal, src.ptr, src.device.ordinal, dest.nbytes, stream.handle
        )
    other_stream.wait_for(stream)


def _stream_for_work(device: Device) -> Stream:
    """Return the stream in force, unless work on it would end a capture."""
    stream = stream_in_force(device)
    if device.captures.on_devices:
        device.captures.check_work(stream)
    return stream


def _capture_copy_between_devices(capture: Capture, dest: Array, src: Array) -> None:
    """Copy inside a capture, where peer copies are not allowed: a stream must reach pool memory at the other end."""
    for here, there in ((dest, src), (src, dest)):
        if there.memory_kind is not MemoryKind.CUDA_MEMPOOL or _is_pool_open(there, here.device):
            _copy_in_capture(capture, here.device, dest, src)
            return
    source, target = src.device.alias, dest.device.alias
    capture.refuse(
        f"memory pool arrays cannot be copied from {source!r} to {target!r} while a graph is captured: neither device "
        "has access to the other's pool.",
        f'Call set_mempool_access_enabled("{source}", "{target}", True) before the capture, or allocate the arrays '
        "before it with memory pools disabled (ScopedMempool).",
    )


def _copy_in_capture(capture: Capture, worker: Device, dest: Array, src: Array) -> None:
    """Copy on a captured stream of one device, in order with what the streams in force on both have captured."""
    in_force = [stream_in_force(end.device) for end in (dest, src)]
    captured = [stream for stream in in_force if capture.covers(stream)]
    own = stream_in_force(worker)
    stream = own if own in captured else capture.side_stream(worker)
    for other in captured:
        if other is not stream:
            stream.wait_for(other)
    worker.platform.copy(dest.ptr, src.ptr, dest.nbytes, stream.handle, worker.ordinal)
    for other in captured:
        if other is not stream:
            other.wait_for(stream)


def _is_pool_open(array: Array, device: Device) -> bool:
    allocator: object = None if array.account is None else array.account.allocator
    if not isinstance(allocator, SupportsPool):
        return False
    return bool(grants_of(device).pool_access(allocator.pool_handle, Pair(array.device, device)))


def _copy_elements(dest: Array, src: Array) -> None:
    device = dest.device
    device.platform.copy_elements(dest.elements(), src.elements(), _stream_for_work(device).handle, device.ordinal)


# ---------------------------------------------------------------------------------------------------------------------
# Filling


def fill(target: Array, value: object) -> Array:
    """Set all elements to a value, or raise `ValueError` if it does not fit the type; return the array."""
    return _fill(target, _element(value, target.dtype))


def fill_with_zeros(target: Array) -> Array:
    """Set all bytes to zero; return the array."""
    return _fill(target, np.zeros((), target.dtype))


def _fill(target: Array, element: NDArray[Any]) -> Array:
    _require_writable(target)
    if not target.size:
        return target
    device = target.device
    if device.is_cpu:
        _do_on_host(device, lambda: target.numpy().__setitem__(..., element))
        return target
    require_memory(target)
    stream, pattern = _stream_for_work(device), element.tobytes()
    if target.is_contiguous and pattern.count(pattern[0]) == len(pattern):
        device.platform.fill(target.ptr, pattern[0], target.nbytes, stream.handle, device.ordinal)
    else:
        scalar = cast("np.generic", element[()])
        device.platform.fill_elements(target.elements(), scalar, stream.handle, device.ordinal)
    return target


def _element(value: object, dtype: np.dtype[np.generic]) -> NDArray[Any]:
    """Return a value as an array without dimensions. NumPy alone would let some values wrap or lose a part."""
    plain = value.item() if isinstance(value, np.number | np.bool_) else value
    try:
        with np.errstate(over="raise"):
            element = np.array(plain, dtype=dtype)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise ValueError(f"{value!r} is not an element of {dtype}: {error}") from error
    may_differ = dtype.kind in "iu" or (dtype.kind in "SU" and isinstance(plain, str | bytes))
    if element.ndim or (may_differ and element.item() != plain):
        raise ValueError(f"{value!r} is not an element of {dtype}")
    return element


# ---------------------------------------------------------------------------------------------------------------------
# Copies


def to_numpy(source: Array) -> NDArray[Any]:
    """Return the contents as a NumPy array: a view on the host, else a copy."""
    if source.device.is_cpu:
        return numpy_over(source)
    _refuse_read(source)
    result = np.empty(source.shape, source.dtype)
    copy_into(from_numpy(result), source)
    return result


def _refuse_read(source: Array) -> None:
    """Refuse to wait for contents that captured work makes."""
    capture = source.device.captures.covering(stream_in_force(source.device))
    if capture is not None:
        capture.refuse(
            f"the contents of an array on {source.device.alias!r} cannot be read while a graph is captured.",
            "Launch the graph first; or copy inside into an array on the host that was made before, which each launch "
            "then fills.",
        )


def to_device(source: Array, device: DeviceLike) -> Array:
    """Return the array on another device: itself if it is there already, else a copy."""
    target = find_device(device)
    return source if target is source.device else copied(source, target)


def clone(source: Array, device: DeviceLike = None) -> Array:
    """Return a contiguous copy on a device, on the source's own if none is given.

    The memory comes from the allocator in force there now; a copy of page-locked memory on the host is page-locked.
    """
    where = source.device if device is None else find_device(device)
    return copied(source, where, pinned=where.is_cpu and source.device is where and source.pinned)


def copied(source: Array, device: Device, *, pinned: bool = False) -> Array:
    """Return a contiguous copy on a device; one on the host is complete."""
    if device.is_cpu and source.device.is_cuda:
        _refuse_read(source)
    target = empty(source.shape, source.dtype, device, pinned)
    try:
        copy_into(target, source)
        if device.is_cpu and source.device.is_cuda and target.pinned:
            stream_in_force(source.device).synchronize()
    except BaseException:
        target.discard()
        raise
    return target
