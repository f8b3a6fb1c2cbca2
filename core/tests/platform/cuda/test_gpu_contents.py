"""Copies, fills and the places of managed memory, on a GPU."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from allotment.errors import PlatformError
from allotment.platform import HOST_LOCATION, MemoryAdvice, StridedMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from allotment.platform.cuda import CudaPlatform

    Download = Callable[[int, int], bytes]
    Upload = Callable[[np.ndarray[Any, Any]], int]
    Twin = Callable[[np.ndarray[Any, Any], np.ndarray[Any, Any]], StridedMemory]

pytestmark = pytest.mark.gpu

MIB = 1 << 20


def noise(shape: tuple[int, ...] | int, dtype: Any = np.uint8) -> np.ndarray[Any, Any]:
    """Return elements with bytes that no fill would leave."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape)) * dtype.itemsize
    return (np.arange(count) * 37 % 251).astype(np.uint8).view(dtype).reshape(shape)


# Copies


def test_bytes_go_to_the_device_and_back(cuda: CudaPlatform, device: int, stream: int, allocate: Callable[[int], int]):
    data, back, ptr = noise(MIB), np.zeros(MIB, np.uint8), allocate(MIB)
    cuda.copy(ptr, data.ctypes.data, MIB, stream, device)
    cuda.copy(back.ctypes.data, ptr, MIB, stream, device)
    cuda.synchronize_stream(stream, device)
    assert (back == data).all()


def test_a_pageable_source_may_be_overwritten_as_soon_as_the_copy_returns(
    cuda: CudaPlatform, device: int, stream: int, allocate: Callable[[int], int], download: Download
):
    nbytes = 32 * MIB
    data, ptr, busy = noise(nbytes), allocate(nbytes), allocate(nbytes)
    expected = data.tobytes()
    for _ in range(20):
        cuda.fill(busy, 1, nbytes, stream, device)
    cuda.copy(ptr, data.ctypes.data, nbytes, stream, device)
    data[:] = 0
    assert download(ptr, nbytes) == expected


def test_bytes_go_between_blocks_of_a_device(
    cuda: CudaPlatform, device: int, stream: int, upload: Upload, allocate: Callable[[int], int], download: Download
):
    data = noise(MIB)
    source, target = upload(data), allocate(MIB)
    cuda.copy(target, source, MIB, stream, device)
    assert download(target, MIB) == data.tobytes()


def test_page_locked_memory_is_a_source_and_a_target(
    cuda: CudaPlatform, device: int, stream: int, allocate: Callable[[int], int]
):
    data, ptr = noise(MIB), allocate(MIB)
    source, target = cuda.host_alloc(MIB), cuda.host_alloc(MIB)
    ctypes.memmove(source, data.ctypes.data, MIB)
    cuda.copy(ptr, source, MIB, stream, device)
    cuda.copy(target, ptr, MIB, stream, device)
    cuda.synchronize_stream(stream, device)
    assert ctypes.string_at(target, MIB) == data.tobytes()
    cuda.host_free(source)
    cuda.host_free(target)


def test_no_bytes_are_copied_from_and_to_nowhere(cuda: CudaPlatform, device: int):
    cuda.copy(0, 0, 0, 0, device)
    cuda.fill(0, 0, 0, 0, device)


@pytest.mark.multi_gpu
@pytest.mark.parametrize("backwards", [False, True])
def test_bytes_go_between_devices_without_any_access(cuda: CudaPlatform, device: int, backwards: bool):
    data, back = noise(MIB), np.zeros(MIB, np.uint8)
    here = cuda.malloc(MIB)
    cuda.set_current_device(1)
    there = cuda.malloc(MIB)
    cuda.set_current_device(device)
    (source, source_device), (target, target_device) = (
        ((there, 1), (here, device)) if backwards else ((here, device), (there, 1))
    )
    cuda.copy(source, data.ctypes.data, MIB, 0, source_device)
    cuda.synchronize_device(source_device)
    cuda.copy_peer(target, target_device, source, source_device, MIB, 0)
    cuda.synchronize_device(device)
    cuda.copy(back.ctypes.data, target, MIB, 0, target_device)
    cuda.synchronize_device(target_device)
    assert (back == data).all()
    cuda.free(here)
    cuda.free(there)


