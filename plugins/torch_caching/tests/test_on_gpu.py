"""PyTorch's memory in Allotment, on a real device, in a process of its own each time."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
    pytest.mark.skipif(find_spec("cupy") is None, reason="CuPy is not installed"),
]

BEGIN = """
import allotment as al
al.init(platform="cuda", quiet=True)
al.configure(allocator="torch-caching")
import torch
account = al.get_allocator("torch-caching", "cuda:0")
"""


def test_arrays_and_tensors_share_one_cache(output_of):
    lines = output_of(
        BEGIN
        + """
before = torch.cuda.memory_allocated()
array = al.full(1 << 20, 3.0, device="cuda:0", dtype=al.float32)
print(torch.cuda.memory_allocated() - before == 4 << 20, int(array.numpy().sum()))
ptr = array.ptr
del array
tensor = torch.empty(1 << 20, device="cuda")
print(tensor.data_ptr() == ptr, account.statistics().reserved == torch.cuda.memory_reserved())
del tensor
print(account.trim() > 0, torch.cuda.memory_reserved())
"""
    )

    assert lines == ["True 3145728", "True True", "True 0"]


def test_a_shortage_is_ours_with_what_pytorch_says(output_of):
    lines = output_of(
        BEGIN
        + """
free, total = torch.cuda.mem_get_info()
held = torch.empty(total * 7 // 10, dtype=torch.uint8, device="cuda")
try:
    account.allocate(total // 2)
except al.OutOfMemoryError as error:
    print("CUDA out of memory" in str(error))
"""
    )

    assert lines == ["True"]


def test_a_graph_owns_what_it_allocates(output_of):
    lines = output_of(
        BEGIN
        + """
stream = al.Stream("cuda:0", non_blocking=True)
with al.ScopedStream(stream):
    source = al.full(1 << 20, 2.0, device="cuda:0", dtype=al.float32)
    with al.ScopedCapture(stream=stream) as capture:
        copy = al.clone(source)
    al.capture_launch(capture.graph, stream=stream)
    stream.synchronize()
    noise = [al.full(1 << 20, -1.0, device="cuda:0", dtype=al.float32) for _ in range(5)]
    al.capture_launch(capture.graph, stream=stream)
    stream.synchronize()
    print(int(copy.numpy().sum()), {int(each.numpy().sum()) for each in noise})
"""
    )

    assert lines == ["2097152 {-1048576}"]


@pytest.mark.parametrize(("end", "status"), [("pass", 0), ("raise SystemExit(3)", 3)])
def test_the_process_ends_well(output_of, end, status):
    output_of(
        BEGIN + f"kept = al.zeros(1000, device='cuda:0'), torch.ones(1000, device='cuda')\n{end}\n", status=status
    )


@pytest.mark.skipif(find_spec("allotment_torch_bridge") is None, reason="the bridge to PyTorch is not installed")
def test_pytorch_s_bridge_does_not_draw_from_pytorch(output_of):
    lines = output_of(
        BEGIN
        + """
try:
    al.install("torch")
except al.BridgeError as error:
    print("draws from PyTorch itself" in str(error))
al.install("torch", allocator="mempool")
array = al.full(1 << 20, 3.0, device="cuda:0", dtype=al.float32)
print(al.get_allocator("mempool", "cuda:0").statistics().current >= 4 << 20, int(array.numpy().sum()))
"""
    )

    assert lines == ["True", "True 3145728"]
