"""CuPy itself on a real GPU, each time in a process of its own."""

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cupy")]

SUPPLIERS = ["mempool", "caching", "default", "managed"]
BEGIN = """
import gc, threading
import numpy as np
import allotment as al
import cupy as cp

def used(device="cuda:0"):
    return sum(stats.current for stats in al.memory_stats(device)[device].values())

def garbage(size=1000):
    cycle = [cp.zeros(size, "u1")]
    cycle.append(cycle)
"""


@pytest.fixture
def lines_of(output_of):
    """Return a function that runs a script on top of what all of them begin with."""
    return lambda script, **environment: output_of(BEGIN + script, **environment)


@pytest.mark.parametrize("name", SUPPLIERS)
def test_ufuncs_on_several_streams_compute_in_memory_of_ours(lines_of, name):
    script = f"""
al.install("cupy", allocator="{name}")
streams, found = [cp.cuda.Stream(non_blocking=bool(n)) for n in range(3)], []
for turn in range(20):
    for number, stream in enumerate(streams):
        with stream:
            x = cp.arange(100_000, dtype="f8") * (number + 1)
            y = cp.sqrt(x * x) + turn
            found.append((number, turn, y))
            del x, y
cp.cuda.Device().synchronize()
values = np.arange(100_000.0)
print(all((y.get() == values * (number + 1) + turn).all() for number, turn, y in found))
print(used() == sum(y.nbytes for *_, y in found))
found.clear()
gc.collect()
stats = al.get_allocator("{name}", "cuda:0").statistics()
print(used(), stats.allocations == stats.frees, stats.failed_frees)
"""
    assert lines_of(script) == ["True", "True", "0 True 0"]


def test_the_caching_allocator_is_called_in_c(lines_of):
    script = """
al.install("cupy")
al.set_cuda_allocator("caching")
arrays = [cp.empty(100, "u1") for _ in range(5)]
print([type(array.data.mem).__name__ for array in arrays[1:]] == 4 * ["CFunctionAllocatorMemory"], used())
with al.measure() as found:
    arrays.append(cp.empty(100, "u1"))
print(type(arrays[-1].data.mem).__name__, found.result.allocations)
with al.ScopedAllocator("cuda:0", "mempool"):
    arrays.append(cp.empty(100, "u1"))
print(al.get_allocator("mempool", "cuda:0").statistics().current, used())
arrays.clear()
print(used())
"""
    assert lines_of(script) == ["True 500", "Block 1", "100 700", "0"]


@pytest.mark.parametrize("name", ["mempool", "caching"])
def test_threads_with_streams_of_their_own_do_not_disturb_each_other(lines_of, name):
    script = f"""
al.install("cupy", allocator="{name}")
cp.add(cp.full(1000, 1.0), 1.0)
faults = []

def work(seed):
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        for turn in range(200):
            size = 1000 + 1000 * ((turn * 7 + seed) % 50)
            x = cp.full(size, float(seed))
            y = cp.add(x, 1.0)
            del x
            z = cp.full(size, -1.0)
            if turn % 20 == 0 and not (y.get(stream=stream) == seed + 1).all():
                faults.append((seed, turn))
            del y, z
    stream.synchronize()

threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
gc.collect()
print(faults, used())
"""
    assert lines_of(script) == ["[] 0"]


@pytest.mark.parametrize("name", SUPPLIERS)
def test_another_thread_may_free(lines_of, name):
    script = f"""
al.install("cupy", allocator="{name}")
arrays = [cp.ones(n * 1000) for n in range(1, 50)]
thread = threading.Thread(target=arrays.clear)
thread.start()
thread.join()
print(used())
"""
    assert lines_of(script) == ["0"]


@pytest.mark.parametrize("name", SUPPLIERS)
def test_out_of_memory_is_cupys_error_and_carries_ours(lines_of, name):
    script = f"""
al.install("cupy", allocator="{name}")
for size in (2**50, 2**43):
    try:
        cp.empty(size, "u1")
    except cp.cuda.memory.OutOfMemoryError as error:
        print(type(error).__name__, isinstance(error.__cause__, al.OutOfMemoryError), "{name}" in str(error))
array = cp.ones(1000)
print(float(array.sum()))
"""
    expected = "OutOfMemoryError True True"
    lines = lines_of(script)
    assert lines[0] == expected
    assert lines[-1] == "1000.0"


@pytest.mark.parametrize("name", SUPPLIERS)
def test_a_collection_in_a_capture_of_ours_does_not_end_it(lines_of, name):
    script = f"""
al.install("cupy", allocator="{name}")
stream = cp.cuda.Stream(non_blocking=True)
with stream:
    x = cp.zeros(1000, "f4")
    cp.add(x, 1, out=x)
stream.synchronize()
garbage()
before = used()
with stream, al.ScopedCapture("cuda:0", stream) as capture:
    gc.collect()
    cp.add(x, 1, out=x)
print(before - used())
for _ in range(3):
    capture.graph.launch()
al.synchronize_device("cuda:0")
print(x.get()[0])
"""
    assert lines_of(script) == ["1000", "4.0"]


