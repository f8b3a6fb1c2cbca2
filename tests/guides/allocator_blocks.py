"""The blocks about custom and managed allocators."""

from __future__ import annotations

import numpy as np

import allotment as al

from .block import ALLOCATORS, Block

ISSUE_5 = "issue 5 builds the plugins and bridges for PyTorch and RMM that it needs"


def came_from(names, name, allocator):
    assert names[name].allocator is allocator


def everywhere_mine(names):
    assert {al.get_device_allocator(device) for device in al.get_cuda_devices()} == {names["my_allocator"]}
    names["a"] = al.zeros(10, device="cuda:0")
    came_from(names, "a", names["my_allocator"])
    assert len(names["my_allocator"].live) == 1


def built_in_again(names):
    for device in al.get_cuda_devices():
        assert al.get_device_allocator(device).name == "mempool"


def is_what_was_set(names):
    assert names["allocator"] is names["my_allocator"]


def mine_inside_only(names):
    came_from(names, "a", names["my_allocator"])
    assert names["a"].dtype == np.float32
    assert al.get_device_allocator("cuda:0").name == "mempool"
    del names["a"]
    assert names["my_allocator"].live == {}


def is_managed(names):
    array = names["a"]
    assert (array.memory_kind, array.device) == (al.MemoryKind.CUDA_MANAGED, al.get_device("cuda:0"))
    assert array.numpy().tolist() == [0.0] * array.size


def managed_everywhere(names):
    for device in al.get_cuda_devices():
        assert al.get_device_allocator(device) is names["managed"]
        assert al.zeros(3, device=device).memory_kind is al.MemoryKind.CUDA_MANAGED


def ran_on_the_host(names):
    touched = names.get("a_cpu", names["a"])
    al.synchronize()
    assert touched.numpy().tolist() == list(range(1, touched.size + 1))
    assert ("a_cpu" in names) is not al.can_access("cpu", names["a"])


def draws_from_rmm(names):
    array = names["wp"].zeros(10, device="cuda:0")

    assert (array.numpy() == 0).all()
    assert "over RMM's current resource: 1 blocks" in repr(names["wp"].get_device_allocator("cuda:0"))


def is_an_allocator(names):
    class Filled(names["MyAllocator"]):
        allocate, deallocate = names["my_allocator"].allocate, names["my_allocator"].deallocate

    assert isinstance(names["MyAllocator"](), al.Allocator)
    with al.ScopedAllocator("cuda:0", Filled()):
        assert al.zeros(3, device="cuda:0").numpy().tolist() == [0.0] * 3


MANAGED = """
    with wp.ScopedAllocator("cuda:0", wp.CudaManagedAllocator()):
        a = wp.zeros(1000, dtype=float, device="cuda:0")
    wp.synchronize()
"""

ALLOCATOR_BLOCKS = [
    Block(
        section="Setting a Custom Allocator",
        number=1,
        code="""
            wp.set_cuda_allocator(my_allocator)  # every CUDA device
            wp.set_device_allocator("cuda:0", my_allocator)  # this one
        """,
        check=everywhere_mine,
    ),
    Block(
        section="Setting a Custom Allocator",
        number=2,
        before="wp.set_cuda_allocator(my_allocator)",
        code="wp.set_cuda_allocator(None)",
        check=built_in_again,
    ),
    Block(
        section="Setting a Custom Allocator",
        number=3,
        before='wp.set_device_allocator("cuda:0", my_allocator)',
        code='allocator = wp.get_device_allocator("cuda:0")',
        check=is_what_was_set,
    ),
    Block(
        section="Setting a Custom Allocator",
        number=4,
        code="""
            with wp.ScopedAllocator("cuda:0", my_allocator):
                a = wp.zeros(1000, dtype=wp.float32, device="cuda:0")
            # what was in force before is in force again
        """,
        check=mine_inside_only,
    ),
    Block(
        section="Managed Memory Allocator",
        number=1,
        code="""
            managed = wp.CudaManagedAllocator()
            device = wp.get_device("cuda:0")

            with wp.ScopedAllocator(device, managed):
                a = wp.zeros(1000, dtype=wp.float32, device=device)
        """,
        check=is_managed,
    ),
    Block(
        section="Managed Memory Allocator",
        number=2,
        guides=(ALLOCATORS,),
        before=MANAGED,
        code="""
            if a.memory_kind is wp.MemoryKind.CUDA_MANAGED:
                ...
        """,
        check=is_managed,
    ),
    Block(
        section="Managed Memory Allocator",
        number=3,
        code="""
            managed = wp.CudaManagedAllocator()
            wp.set_cuda_allocator(managed)
        """,
        check=managed_everywhere,
    ),
    Block(
        section="Managed Memory Allocator",
        number=4,
        guides=(ALLOCATORS,),
        profiles=("2xh200", "wsl"),
        before=MANAGED,
        code="""
            if wp.can_access("cpu", a):
                wp.launch(cpu_kernel, dim=a.size, inputs=[a], device="cpu")
            else:
                a_cpu = a.to("cpu")
                wp.launch(cpu_kernel, dim=a_cpu.size, inputs=[a_cpu], device="cpu")
        """,
        check=ran_on_the_host,
    ),
    Block(
        section="Writing a Custom Allocator",
        code="""
            class MyAllocator:
                def allocate(self, size_in_bytes: int) -> int:
                    # return the address of device memory
                    ...

                def deallocate(self, ptr: int, size_in_bytes: int) -> None:
                    # free the device memory at the address
                    ...
        """,
        check=is_an_allocator,
    ),
    Block(
        section="PyTorch CUDA Caching Allocator",
        code="allocator = TorchCachingAllocator()",
        later=f"needs PyTorch: {ISSUE_5}",
    ),
    Block(
        section="RAPIDS Memory Manager (RMM) Integration",
        number=1,
        code="pip install rmm-cu12",
        later=f"installs RMM: {ISSUE_5}",
    ),
    Block(
        section="RAPIDS Memory Manager (RMM) Integration",
        number=2,
        before="import pytest; pytest.importorskip('rmm', reason='RMM is not installed')",
        code="wp.set_cuda_allocator(wp.utils.AllocatorRmm())",
        check=draws_from_rmm,
        profiles=(),  # RMM calls the driver itself
    ),
]
