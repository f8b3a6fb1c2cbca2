"""The CUDA platform of the tests that need a GPU, and shorthands for what they hold in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from allotment.platform import StridedMemory
from allotment.platform.cuda import CudaPlatform

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEVICE = 0


@pytest.fixture(scope="session")
def cuda() -> CudaPlatform:
    return CudaPlatform("the tests ask for it")


@pytest.fixture
def device(cuda: CudaPlatform) -> Iterator[int]:
    """Device 0, current; and current again afterwards."""
    cuda.set_current_device(DEVICE)
    yield DEVICE
    cuda.set_current_device(DEVICE)


@pytest.fixture(params=["null stream", "own stream"])
def stream(request: pytest.FixtureRequest, cuda: CudaPlatform, device: int) -> Iterator[int]:
    """The null stream, and a non-blocking one."""
    if request.param == "null stream":
        yield 0
        return
    stream = cuda.create_stream(device, non_blocking=True, priority=0)
    yield stream
    cuda.destroy_stream(stream)


@pytest.fixture
def allocate(cuda: CudaPlatform, device: int) -> Iterator[Callable[[int], int]]:
    """Return a function that allocates memory of device 0, which is freed after the test."""
    pointers: list[int] = []

    def allocate(nbytes: int) -> int:
        pointers.append(cuda.malloc(nbytes))
        return pointers[-1]

    yield allocate
    cuda.synchronize_device(device)
    for ptr in pointers:
        cuda.free(ptr)


@pytest.fixture
def upload(cuda: CudaPlatform, allocate: Callable[[int], int]) -> Callable[[np.ndarray[Any, Any]], int]:
    """Return a function that puts the bytes of an array, in C order, into memory of device 0."""

    def upload(array: np.ndarray[Any, Any]) -> int:
        data = np.frombuffer(array.tobytes(), np.uint8)
        ptr = allocate(data.nbytes)
        cuda.copy(ptr, data.ctypes.data, data.nbytes, 0, DEVICE)
        cuda.synchronize_stream(0, DEVICE)
        return ptr

    return upload


@pytest.fixture
def download(cuda: CudaPlatform) -> Callable[[int, int], bytes]:
    """Return a function that reads bytes that any device or the host holds, once device 0 is done."""

    def download(ptr: int, nbytes: int) -> bytes:
        cuda.synchronize_device(DEVICE)
        data = np.empty(nbytes, np.uint8)
        cuda.copy(data.ctypes.data, ptr, nbytes, 0, DEVICE)
        cuda.synchronize_stream(0, DEVICE)
        return data.tobytes()

    return download


@pytest.fixture
def twin(upload: Callable[[np.ndarray[Any, Any]], int]) -> Callable[..., StridedMemory]:
    """Return a function that puts an array into memory of device 0 and describes a view of it there."""

    def twin(whole: np.ndarray[Any, Any], view: np.ndarray[Any, Any]) -> StridedMemory:
        offset = view.ctypes.data - whole.ctypes.data
        return StridedMemory(upload(whole) + offset, view.shape, view.strides, view.dtype, DEVICE, None)

    return twin
