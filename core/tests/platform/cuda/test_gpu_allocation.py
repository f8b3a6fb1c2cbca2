"""The calls of the hot path, on a GPU."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import pytest

from allotment.memory_kind import MemoryKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment.platform.cuda import CudaPlatform

pytestmark = pytest.mark.gpu

MIB = 1 << 20
MORE_THAN_ANY_DEVICE_HAS = 1 << 50


@pytest.mark.parametrize(
    ("call", "function"),
    [
        ("current_device", "getDevice"),
        ("set_current_device", "setDevice"),
        ("malloc", "malloc"),
        ("free", "free"),
        ("malloc_managed", "mallocManaged"),
        ("host_free", "freeHost"),
        ("malloc_from_pool", "mallocFromPoolAsync"),
        ("free_async", "freeAsync"),
    ],
)
def test_nothing_stands_between_a_raw_call_and_cupy(cuda: CudaPlatform, call: str, function: str):
    assert getattr(cuda, call) is getattr(cuda._runtime, function)


def test_device_memory_holds_what_is_put_there(cuda: CudaPlatform, device: int, download: Callable[[int, int], bytes]):
    ptr = cuda.malloc(MIB)
    cuda.fill(ptr, 0x5A, MIB, 0, device)
    assert download(ptr, MIB) == b"\x5a" * MIB
    cuda.free(ptr)


def test_managed_memory_is_the_hosts_too(cuda: CudaPlatform, device: int):
    ptr = cuda.malloc_managed(MIB)
    cuda.fill(ptr, 0x5A, MIB, 0, device)
    cuda.synchronize_device(device)
    assert ctypes.string_at(ptr, MIB) == b"\x5a" * MIB
    cuda.free(ptr)


def test_page_locked_memory_is_the_hosts_and_portable(cuda: CudaPlatform, device: int):
    ptr = cuda.host_alloc(MIB)
    ctypes.memset(ptr, 0x5A, MIB)
    assert ctypes.string_at(ptr, MIB) == b"\x5a" * MIB
    assert cuda.pointer_attributes(ptr).kind is MemoryKind.PINNED
    cuda.host_free(ptr)
    assert cuda.pointer_attributes(ptr).kind is MemoryKind.UNKNOWN


def test_pool_memory_holds_what_is_put_there(
    cuda: CudaPlatform, device: int, stream: int, download: Callable[[int, int], bytes]
):
    ptr = cuda.malloc_from_pool(MIB, cuda.default_pool(device), stream)
    cuda.fill(ptr, 0x5A, MIB, stream, device)
    assert download(ptr, MIB) == b"\x5a" * MIB
    cuda.free_async(ptr, stream)
    cuda.synchronize_stream(stream, device)


def test_a_refused_allocation_is_told_as_out_of_memory(cuda: CudaPlatform, device: int):
    with pytest.raises(RuntimeError) as raised:
        cuda.malloc(MORE_THAN_ANY_DEVICE_HAS)
    failure = cuda.error_from(raised.value)
    assert failure is not None
    assert (failure.call, failure.code) == ("cudaMalloc", "cudaErrorMemoryAllocation")
    assert failure.is_out_of_memory


def test_a_double_free_is_told_as_an_invalid_value_and_the_device_still_works(cuda: CudaPlatform, device: int):
    ptr = cuda.malloc(MIB)
    cuda.free(ptr)
    with pytest.raises(RuntimeError) as raised:
        cuda.free(ptr)
    failure = cuda.error_from(raised.value)
    assert failure is not None
    assert (failure.call, failure.code) == ("cudaFree", "cudaErrorInvalidValue")
    cuda.free(cuda.malloc(MIB))


def test_a_driver_error_keeps_the_drivers_name_for_it(cuda: CudaPlatform, device: int):
    with pytest.raises(RuntimeError) as raised:
        cuda._driver.moduleLoadData(b"this is no module\0")
    failure = cuda.error_from(raised.value)
    assert failure is not None
    assert failure.code.startswith("CUDA_ERROR_")
    assert failure.call == "cuModuleLoadData"


def test_an_exception_of_somebody_else_is_not_cudas(cuda: CudaPlatform):
    assert cuda.error_from(ValueError("no")) is None


@pytest.mark.multi_gpu
def test_memory_is_of_the_device_that_is_current(cuda: CudaPlatform, device: int):
    cuda.set_current_device(1)
    ptr = cuda.malloc(MIB)
    assert cuda.pointer_attributes(ptr).device == 1
    cuda.free(ptr)
