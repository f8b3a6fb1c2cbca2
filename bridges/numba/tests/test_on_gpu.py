"""Numba itself on a real GPU, each time in a process of its own: it chooses its memory manager once."""

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("driver")]

SUPPLIERS = ["mempool", "caching", "default", "managed"]
BEGIN = """
import gc, sys, threading
import numpy as np
np.row_stack = getattr(np, "row_stack", np.vstack)  # which Numba-CUDA 0.30 asks NumPy 2.5 for, in vain
import allotment as al

def used():
    return sum(stats.current for stats in al.memory_stats("cuda:0")["cuda:0"].values())
"""


@pytest.fixture
def lines_of(output_of):
    """Return a function that runs a script on top of what all of them begin with."""

    def run(script, **environment):
        return output_of(BEGIN + script, **environment)

    return run


@pytest.mark.parametrize("name", SUPPLIERS)
def test_kernels_compute_in_memory_of_ours(lines_of, name):
    script = f"""
al.install("numba", allocator="{name}")
from numba import cuda

@cuda.jit
def double(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= 2

array = cuda.to_device(np.arange(1000.0))
double[4, 256](array)
print((array.copy_to_host() == 2 * np.arange(1000.0)).all(), used())
view = array[100:200]
del array
gc.collect()
print(used(), view.copy_to_host()[0])
del view
print(used(), al.get_allocator("{name}", "cuda:0").statistics().allocations > 0)
"""
    assert lines_of(script) == ["True 8000", "8000 200.0", "0 True"]


def test_a_host_argument_of_a_kernel_leaves_nothing_behind(lines_of):
    script = """
al.install("numba", allocator="caching")
from numba import cuda

@cuda.jit
def double(x):
    x[cuda.grid(1)] *= 2

values = np.arange(256.0)
double[1, 256](values)
cuda.synchronize()
gc.collect()
print(values[255], used())
"""
    assert lines_of(script) == ["510.0 0"]


def test_the_environment_alone_is_enough(lines_of):
    script = """
from numba import cuda
array = cuda.to_device(np.arange(100.0))
print(type(cuda.current_context().memory_manager).__name__, used())
"""
    lines = lines_of(script, NUMBA_CUDA_MEMORY_MANAGER="allotment_numba_bridge")
    assert lines == ["AllotmentNumbaManager 800"]


def test_a_context_of_numba_s_is_too_late(lines_of):
    script = """
from numba import cuda
cuda.current_context()
try:
    al.install("numba")
except al.BridgeError as error:
    print(error.cause)
"""
    (line,) = lines_of(script)
    assert line.startswith("Numba has a context on device 0 already")
    assert line.endswith("NumbaCUDAMemoryManager")


def test_numba_allocates_for_itself_after_it_is_uninstalled_and_our_blocks_return(lines_of):
    script = """
al.install("numba")
from numba import cuda
before = cuda.to_device(np.arange(100.0))
al.uninstall("numba")
after = cuda.to_device(np.arange(200.0))
print(used(), after.copy_to_host()[-1])
del before, after
print(used())
al.install("numba")
again = cuda.to_device(np.arange(300.0))
print(used())
"""
    assert lines_of(script) == ["800 199.0", "0", "2400"]


def test_out_of_memory_is_numba_s_error(lines_of):
    script = """
al.install("numba")
from numba import cuda
from numba.cuda.cudadrv.driver import CudaAPIError
try:
    cuda.device_array(2**45, dtype=np.uint8)
except CudaAPIError as error:
    print(error.code.name, type(error.__cause__).__name__)
print(cuda.device_array(10).size)
"""
    assert lines_of(script) == ["CUDA_ERROR_OUT_OF_MEMORY OutOfMemoryError", "10"]


@pytest.mark.parametrize("name", ["mempool", "caching"])
def test_memory_is_not_reused_while_another_stream_works_on_it(lines_of, name):
    script = f"""
al.install("numba", allocator="{name}")
from numba import cuda

@cuda.jit
def write_late(x, value, naps):
    for _ in range(naps):
        cuda.nanosleep(1000)
    x[cuda.grid(1)] = value

one, other = cuda.stream(), cuda.stream()
warm = cuda.device_array(1024)
write_late[4, 256, one](warm, 1.0, 0)
cuda.synchronize()
del warm
for _ in range(5):
    first = cuda.device_array(1024)
    write_late[4, 256, one](first, 7.0, 20_000)
    del first
    second = cuda.device_array(1024)
    write_late[4, 256, other](second, 1.0, 0)
    cuda.synchronize()
    assert (second.copy_to_host() == 1.0).all(), second.copy_to_host()
    del second
print("right")
"""
    assert lines_of(script) == ["right"]


def test_memory_may_be_dropped_in_another_thread_and_while_a_graph_is_captured(lines_of):
    script = """
al.install("numba", allocator="default")
from numba import cuda
held = [cuda.device_array(100) for _ in range(3)]
thread = threading.Thread(target=held.pop)
thread.start()
thread.join()
print(used())
with al.ScopedCapture(stream=al.Stream("cuda:0", non_blocking=True)):
    held.pop()
    gc.collect()
print(used())
with cuda.defer_cleanup():
    held.pop()
    print(used())
print(used())
"""
    assert lines_of(script) == ["1600", "800", "800", "0"]


@pytest.mark.parametrize("name", SUPPLIERS)
def test_a_process_ends_quietly_with_arrays_left(lines_of, name):
    script = f"""
al.install("numba", allocator="{name}")
from numba import cuda
kept = cuda.to_device(np.arange(100.0))
cycle = [cuda.to_device(np.arange(100.0))]
cycle.append(cycle)
print("end")
"""
    assert lines_of(script) == ["end"]


@pytest.mark.parametrize("name", ["default", "mempool", "caching"])
def test_memory_can_be_had_after_numba_reset_its_context(lines_of, name):
    script = f"""
al.install("numba", allocator="{name}")
from numba import cuda
kept = cuda.to_device(np.arange(100.0))
cuda.current_context().reset()
print(used())
again = cuda.to_device(np.arange(100.0))
print(again.copy_to_host()[99], used())
del kept
print(used())
"""
    assert lines_of(script) == ["0", "99.0 800", "800"]


@pytest.mark.parametrize(("name", "answer"), [("default", "IpcArrayHandle"), ("mempool", "UnsupportedError")])
def test_an_array_can_be_shared_with_another_process_where_its_memory_has_handles(lines_of, name, answer):
    script = f"""
al.install("numba", allocator="{name}")
from numba import cuda
array = cuda.to_device(np.arange(100.0))
try:
    print(type(array.get_ipc_handle()).__name__)
except al.UnsupportedError as error:
    print(type(error).__name__)
"""
    assert lines_of(script) == [answer]
