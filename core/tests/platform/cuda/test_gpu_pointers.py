"""What is known about addresses, on a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from allotment.memory_kind import MemoryKind
from allotment.platform import HOST_LOCATION

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment.platform.cuda import CudaPlatform

pytestmark = pytest.mark.gpu

NBYTES = 1 << 20


@pytest.mark.parametrize(
    ("allocate", "free", "kind"),
    [
        ("malloc", "free", MemoryKind.CUDA_DEVICE),
        ("malloc_managed", "free", MemoryKind.CUDA_MANAGED),
        ("host_alloc", "host_free", MemoryKind.PINNED),
    ],
)
def test_memory_of_no_pool_is_known_from_its_first_to_its_last_byte_while_it_lives(
    cuda: CudaPlatform, device: int, allocate: str, free: str, kind: MemoryKind
):
    ptr = getattr(cuda, allocate)(NBYTES)
    for address in (ptr, ptr + 512, ptr + NBYTES - 1):
        found = cuda.pointer_attributes(address)
        assert (found.kind, found.device, found.pool) == (kind, device, 0)
        assert (found.base, found.nbytes) == (ptr, NBYTES)
        assert found.accessible
    getattr(cuda, free)(ptr)
    assert cuda.pointer_attributes(ptr).kind is MemoryKind.UNKNOWN


def test_pool_memory_names_its_pool(cuda: CudaPlatform, device: int):
    pool = cuda.default_pool(device)
    ptr = cuda.malloc_from_pool(NBYTES, pool, 0)
    found = cuda.pointer_attributes(ptr + 512)
    assert (found.kind, found.device, found.pool) == (MemoryKind.CUDA_MEMPOOL, device, pool)
    assert (found.base, found.nbytes) == (ptr, NBYTES)
    cuda.free_async(ptr, 0)
    assert cuda.pointer_attributes(ptr).kind is MemoryKind.UNKNOWN
    cuda.synchronize_stream(0, device)


@pytest.mark.parametrize("address", ["pageable", "null", "made up"])
def test_an_unknown_address_is_an_answer_and_no_error(cuda: CudaPlatform, device: int, address: str):
    page = np.zeros(64)
    ptr = {"pageable": page.ctypes.data, "null": 0, "made up": 0x7F00DEAD0000}[address]
    found = cuda.pointer_attributes(ptr)
    assert (found.kind, found.device) == (MemoryKind.UNKNOWN, HOST_LOCATION)
    assert (found.base, found.nbytes, found.pool) == (0, 0, 0)


def test_the_byte_after_a_block_is_not_of_it(cuda: CudaPlatform, allocate: Callable[[int], int]):
    ptr = allocate(NBYTES)
    assert cuda.pointer_attributes(ptr + NBYTES).base != ptr


def test_memory_of_a_graph_that_has_not_run_is_unknown(cuda: CudaPlatform, device: int):
    runtime = cuda._runtime
    stream = cuda.create_stream(device, non_blocking=True, priority=0)
    runtime.streamBeginCapture(stream)
    ptr = runtime.mallocAsync(NBYTES, stream)
    kind = cuda.pointer_attributes(ptr).kind
    runtime.freeAsync(ptr, stream)
    runtime.graphDestroy(runtime.streamEndCapture(stream))
    cuda.destroy_stream(stream)
    assert kind is MemoryKind.UNKNOWN


def test_attributes_may_be_asked_in_a_strict_capture(cuda: CudaPlatform, device: int, allocate: Callable[[int], int]):
    runtime = cuda._runtime
    ptr = allocate(NBYTES)
    stream = cuda.create_stream(device, non_blocking=True, priority=0)
    runtime.streamBeginCapture(stream, runtime.streamCaptureModeGlobal)
    found = cuda.pointer_attributes(ptr)
    graph = runtime.streamEndCapture(stream)
    runtime.graphDestroy(graph)
    cuda.destroy_stream(stream)
    assert (found.kind, found.base) == (MemoryKind.CUDA_DEVICE, ptr)


@pytest.mark.multi_gpu
def test_accessible_is_what_the_current_device_may_touch(cuda: CudaPlatform, device: int):
    cuda.set_current_device(1)
    ptr = cuda.malloc(NBYTES)
    there = cuda.pointer_attributes(ptr)
    cuda.set_current_device(device)
    here = cuda.pointer_attributes(ptr)
    assert (there.device, there.accessible) == (1, True)
    assert (here.device, here.accessible) == (1, False)
    cuda.free(ptr)
