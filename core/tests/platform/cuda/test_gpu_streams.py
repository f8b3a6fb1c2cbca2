"""Streams and events, on a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from allotment.errors import PlatformError

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment.platform.cuda import CudaPlatform

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("non_blocking", [False, True])
def test_a_new_stream_has_no_work_and_its_flags(cuda: CudaPlatform, device: int, non_blocking: bool):
    stream = cuda.create_stream(device, non_blocking=non_blocking, priority=0)
    assert stream > 0
    assert cuda.stream_is_done(stream, device)
    assert cuda._runtime.streamGetFlags(stream) == int(non_blocking)
    cuda.destroy_stream(stream)


def test_a_stream_has_the_priority_asked_for(cuda: CudaPlatform, device: int):
    stream = cuda.create_stream(device, non_blocking=True, priority=-1)
    assert cuda._runtime.streamGetPriority(stream) == -1
    cuda.destroy_stream(stream)


def test_a_synchronised_stream_is_done(cuda: CudaPlatform, device: int, stream: int, allocate: Callable[[int], int]):
    cuda.fill(allocate(1 << 20), 1, 1 << 20, stream, device)
    cuda.synchronize_stream(stream, device)
    assert cuda.stream_is_done(stream, device)


def test_an_event_is_done_after_its_synchronisation(
    cuda: CudaPlatform, device: int, stream: int, allocate: Callable[[int], int]
):
    event = cuda.create_event(device)
    cuda.fill(allocate(1 << 20), 1, 1 << 20, stream, device)
    cuda.record_event(event, stream, device)
    cuda.synchronize_event(event)
    assert cuda.event_is_done(event)
    cuda.destroy_event(event)


def test_an_event_that_was_never_recorded_is_done(cuda: CudaPlatform, device: int):
    event = cuda.create_event(device)
    assert cuda.event_is_done(event)
    cuda.destroy_event(event)


def test_a_waiting_stream_sees_what_the_awaited_wrote(
    cuda: CudaPlatform, device: int, allocate: Callable[[int], int], download: Callable[[int, int], bytes]
):
    nbytes = 64 << 20
    source, target = allocate(nbytes), allocate(nbytes)
    first, second = (cuda.create_stream(device, non_blocking=True, priority=0) for _ in range(2))
    cuda.fill(source, 0, nbytes, first, device)
    cuda.fill(source, 7, nbytes, first, device)
    cuda.wait_for_stream(second, first, device, device)
    cuda.copy(target, source, nbytes, second, device)
    assert set(download(target, nbytes)) == {7}
    for stream in (first, second):
        cuda.destroy_stream(stream)


@pytest.mark.multi_gpu
def test_a_stream_may_wait_for_one_of_another_device(cuda: CudaPlatform, device: int):
    here = cuda.create_stream(device, non_blocking=True, priority=0)
    there = cuda.create_stream(1, non_blocking=True, priority=0)
    cuda.wait_for_stream(here, there, device, 1)
    cuda.synchronize_stream(here, device)
    assert cuda.current_device() == device
    cuda.destroy_stream(here)
    cuda.destroy_stream(there)


def test_an_event_that_is_queried_in_a_capture_is_an_error_and_no_answer(cuda: CudaPlatform, device: int):
    runtime = cuda._runtime
    stream = cuda.create_stream(device, non_blocking=True, priority=0)
    event = cuda.create_event(device)
    runtime.streamBeginCapture(stream)
    cuda.record_event(event, stream, device)
    with pytest.raises(PlatformError, match=r"^cudaEventQuery failed: cudaError"):
        cuda.event_is_done(event)
    with pytest.raises(runtime.CUDARuntimeError):
        runtime.streamEndCapture(stream)
    cuda.destroy_event(event)
    cuda.destroy_stream(stream)
