"""Warp itself on a real GPU, each time in a process of its own."""

import pytest

pytestmark = pytest.mark.gpu

SUPPLIERS = ["mempool", "caching", "default", "managed"]
BEGIN = """
import gc, sys, threading
import numpy as np
import allotment as al
import warp as wp
wp.config.log_level = 30
wp.init()
if not wp.is_cuda_available():
    raise SystemExit("Warp sees no CUDA device")

def used():
    return sum(stats.current for stats in al.memory_stats("cuda:0")["cuda:0"].values())

"""
KERNELS = """
import warp as wp

@wp.kernel
def write_late(x: wp.array(dtype=float), value: float, rounds: int):
    i = wp.tid()
    waste = float(i)
    for _ in range(rounds):
        waste = wp.sin(waste) + 1.0
    x[i] = value + wp.min(wp.abs(waste), 0.0)

@wp.kernel
def add(x: wp.array(dtype=float), value: float):
    i = wp.tid()
    x[i] = x[i] + value
"""


@pytest.fixture
def lines_of(output_of, tmp_path):
    """Return a function that runs a script on top of what all of them begin with; Warp reads kernels from a file."""
    pytest.importorskip("warp", reason="Warp is not installed")
    (tmp_path / "kernels_of_test.py").write_text(KERNELS)

    def run(script):
        lines = output_of(f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n" + BEGIN + script)
        return [line for line in lines if not line.startswith(("Module ", "Warp ", "   "))]

    return run


@pytest.mark.parametrize("name", SUPPLIERS)
def test_kernels_compute_in_memory_of_ours(lines_of, name):
    script = f"""
from kernels_of_test import add
al.install("warp", allocator="{name}")
array = wp.array(np.arange(1000.0), dtype=float, device="cuda:0")
wp.launch(add, dim=1000, inputs=[array, 1.0], device="cuda:0")
print(array.numpy()[999], used(), array.memory_kind.name == al.get_allocator("{name}", "cuda:0").memory_kind.name)
part = array[10:20]
del array
print(used(), part.numpy()[0])
del part
print(used())
"""
    mapped = name == "caching"  # whose kind may be one that Warp cannot judge
    first, *rest = lines_of(script)
    assert first.startswith("1000.0 4000")
    assert mapped or first.endswith("True")
    assert rest == ["4000 11.0", "0"]


@pytest.mark.parametrize("name", ["mempool", "caching"])
def test_memory_is_not_reused_while_another_stream_works_on_it(lines_of, name):
    script = f"""
from kernels_of_test import write_late
al.install("warp", allocator="{name}")
other = wp.Stream("cuda:0")
warm = wp.zeros(1024, dtype=float, device="cuda:0")
wp.launch(write_late, dim=1024, inputs=[warm, 1.0, 1], device="cuda:0")
wp.synchronize()
del warm
for _ in range(5):
    first = wp.empty(1024, dtype=float, device="cuda:0")
    wp.launch(write_late, dim=1024, inputs=[first, 7.0, 1_000_000], stream=other)
    del first
    second = wp.empty(1024, dtype=float, device="cuda:0")
    wp.launch(write_late, dim=1024, inputs=[second, 1.0, 1], device="cuda:0")
    wp.synchronize()
    assert (second.numpy() == 1.0).all(), second.numpy()
    del second
print("right")
"""
    assert lines_of(script) == ["right"]


@pytest.mark.parametrize("name", SUPPLIERS)
def test_graphs_that_allocate_are_captured_and_launched(lines_of, name):
    script = f"""
from kernels_of_test import add
al.install("warp", allocator="{name}")
wp.load_module("kernels_of_test", device="cuda:0")
total = wp.zeros(256, dtype=float, device="cuda:0")
dropped = wp.zeros(64, dtype=float, device="cuda:0")
with wp.ScopedCapture(device="cuda:0") as capture:
    step = wp.zeros(256, dtype=float, device="cuda:0")
    wp.launch(add, dim=256, inputs=[step, 2.0], device="cuda:0")
    wp.launch(add, dim=256, inputs=[total, 1.0], device="cuda:0")
    del dropped
    gc.collect()
for _ in range(3):
    wp.capture_launch(capture.graph)
print(total.numpy()[255], step.numpy()[0])
del step
wp.capture_launch(capture.graph)
print(total.numpy()[0])
del capture, total
wp.synchronize()
wp.zeros(8, dtype=float, device="cuda:0")  # and what was dropped in the capture returns
print(used())
"""
    assert lines_of(script) == ["3.0 2.0", "4.0", "0"]


def test_a_capture_that_allotment_follows_draws_from_its_allocator(lines_of):
    script = """
from kernels_of_test import add
al.install("warp", allocator="caching")
wp.load_module("kernels_of_test", device="cuda:0")
total = wp.zeros(256, dtype=float, device="cuda:0")
wp.capture_begin(device="cuda:0")
with al.ScopedCapture(stream=wp.get_stream("cuda:0"), device="cuda:0", external=True) as followed:
    step = wp.empty(256, dtype=float, device="cuda:0")
    print(used())
    wp.launch(add, dim=256, inputs=[total, 1.0], device="cuda:0")
graph = wp.capture_end(device="cuda:0")
wp.capture_launch(graph)
print(total.numpy()[0])
wp.synchronize()
del graph, followed, step, total
gc.collect()
print(used())
"""
    assert lines_of(script) == ["2048", "1.0", "0"]


def test_out_of_memory_is_warp_s_error(lines_of):
    script = """
al.install("warp")
try:
    wp.empty((2**30, 2**14), dtype=wp.uint8, device="cuda:0")
except RuntimeError as error:
    print(type(error).__name__, type(error.__cause__).__name__)
print(wp.zeros(3, dtype=float, device="cuda:0").numpy().sum())
"""
    assert lines_of(script) == ["RuntimeError OutOfMemoryError", "0.0"]


def test_warp_has_its_allocators_back_after_it_is_uninstalled(lines_of):
    script = """
was = wp.get_device_allocator("cuda:0"), wp.is_mempool_enabled("cuda:0")
al.install("warp")
kept = wp.zeros(100, dtype=float, device="cuda:0")
print((wp.get_device_allocator("cuda:0") is not was[0]), wp.is_mempool_enabled("cuda:0") == was[1])
al.uninstall("warp")
print((wp.get_device_allocator("cuda:0"), wp.is_mempool_enabled("cuda:0")) == was, used())
del kept
print(used())
"""
    assert lines_of(script) == ["True True", "True 400", "0"]


def test_it_is_told_that_warp_was_given_another_allocator(lines_of):
    script = """
al.install("warp")
wp.set_cuda_allocator(None)
(status,) = [each for each in al.status() if each.library == "warp"]
print(status.state.value, status.allocator)
"""
    (line,) = lines_of(script)
    assert line.startswith("displaced")
    assert line.endswith("on cuda:0")


@pytest.mark.parametrize("name", SUPPLIERS)
def test_a_process_ends_quietly_with_arrays_left(lines_of, name):
    script = f"""
al.install("warp", allocator="{name}")
kept = wp.zeros(100, dtype=float, device="cuda:0")
cycle = [wp.zeros(100, dtype=float, device="cuda:0")]
cycle.append(cycle)
held = [wp.zeros(100, dtype=float, device="cuda:0")]
thread = threading.Thread(target=held.pop)
thread.start()
thread.join()
print("end", used())
"""
    assert lines_of(script) == ["end 800"]