@pytest.mark.parametrize("name", ["mempool", "caching"])
def test_a_graph_of_ours_has_memory_of_its_own(lines_of, name):
    script = f"""
al.install("cupy", allocator="{name}")
stream = cp.cuda.Stream(non_blocking=True)
with stream:
    x = cp.zeros(1000, "f4")
    cp.multiply(cp.add(x, 1, out=x), 2)
stream.synchronize()
with stream, al.ScopedCapture("cuda:0", stream) as capture:
    cp.add(x, 1, out=x)
    y = cp.multiply(x, 2)
for _ in range(3):
    capture.graph.launch()
al.synchronize_device("cuda:0")
print(x.get()[0], y.get()[0])
del y, x, capture
gc.collect()
al.synchronize_device("cuda:0")
print(used())
"""
    assert lines_of(script) == ["4.0 8.0", "0"]


@pytest.mark.parametrize("non_blocking", [False, True])
@pytest.mark.parametrize("name", SUPPLIERS)
def test_a_collection_in_a_capture_of_cupys_does_not_end_it(lines_of, name, non_blocking):
    script = f"""
al.install("cupy", allocator="{name}")
stream = cp.cuda.Stream(non_blocking={non_blocking})
with stream:
    x = cp.zeros(1000, "f4")
    cp.multiply(cp.add(x, 1, out=x), 2)
    stream.synchronize()
    garbage()
garbage()
stream.synchronize()
cp.cuda.Device().synchronize()
with stream:
    stream.begin_capture()
    cp.add(x, 1, out=x)
    y = cp.multiply(x, 2)
    gc.collect()
    graph = stream.end_capture()
for _ in range(3):
    graph.launch(stream)
stream.synchronize()
print(x.get()[0], y.get()[0])
del graph, x, y
cp.empty(10)
gc.collect()
print(used())
"""
    assert lines_of(script) == ["4.0 8.0", "0"]


@pytest.mark.parametrize("name", SUPPLIERS)
def test_blocks_outlive_scope_setting_and_bridge(lines_of, name):
    script = f"""
al.install("cupy")
with al.ScopedAllocator("cuda:0", "{name}"):
    array = cp.arange(1000)
al.set_device_allocator("cuda:0", "{name}")
other = cp.arange(1000)
al.set_device_allocator("cuda:0", "default")
al.uninstall("cupy")
own = cp.arange(1000)
print(used(), (array == own).all() and (other == own).all())
del array, other
print(used(), type(own.data.mem).__name__)
"""
    assert lines_of(script) == ["16000 True", "0 PooledMemory"]


def test_a_block_of_using_allocator_draws_from_ours(lines_of):
    script = """
from allotment_cupy_bridge import using_allocator
with using_allocator("caching"):
    array = cp.arange(1000)
own = cp.arange(1000)
print(al.get_allocator("caching", "cuda:0").statistics().current, type(own.data.mem).__name__)
del array
print(used())
"""
    assert lines_of(script) == ["8000 PooledMemory", "0"]


@pytest.mark.parametrize("name", SUPPLIERS)
@pytest.mark.parametrize("ending", ["", "raise SystemExit(0)"])
def test_the_process_ends_well_with_arrays_that_live(lines_of, name, ending):
    script = f"""
al.install("cupy", allocator="{name}")
streams = [cp.cuda.Stream() for _ in range(2)]
arrays = []
for stream in streams:
    with stream:
        arrays.append(cp.arange(1000) * 2)
cycle = [cp.ones(10)]
cycle.append(cycle)
print(int(arrays[0].sum()))
{ending}
"""
    assert lines_of(script) == ["999000"]


def test_streams_that_cupy_drops_take_no_memory_with_them(lines_of):
    script = """
al.install("cupy", allocator="caching")
total = 0.0
for turn in range(300):
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        x = cp.full(100_000, float(turn))
        total += float(x.sum())
    del stream, x
gc.collect()
print(total == 100_000 * sum(range(300)), used())
account = al.get_allocator("caching", "cuda:0")
account.trim()
print(account.statistics().reserved)
"""
    assert lines_of(script) == ["True 0", "0"]


@pytest.mark.multi_gpu
@pytest.mark.parametrize("name", SUPPLIERS)
def test_memory_is_that_of_the_current_device(lines_of, name):
    script = f"""
al.install("cupy", allocator="{name}")

def summed(array):
    with array.device:
        return int(array.sum())

arrays = []
for turn in range(3):
    for ordinal in (1, 0):
        with cp.cuda.Device(ordinal):
            arrays.append(cp.arange(1000) + turn)
print(used("cuda:0"), used("cuda:1"), [array.device.id for array in arrays[:2]])
sums = [summed(array) for array in arrays]
print(sums == [499500 + 1000 * (n // 2) for n in range(6)])
arrays.clear()
gc.collect()
print(used("cuda:0"), used("cuda:1"))
"""
    assert lines_of(script) == ["24000 24000 [1, 0]", "True", "0 0"]


@pytest.mark.multi_gpu
@pytest.mark.parametrize(
    ("name", "grant"),
    [
        ("mempool", "al.set_mempool_access_enabled"),
        ("caching", "al.set_peer_access_enabled"),
        ("default", "al.set_peer_access_enabled"),
    ],
)
def test_kernels_reach_memory_of_another_device_under_a_grant(lines_of, name, grant):
    script = f"""
import warnings
warnings.filterwarnings("ignore", "The device where the array resides")  # CuPy's, of each such kernel
al.install("cupy", allocator="{name}")
with cp.cuda.Device(1):
    array = cp.arange(1000)
{grant}("cuda:1", "cuda:0", True)
with cp.cuda.Device(0):
    print(int(array.sum()), int((array + 1).sum()))
"""
    assert lines_of(script) == ["499500 500500"]
