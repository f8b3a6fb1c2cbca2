"""RMM itself on a real GPU, each time in a process of its own."""

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("mr")]

SUPPLIERS = ["mempool", "caching", "default", "managed"]
BEGIN = """
import gc, threading
import numpy as np
import allotment as al
import rmm
from rmm.pylibrmm.stream import Stream

def used(device="cuda:0"):
    return sum(stats.current for stats in al.memory_stats(device)[device].values())
"""


@pytest.fixture
def lines_of(output_of):
    """Return a function that runs a script on top of what all of them begin with."""
    return lambda script: output_of(BEGIN + script)


@pytest.mark.parametrize("name", SUPPLIERS)
def test_buffers_on_several_streams_keep_their_data(lines_of, name):
    script = f"""
al.install("rmm", allocator="{name}")
streams, buffers = [Stream() for _ in range(3)], []
for turn in range(20):
    for number, stream in enumerate(streams):
        data = np.full(10_000, 10 * turn + number, "u1").tobytes()
        buffers.append((rmm.DeviceBuffer.to_device(data, stream=stream), data))
        if turn % 3 == 0:
            buffers.pop(len(buffers) // 2)
[stream.synchronize() for stream in streams]
print(all(buffer.tobytes() == data for buffer, data in buffers), used() == 10_000 * len(buffers))
buffers.clear()
stats = al.get_allocator("{name}", "cuda:0").statistics()
print(used(), stats.allocations == stats.frees, stats.failed_frees)
"""
    assert lines_of(script) == ["True True", "0 True 0"]


@pytest.mark.parametrize("name", SUPPLIERS)
def test_another_thread_may_free(lines_of, name):
    script = f"""
al.install("rmm", allocator="{name}")
buffers = [rmm.DeviceBuffer(size=1000 * n) for n in range(1, 50)]
thread = threading.Thread(target=buffers.clear)
thread.start()
thread.join()
print(used())
"""
    assert lines_of(script) == ["0"]


def test_out_of_memory_is_a_memory_error_that_says_what_ours_says(lines_of):
    script = """
al.install("rmm", allocator="caching")
try:
    rmm.DeviceBuffer(size=2**50)
except MemoryError as error:
    print("allocator 'caching' on 'cuda:0'" in str(error))
print(rmm.DeviceBuffer(size=1000).size)
"""
    assert lines_of(script) == ["True", "1000"]


@pytest.mark.parametrize("name", SUPPLIERS)
def test_a_collection_in_a_capture_frees_after_it(lines_of, name):
    script = f"""
al.install("rmm", allocator="{name}")
cycle = [rmm.DeviceBuffer(size=1000)]
cycle.append(cycle)
del cycle
with al.ScopedCapture("cuda:0") as capture:
    gc.collect()
print(used(), capture.graph is not None)
"""
    assert lines_of(script) == ["0 True"]


@pytest.mark.parametrize("name", SUPPLIERS)
def test_buffers_outlive_scope_and_bridge(lines_of, name):
    script = f"""
al.install("rmm")
with al.ScopedAllocator("cuda:0", "{name}"):
    buffer = rmm.DeviceBuffer.to_device(b"x" * 1000)
al.uninstall("rmm")
gc.collect()
own = rmm.DeviceBuffer(size=2000)
print(used(), buffer.tobytes() == b"x" * 1000)
del buffer
print(used(), own.size)
"""
    assert lines_of(script) == ["1000 True", "0 2000"]


def test_cupy_through_rmm_draws_from_allotment(lines_of):
    pytest.importorskip("cupy", reason="CuPy is not installed")
    script = """
import cupy as cp
from rmm.allocators.cupy import rmm_cupy_allocator
al.install("rmm", allocator="caching")
cp.cuda.set_allocator(rmm_cupy_allocator)
with cp.cuda.Stream():
    x = cp.arange(1000.0)
    y = (x * 2).get()
print((y == 2 * np.arange(1000.0)).all(), used())
del x
print(used())
"""
    assert lines_of(script) == ["True 8000", "0"]


@pytest.mark.parametrize("name", SUPPLIERS)
def test_the_process_ends_well_with_buffers_that_live(lines_of, name):
    script = f"""
al.install("rmm", allocator="{name}")
buffers = [rmm.DeviceBuffer(size=1000) for _ in range(3)]
cycle = [rmm.DeviceBuffer(size=1000)]
cycle.append(cycle)
print(used())
"""
    assert lines_of(script) == ["4000"]


@pytest.mark.multi_gpu
@pytest.mark.parametrize("name", SUPPLIERS)
def test_memory_is_that_of_the_current_device(lines_of, name):
    script = f"""
from cuda.bindings import runtime
al.install("rmm", allocator="{name}")
buffers = []
for ordinal in (1, 0, 1):
    with al.ScopedDevice(f"cuda:{{ordinal}}"):
        buffers.append(rmm.DeviceBuffer.to_device(bytes([ordinal]) * 1000))
print(used("cuda:0"), used("cuda:1"))
print([runtime.cudaPointerGetAttributes(buffer.ptr)[1].device for buffer in buffers])
for ordinal, buffer in zip((1, 0, 1), buffers):
    with al.ScopedDevice(f"cuda:{{ordinal}}"):
        assert buffer.tobytes() == bytes([ordinal]) * 1000
del buffer
buffers.clear()
print(used("cuda:0"), used("cuda:1"))
"""
    assert lines_of(script) == ["1000 2000", "[1, 0, 1]", "0 0"]
