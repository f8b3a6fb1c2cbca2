"""RMM itself on a real GPU, each time in a process of its own: its registry of resources is the process's."""

import pytest

BEGIN = """
import gc
import numpy as np
import rmm
import allotment as al
"""

RESOURCES = [
    {"resource": "current"},
    {"resource": "cuda"},
    {"resource": "async", "release_threshold": "1 GiB"},
    {"resource": "managed"},
    {"resource": "pool", "initial_size": "256 MiB", "maximum_size": "1 GiB"},
    {"resource": "pool", "initial_size": "256 MiB", "upstream": "managed"},
    {"resource": "arena", "initial_size": "1 GiB"},
    {"resource": "binning", "initial_size": "256 MiB"},
]

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _rmm():
    pytest.importorskip("rmm", reason="RMM is not installed")


@pytest.fixture
def lines_of(output_of):
    """Return a function that runs a script on top of what all of them begin with."""
    return lambda script: output_of(BEGIN + script)


@pytest.mark.parametrize("options", RESOURCES, ids=lambda options: "-".join(map(str, options.values())))
def test_arrays_on_several_streams_keep_their_data(lines_of, options):
    script = f"""
account = al.get_allocator("rmm", "cuda:0", **{options})
al.set_device_allocator("cuda:0", account)
streams, arrays = [al.Stream("cuda:0") for _ in range(3)], []
for turn in range(20):
    for number, stream in enumerate(streams):
        with al.ScopedStream(stream):
            arrays.append((al.full(10_000 * (number + 1), 10 * turn + number, "int32", "cuda:0"), 10 * turn + number))
        if turn % 3 == 0:
            arrays.pop(len(arrays) // 2)
al.synchronize_device("cuda:0")
print(all((array.numpy() == value).all() for array, value in arrays))
print(account.statistics().current == sum(array.nbytes for array, _ in arrays), account.memory_kind.name)
arrays.clear()
print(account.statistics().current, account.statistics().failed_frees)
"""
    kinds = {"async": "CUDA_MEMPOOL", "managed": "CUDA_MANAGED"}
    kind = kinds.get(options["resource"], "CUDA_MANAGED" if "upstream" in options else "CUDA_DEVICE")
    assert lines_of(script) == ["True", f"True {kind}", "0 0"]


def test_a_pool_says_what_it_holds_and_refuses_what_it_cannot(lines_of):
    script = """
import rmm
rmm.set_logging_level(rmm.level_enum.off)  # it prints the refusal
account = al.get_allocator("rmm", "cuda:0", resource="pool", initial_size="256 MiB", maximum_size="512 MiB")
print(account.statistics().reserved)
ptr = account.allocate(2**20)
try:
    account.allocate(2**30)
except al.OutOfMemoryError as error:
    print("rmm" in str(error), isinstance(error.__cause__, MemoryError))
account.deallocate(ptr, 2**20)
account.close()
"""
    assert lines_of(script) == [str(256 * 2**20), "True True"]


def test_a_pool_of_the_driver_is_captured(lines_of):
    script = """
account = al.get_allocator("rmm", "cuda:0", resource="async")
al.set_device_allocator("cuda:0", account)
source = al.ones(1000, "float32", "cuda:0")
with al.ScopedCapture("cuda:0") as capture:
    array = al.empty(1000, "float32", "cuda:0")
    al.copy(array, source)
for _ in range(2):
    capture.graph.launch()
al.synchronize_device("cuda:0")
print((array.numpy() == 1).all())
"""
    assert lines_of(script) == ["True"]


def test_the_guides_recipe_shares_one_pool_between_pytorch_and_ours(lines_of):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    script = """
rmm.reinitialize(pool_allocator=True, initial_pool_size=2**30)
counted = rmm.mr.StatisticsResourceAdaptor(rmm.mr.get_per_device_resource(0))
rmm.mr.set_per_device_resource(0, counted)

import torch
from rmm.allocators.torch import rmm_torch_allocator
torch.cuda.memory.change_current_allocator(rmm_torch_allocator)

import allotment as wp
wp.set_cuda_allocator(wp.utils.AllocatorRmm())

array = wp.full(2**20, 3, "float32", "cuda:0")
tensor = torch.ones(2**20, dtype=torch.float32, device="cuda:0")
print(counted.allocation_counts.current_bytes == array.nbytes + tensor.nbytes)
print(float((torch.from_dlpack(array) + tensor).sum()) == 4 * 2**20)
del array
print(counted.allocation_counts.current_bytes == tensor.nbytes)
print(wp.get_device_allocator("cuda:0"))
"""
    assert lines_of(script) == ["True", "True", "True", "<RmmAllocator over RMM's current resource: 0 blocks>"]


def test_the_guides_allocator_shares_rmm_s_pool(lines_of):
    script = """
rmm.reinitialize(pool_allocator=True, initial_pool_size=2**28)
counted = rmm.mr.StatisticsResourceAdaptor(rmm.mr.get_per_device_resource(0))
rmm.mr.set_per_device_resource(0, counted)
al.set_cuda_allocator(al.utils.AllocatorRmm())
array, buffer = al.full(1000, 7, "uint8", "cuda:0"), rmm.DeviceBuffer(size=500)
print(counted.allocation_counts.current_bytes >= 1500, (array.numpy() == 7).all())
rmm.mr.set_per_device_resource(0, rmm.mr.CudaMemoryResource())
del array
gc.collect()
print(counted.allocation_counts.current_count)
"""
    assert lines_of(script) == ["True True", "1"]


@pytest.mark.parametrize("options", RESOURCES, ids=lambda options: "-".join(map(str, options.values())))
def test_the_process_ends_well_with_arrays_that_live(lines_of, options):
    script = f"""
al.set_device_allocator("cuda:0", al.get_allocator("rmm", "cuda:0", **{options}))
arrays = [al.ones(1000, device="cuda:0") for _ in range(3)]
print(arrays[0].numpy()[0])
"""
    assert lines_of(script) == ["1.0"]


@pytest.mark.multi_gpu
@pytest.mark.parametrize("options", RESOURCES, ids=lambda options: "-".join(map(str, options.values())))
def test_each_device_has_a_resource_of_its_own(lines_of, options):
    script = f"""
from cuda.bindings import runtime
arrays = []
for device in ("cuda:1", "cuda:0"):
    al.set_device_allocator(device, al.get_allocator("rmm", device, **{options}))
    arrays.append(al.full(1000, 5, "int32", device))
print(all((array.numpy() == 5).all() for array in arrays))
print([runtime.cudaPointerGetAttributes(array.ptr)[1].device for array in arrays])
"""
    assert lines_of(script) == ["True", "[1, 0]"]
