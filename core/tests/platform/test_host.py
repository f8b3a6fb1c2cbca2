"""The platform without CUDA."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.errors import UnsupportedError
from allotment.memory_kind import MemoryKind
from allotment.platform import HOST_LOCATION, Platform, StridedMemory
from allotment.platform.host import HostPlatform

if TYPE_CHECKING:
    from collections.abc import Callable

HOST = HostPlatform()
WORKS_WITHOUT_CUDA = {
    "copy",
    "copy_elements",
    "device_count",
    "driver_entry_point",
    "error_from",
    "fill",
    "fill_elements",
    "pointer_attributes",
    "driver_error",
    "versions",
}
NEEDS_CUDA = sorted(
    name
    for name, member in vars(Platform).items()
    if inspect.isfunction(member) and not name.startswith("_") and name not in WORKS_WITHOUT_CUDA
)


def memory_of(array: np.ndarray[Any, Any]) -> StridedMemory:
    return StridedMemory(array.ctypes.data, array.shape, array.strides, array.dtype, HOST_LOCATION, array)


def test_it_is_a_platform():
    assert isinstance(HOST, Platform)
    assert (HOST.name, HOST.device_count(), HOST.versions()) == ("host", 0, (0, 0))


def test_there_is_no_driver_for_compiled_code():
    assert HOST.driver_entry_point("cuMemMap") == 0
    assert str(HOST.driver_error("cuMemMap", 2).code) == "CUresult 2"


def test_it_says_why_it_was_chosen():
    assert HostPlatform("no driver").why == "no driver"


@pytest.mark.parametrize("call", NEEDS_CUDA)
def test_what_needs_a_device_is_refused_with_an_offer(call: str):
    with pytest.raises(UnsupportedError, match=rf'^{call} needs a CUDA device.*simulate\("2xh200"\)'):
        getattr(HOST, call)(0)


def test_an_address_is_unknown_as_pageable_memory_is_to_cuda():
    found = HOST.pointer_attributes(np.zeros(1).ctypes.data)
    assert (found.kind, found.device, found.accessible) == (MemoryKind.UNKNOWN, HOST_LOCATION, False)


def test_no_exception_is_its_own():
    assert HOST.error_from(RuntimeError("cudaErrorInvalidValue: no")) is None


def test_bytes_are_copied():
    source, target = np.arange(100, dtype=np.uint8), np.zeros(100, np.uint8)
    HOST.copy(target.ctypes.data, source.ctypes.data, 60, 0, HOST_LOCATION)
    assert (target[:60] == source[:60]).all()
    assert not target[60:].any()


def test_ranges_of_a_copy_may_overlap():
    data = np.arange(100, dtype=np.uint8)
    HOST.copy(data.ctypes.data + 10, data.ctypes.data, 90, 0, HOST_LOCATION)
    assert (data[10:] == np.arange(90)).all()


def test_bytes_are_filled():
    data = np.zeros(10, np.uint8)
    HOST.fill(data.ctypes.data + 2, 7, 5, 0, HOST_LOCATION)
    assert data.tolist() == [0, 0, 7, 7, 7, 7, 7, 0, 0, 0]


VIEWS: dict[str, Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]] = {
    "contiguous": lambda a: a,
    "transposed": lambda a: a.T.copy().T,
    "every second": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
    "backwards": lambda a: a[::-1, ::-1].copy()[::-1, ::-1],
    "repeated": lambda a: np.broadcast_to(a[:1], a.shape),
}
DTYPES = [
    np.dtype(np.bool_),
    np.dtype(np.float32),
    np.dtype(np.complex128),
    np.dtype("datetime64[ns]"),
    np.dtype("S3"),
    np.dtype([("a", "i1"), ("b", "f8")]),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("view", VIEWS)
def test_elements_of_any_layout_and_type_are_copied(dtype: np.dtype[Any], view: str):
    source = VIEWS[view](np.arange(6 * dtype.itemsize, dtype=np.uint8).view(dtype).reshape(2, 3))
    target = np.zeros((3, 2), dtype).T
    HOST.copy_elements(memory_of(target), memory_of(source), 0, HOST_LOCATION)
    assert target.tobytes() == source.tobytes()


def test_elements_that_overlap_are_copied_as_if_they_did_not():
    data = np.arange(10.0)
    HOST.copy_elements(memory_of(data), memory_of(data[::-1]), 0, HOST_LOCATION)
    assert data.tolist() == list(range(9, -1, -1))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_elements_of_any_type_are_filled(dtype: np.dtype[Any]):
    value = np.arange(1, dtype.itemsize + 1, dtype=np.uint8).view(dtype)[0]
    data = np.zeros((4, 3), dtype)
    HOST.fill_elements(memory_of(data[::2, 1:]), value, 0, HOST_LOCATION)
    expected = np.zeros((4, 3), dtype)
    expected[::2, 1:] = value
    assert data.tobytes() == expected.tobytes()


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 5)])
def test_nothing_is_done_where_there_are_no_elements(shape: tuple[int, ...]):
    nothing = StridedMemory(0, shape, (8,) * len(shape), np.dtype(np.float64), HOST_LOCATION, None)
    HOST.copy_elements(nothing, nothing, 0, HOST_LOCATION)
    HOST.fill_elements(nothing, np.float64(1), 0, HOST_LOCATION)


def test_one_element_without_dimensions_is_copied_and_filled():
    source, target = np.array(3.5), np.array(0.0)
    HOST.copy_elements(memory_of(target), memory_of(source), 0, HOST_LOCATION)
    assert target[()] == 3.5
    HOST.fill_elements(memory_of(target), np.float64(2), 0, HOST_LOCATION)
    assert target[()] == 2


@given(start=st.integers(0, 5), step=st.integers(1, 4), backwards=st.booleans())
def test_a_copy_of_a_slice_equals_numpys(start: int, step: int, backwards: bool):
    source = np.arange(30, dtype=np.int32)[start::step][:: -1 if backwards else 1]
    target = np.zeros(len(source) * 2, np.int32)[::2]
    HOST.copy_elements(memory_of(target), memory_of(source), 0, HOST_LOCATION)
    assert target.tolist() == source.tolist()
