"""Stream capture and graphs, on a GPU."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import pytest

from allotment.errors import PlatformError
from allotment.memory_kind import MemoryKind
from allotment.platform import CaptureMode, CaptureStatus, StridedMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from allotment.platform.cuda import CudaPlatform

pytestmark = pytest.mark.gpu

MIB = 1 << 20
STRICT = [CaptureMode.GLOBAL, CaptureMode.THREAD_LOCAL]


@pytest.fixture
def capturing(cuda: CudaPlatform, device: int) -> Iterator[int]:
    """A non-blocking stream, on which no capture is left afterwards."""
    stream = cuda.create_stream(device, non_blocking=True, priority=0)
    yield stream
    if cuda.capture_status(stream, device) is not CaptureStatus.NONE:
        with suppress(PlatformError):
            cuda.end_capture(stream, device)
    cuda.synchronize_stream(stream, device)
    cuda.destroy_stream(stream)


@pytest.fixture
def run(cuda: CudaPlatform, device: int, capturing: int) -> Callable[[int], None]:
    """Return a function that launches a graph once, waits for it and destroys it."""

    def run(graph: int) -> None:
        executable = cuda.instantiate_graph(graph)
        cuda.launch_graph(executable, capturing, device)
        cuda.synchronize_stream(capturing, device)
        cuda.destroy_graph_executable(executable)
        cuda.destroy_graph(graph)

    return run


@pytest.mark.parametrize("mode", CaptureMode)
def test_captured_work_is_done_when_the_graph_is_launched(
    cuda: CudaPlatform, device: int, capturing: int, allocate, download, run, mode: CaptureMode
):
    ptr = allocate(MIB)
    cuda.fill(ptr, 1, MIB, capturing, device)
    cuda.synchronize_stream(capturing, device)
    cuda.begin_capture(capturing, device, mode)
    assert cuda.capture_status(capturing, device) is CaptureStatus.ACTIVE
    cuda.fill(ptr, 2, MIB, capturing, device)
    graph = cuda.end_capture(capturing, device)
    assert cuda.capture_status(capturing, device) is CaptureStatus.NONE
    assert download(ptr, 16) == bytes([1]) * 16
    run(graph)
    assert download(ptr, 16) == bytes([2]) * 16


def test_strided_fills_and_copies_are_captured_even_where_their_kernels_are_not_loaded_yet(
    cuda: CudaPlatform, device: int, capturing: int, allocate, download, run
):
    source, target = allocate(240), allocate(240)
    cuda.fill(source, 0, 240, 0, device)
    cuda.fill(target, 0, 240, 0, device)
    cuda.synchronize_device(device)
    every_third = [StridedMemory(ptr, (10,), (24,), np.dtype(np.float64), device, None) for ptr in (source, target)]
    cuda.begin_capture(capturing, device, CaptureMode.GLOBAL)
    cuda.fill_elements(every_third[0], np.float64(1.5), capturing, device)
    cuda.copy_elements(every_third[1], every_third[0], capturing, device)
    run(cuda.end_capture(capturing, device))
    assert np.frombuffer(download(target, 240), np.float64).tolist() == [1.5, 0.0, 0.0] * 10


@pytest.mark.parametrize("mode", STRICT)
def test_a_call_that_a_strict_capture_does_not_bear_ends_it(
    cuda: CudaPlatform, device: int, capturing: int, mode: CaptureMode
):
    cuda.begin_capture(capturing, device, mode)
    with pytest.raises(RuntimeError) as raised:
        cuda.malloc(MIB)
    refusal = cuda.error_from(raised.value)
    assert refusal is not None
    assert refusal.code == "cudaErrorStreamCaptureUnsupported"
    assert cuda.capture_status(capturing, device) is CaptureStatus.INVALIDATED
    with pytest.raises(PlatformError, match="cudaErrorStreamCaptureInvalidated"):
        cuda.end_capture(capturing, device)
    assert cuda.capture_status(capturing, device) is CaptureStatus.NONE


def test_a_relaxed_thread_allocates_while_a_strict_capture_goes_on(cuda: CudaPlatform, device: int, capturing: int):
    cuda.begin_capture(capturing, device, CaptureMode.GLOBAL)
    before = cuda.exchange_capture_mode(CaptureMode.RELAXED)
    ptr = cuda.malloc(MIB)
    cuda.free(ptr)
    assert cuda.exchange_capture_mode(before) is CaptureMode.RELAXED
    assert cuda.capture_status(capturing, device) is CaptureStatus.ACTIVE
    cuda.destroy_graph(cuda.end_capture(capturing, device))


def test_another_stream_joins_by_waiting_and_has_to_come_back(
    cuda: CudaPlatform, device: int, capturing: int, allocate, download, run
):
    ptr, other = allocate(MIB), cuda.create_stream(device, non_blocking=True, priority=0)
    cuda.begin_capture(capturing, device, CaptureMode.THREAD_LOCAL)
    cuda.wait_for_stream(other, capturing, device, device)
    assert cuda.capture_status(other, device) is CaptureStatus.ACTIVE
    cuda.fill(ptr, 3, MIB, other, device)
    event = cuda.create_event(device)
    cuda.record_event(event, other, device)
    cuda.wait_for_event(event, capturing, device)
    run(cuda.end_capture(capturing, device))
    assert download(ptr, 16) == bytes([3]) * 16
    cuda.destroy_event(event)
    cuda.destroy_stream(other)


def test_a_stream_that_does_not_come_back_is_named_at_the_end(
    cuda: CudaPlatform, device: int, capturing: int, allocate
):
    ptr, other = allocate(MIB), cuda.create_stream(device, non_blocking=True, priority=0)
    cuda.begin_capture(capturing, device, CaptureMode.THREAD_LOCAL)
    cuda.wait_for_stream(other, capturing, device, device)
    cuda.fill(ptr, 3, MIB, other, device)
    with pytest.raises(PlatformError, match="cudaErrorStreamCaptureUnjoined"):
        cuda.end_capture(capturing, device)
    cuda.destroy_stream(other)


def test_the_null_stream_cannot_be_asked_while_a_blocking_stream_is_captured(cuda: CudaPlatform, device: int):
    stream = cuda.create_stream(device, non_blocking=False, priority=0)
    cuda.begin_capture(stream, device, CaptureMode.RELAXED)
    with pytest.raises(PlatformError, match="cudaErrorStreamCaptureImplicit"):
        cuda.capture_status(0, device)
    assert cuda.capture_status(stream, device) is CaptureStatus.ACTIVE
    cuda.destroy_graph(cuda.end_capture(stream, device))
    cuda.destroy_stream(stream)


def test_memory_allocated_in_a_capture_is_known_from_the_first_launch_and_outlives_the_graph(
    cuda: CudaPlatform, device: int, capturing: int, download
):
    if not cuda.device_properties(device).memory_pools:
        pytest.skip("the device has no memory pools")
    cuda.begin_capture(capturing, device, CaptureMode.THREAD_LOCAL)
    ptr = cuda.malloc_from_pool(MIB, cuda.default_pool(device), capturing)
    cuda.fill(ptr, 7, MIB, capturing, device)
    graph = cuda.end_capture(capturing, device)
    assert cuda.pointer_attributes(ptr).kind is MemoryKind.UNKNOWN
    executable = cuda.instantiate_graph(graph)
    for _ in range(2):  # the second launch frees what the first one left
        cuda.launch_graph(executable, capturing, device)
        cuda.synchronize_stream(capturing, device)
    found = cuda.pointer_attributes(ptr)
    assert (found.kind, found.base, found.nbytes, found.pool) == (MemoryKind.CUDA_DEVICE, ptr, MIB, 0)
    assert cuda.graph_memory(device).used >= MIB
    cuda.destroy_graph_executable(executable)
    cuda.destroy_graph(graph)
    assert download(ptr, 16) == bytes([7]) * 16
    cuda.free_async(ptr, capturing)
    cuda.synchronize_stream(capturing, device)
    cuda.trim_graph_memory(device)
    assert cuda.graph_memory(device).reserved == 0


def test_a_graph_that_owns_memory_has_one_executable_at_a_time(cuda: CudaPlatform, device: int, capturing: int):
    if not cuda.device_properties(device).memory_pools:
        pytest.skip("the device has no memory pools")
    cuda.begin_capture(capturing, device, CaptureMode.THREAD_LOCAL)
    cuda.free_async(cuda.malloc_from_pool(MIB, cuda.default_pool(device), capturing), capturing)
    graph = cuda.end_capture(capturing, device)
    executable = cuda.instantiate_graph(graph)
    with pytest.raises(PlatformError, match="cudaErrorNotSupported"):
        cuda.instantiate_graph(graph)
    cuda.destroy_graph_executable(executable)
    cuda.destroy_graph(graph)
