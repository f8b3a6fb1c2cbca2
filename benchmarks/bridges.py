"""Memory through the bridges beside the memory of the libraries themselves: what delivery costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import allotment as al
from benchmarks import bridged_arrays
from benchmarks.contenders import FreeList, cupy_pair, drawing, imported
from benchmarks.measurement import Budget, Comparison, compare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIZES = {"256 B": 256, "1 MiB": 1 << 20, "64 MiB": 64 << 20}
SUPPLIERS = ("caching", "mempool")
IN_FORCE = "al caching, by the device's setting"


def comparisons() -> Iterator[Comparison]:
    """Run all comparisons on a GPU; none where there is no GPU, and none of a library that is not there."""
    if not al.get_preferred_device().is_cuda:
        return
    yield from bridged_arrays.comparisons()
    missing: dict[str, str] = {}
    if cupy := imported("cupy", missing):
        for label, size in SIZES.items():
            yield cupy_pairs(cupy, label, size)
        yield cupy_arrays(cupy)
    if imported("rmm", missing):
        for label, size in SIZES.items():
            yield rmm_pairs(label, size)


# CuPy


def cupy_pairs(cupy: Any, label: str, size: int) -> Comparison:
    """Measure what CuPy calls for memory, beside its own pools."""
    contenders: dict[str, Callable[[], object]] = {"CuPy MemoryPool": cupy_pair(cupy.cuda.MemoryPool().malloc, size)}
    for supplier in SUPPLIERS:
        with drawing("cupy", supplier):
            contenders[f"al {supplier}"] = cupy_pair(cupy.cuda.get_allocator(), size)
    with drawing("cupy", None):
        contenders[IN_FORCE] = cupy_pair(cupy.cuda.get_allocator(), size)
    contenders["CuPy malloc_async"] = cupy_pair(cupy.cuda.malloc_async, size)
    budgets = dict.fromkeys(("al caching", IN_FORCE), (Budget(at_most=1.0, reference="CuPy MemoryPool"),))
    device = al.get_preferred_device()
    before = device.setting
    al.set_device_allocator(device, "caching")
    try:
        return compare(f"CuPy: malloc and drop, {label}", contenders, budgets)
    finally:
        al.set_device_allocator(device, before)


def cupy_arrays(cupy: Any) -> Comparison:
    """Measure an array of 256 float32, made by CuPy and dropped."""

    def make(allocator: Callable[[int], object]) -> Callable[[], object]:
        def array() -> None:
            cupy.cuda.set_allocator(allocator)
            for _ in range(_ARRAYS):
                cupy.empty(256, "float32")

        return array

    own = cupy.cuda.get_allocator()
    contenders = {"CuPy": make(own)}
    for supplier in SUPPLIERS:
        with drawing("cupy", supplier):
            contenders[f"al {supplier}"] = make(cupy.cuda.get_allocator())
    budgets = {"al caching": (Budget(at_most=1.0, reference="CuPy"),)}
    try:
        return compare(f"CuPy: {_ARRAYS} arrays of 256 float32, created and destroyed", contenders, budgets)
    finally:
        cupy.cuda.set_allocator(own)


_ARRAYS = 1000
"""So many for each change of the allocator, which all contenders share."""


# RMM


def rmm_pairs(label: str, size: int) -> Comparison:
    """Measure the pair of a resource of RMM over Allotment, beside RMM's own pools."""
    from rmm import mr

    resources: dict[str, Any] = {
        "RMM PoolMemoryResource": mr.PoolMemoryResource(mr.CudaMemoryResource(), "256MiB"),
        "RMM CudaAsyncMemoryResource": mr.CudaAsyncMemoryResource(),
    }
    floor = FreeList()
    resources["RMM, a callback to a free list in Python without checks"] = mr.CallbackMemoryResource(
        lambda nbytes, _: floor.allocate(nbytes), lambda ptr, nbytes, _: floor.deallocate(ptr, nbytes)
    )
    for supplier in SUPPLIERS:
        with drawing("rmm", supplier):
            resources[f"al {supplier}"] = mr.get_per_device_resource(al.get_preferred_device().ordinal)
    contenders = {name: _rmm_pair(resource, size) for name, resource in resources.items()}
    budgets = {"al caching": (Budget(at_most=1.0, reference="RMM PoolMemoryResource"),)}
    return compare(f"RMM: allocate + deallocate, {label}", contenders, budgets)


def _rmm_pair(resource: Any, size: int) -> Callable[[], object]:
    def allocate_and_free() -> None:
        resource.deallocate(resource.allocate(size), size)

    return allocate_and_free