# Elements

DTYPES = [
    np.dtype(np.bool_),
    np.dtype(np.int16),
    np.dtype(np.float64),
    np.dtype(np.complex128),
    np.dtype("datetime64[ns]"),
    np.dtype("S3"),
    np.dtype([("flag", "i1"), ("value", "f8")]),
]
VIEWS: dict[str, Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]] = {
    "contiguous": lambda a: a,
    "part": lambda a: a[2:6, 1:5],
    "every second column": lambda a: a[:, ::2],
    "backwards": lambda a: a[::-1, ::-1],
    "transposed": lambda a: a.T,
    "one row repeated": lambda a: np.broadcast_to(a[3], (4, 8)),
    "one element": lambda a: a[3, 4],
}


def as_array(view: Any, whole: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a view of one element as an array without dimensions, not as a scalar."""
    return view if isinstance(view, np.ndarray) else whole[3:4, 4:5].reshape(())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("view", VIEWS)
def test_elements_of_any_layout_and_type_are_gathered(
    cuda: CudaPlatform, device: int, twin: Twin, download: Download, dtype: np.dtype[Any], view: str
):
    whole = noise((8, 8), dtype)
    source = as_array(VIEWS[view](whole), whole)
    packed = np.zeros(source.shape, dtype)
    target = twin(packed, packed)
    cuda.copy_elements(target, twin(whole, source), 0, device)
    assert download(target.ptr, packed.nbytes) == source.tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("view", [name for name in VIEWS if name != "one row repeated"])
def test_elements_of_any_layout_and_type_are_scattered_and_their_neighbours_left(
    cuda: CudaPlatform, device: int, stream: int, twin: Twin, download: Download, dtype: np.dtype[Any], view: str
):
    whole = np.zeros((8, 8), dtype)
    place = as_array(VIEWS[view](whole), whole)
    values = noise(place.shape, dtype)
    target = twin(whole, place)
    start = target.ptr - (place.ctypes.data - whole.ctypes.data)
    cuda.copy_elements(target, twin(values, values), stream, device)
    place[...] = values
    assert download(start, whole.nbytes) == whole.tobytes()


def test_elements_that_are_not_aligned_are_copied(cuda: CudaPlatform, device: int, twin: Twin, download: Download):
    records = noise(50, np.dtype([("flag", "i1"), ("value", "f8")]))
    packed = np.zeros(50)
    target = twin(packed, packed)
    cuda.copy_elements(target, twin(records, records["value"]), 0, device)
    assert download(target.ptr, packed.nbytes) == records["value"].tobytes()


def test_elements_go_between_page_locked_and_device_memory(cuda: CudaPlatform, device: int, twin: Twin):
    whole = noise((64, 64), np.float32)
    ptr = cuda.host_alloc(whole.nbytes // 2)
    ctypes.memset(ptr, 0, whole.nbytes // 2)
    target = StridedMemory(ptr, (64, 32), (128, 4), whole.dtype, HOST_LOCATION, None)
    cuda.copy_elements(target, twin(whole, whole[:, ::2]), 0, device)
    cuda.synchronize_device(device)
    assert ctypes.string_at(ptr, whole.nbytes // 2) == whole[:, ::2].tobytes()
    cuda.host_free(ptr)


def test_no_elements_are_copied_and_filled(cuda: CudaPlatform, device: int):
    nothing = StridedMemory(0, (0, 3), (24, 8), np.dtype(np.float64), device, None)
    cuda.copy_elements(nothing, nothing, 0, device)
    cuda.fill_elements(nothing, np.float64(1), 0, device)


# Fills


def test_bytes_are_filled_and_their_neighbours_left(
    cuda: CudaPlatform, device: int, stream: int, upload: Upload, download: Download
):
    ptr = upload(np.zeros(100, np.uint8))
    cuda.fill(ptr + 10, 0xEE, 50, stream, device)
    assert download(ptr, 100) == bytes(10) + b"\xee" * 50 + bytes(40)


@pytest.mark.parametrize("view", ["contiguous", "every second column", "backwards", "transposed"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_elements_of_any_type_are_filled_and_their_neighbours_left(
    cuda: CudaPlatform, device: int, stream: int, twin: Twin, download: Download, dtype: np.dtype[Any], view: str
):
    whole = noise((8, 8), dtype)
    value = noise(3, dtype)[2]
    place = VIEWS[view](whole)
    target = twin(whole, place)
    start = target.ptr - (place.ctypes.data - whole.ctypes.data)
    cuda.fill_elements(target, value, stream, device)
    place[...] = value
    assert download(start, whole.nbytes) == whole.tobytes()


def test_a_value_of_equal_bytes_is_filled(cuda: CudaPlatform, device: int, twin: Twin, download: Download):
    data = noise(100, np.float64)
    target = twin(data, data)
    cuda.fill_elements(target, np.float64(0), 0, device)
    assert download(target.ptr, data.nbytes) == bytes(data.nbytes)


@pytest.fixture
def peer(cuda: CudaPlatform, device: int) -> Iterator[int]:
    """Device 1, whose memory device 0 may touch during the test."""
    if not cuda.can_access_peer(device, 1):
        pytest.skip("devices 0 and 1 are no peers")
    cuda.enable_peer_access(device, 1)
    yield 1
    cuda.disable_peer_access(device, 1)


@pytest.mark.multi_gpu
def test_memory_of_a_peer_is_filled(cuda: CudaPlatform, device: int, peer: int):
    back = np.zeros(MIB, np.uint8)
    cuda.set_current_device(peer)
    ptr = cuda.malloc(MIB)
    cuda.set_current_device(device)
    cuda.fill(ptr, 0x33, MIB, 0, device)
    cuda.synchronize_device(device)
    cuda.copy(back.ctypes.data, ptr, MIB, 0, peer)
    cuda.synchronize_device(peer)
    assert set(back.tolist()) == {0x33}
    cuda.free(ptr)


# Managed memory


@pytest.fixture
def managed(cuda: CudaPlatform, device: int) -> Iterator[int]:
    if not cuda.device_properties(device).concurrent_managed_access:
        pytest.skip("advice and prefetch need concurrent managed access")
    ptr = cuda.malloc_managed(MIB)
    ctypes.memset(ptr, 0x42, MIB)
    yield ptr
    cuda.synchronize_device(device)
    cuda.free(ptr)


@pytest.mark.parametrize("location", [HOST_LOCATION, 0], ids=["host", "device"])
@pytest.mark.parametrize("advice", MemoryAdvice)
def test_every_advice_is_taken_about_every_place(cuda: CudaPlatform, managed: int, advice: MemoryAdvice, location: int):
    cuda.advise(managed, MIB, advice, location)


def test_advice_about_the_host_arrives(cuda: CudaPlatform, managed: int):
    from cuda.bindings import runtime

    cuda.advise(managed, MIB, MemoryAdvice.SET_PREFERRED_LOCATION, HOST_LOCATION)
    preferred = runtime.cudaMemRangeAttribute.cudaMemRangeAttributePreferredLocation
    error, location = runtime.cudaMemRangeGetAttribute(4, preferred, managed, MIB)
    assert int(error) == 0
    assert int(location) == HOST_LOCATION


def test_a_prefetch_keeps_the_contents(cuda: CudaPlatform, device: int, stream: int, managed: int, download: Download):
    for location in (device, HOST_LOCATION, device):
        cuda.prefetch(managed, MIB, location, stream, device)
        cuda.synchronize_stream(stream, device)
        assert download(managed, MIB) == b"\x42" * MIB


def test_advice_about_other_memory_is_refused(cuda: CudaPlatform, device: int, allocate: Callable[[int], int]):
    with pytest.raises(PlatformError, match=r"^cudaMemAdvise failed: cudaErrorInvalidValue"):
        cuda.advise(allocate(MIB), MIB, MemoryAdvice.SET_PREFERRED_LOCATION, device)
