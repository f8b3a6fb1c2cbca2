"""The budgets that the foundation's code touches: accounting, the pool's pair, array creation, import."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

import allotment as al
from allotment.layers.account import account
from benchmarks.contenders import FreeList, cupy_pair, direct_pool_pair, imported, pair, torch_pair
from benchmarks.measurement import Budget, Comparison, Figure, Within, compare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.measurement import Timed

OURS = "al.empty, Python free list"
SIZES = {"256 B": 256, "1 MiB": 1 << 20, "64 MiB": 64 << 20}


def comparisons() -> Iterator[Comparison]:
    """Run all comparisons that the machine allows."""
    yield accounting()
    yield import_time()
    device = al.get_preferred_device()
    if device.is_cuda:
        for label, size in SIZES.items():
            yield pool_pairs(device, label, size)
        yield arrays(device)
        yield slices(device)


def accounting() -> Comparison:
    """Measure what core adds around an allocator with two methods."""
    device = al.get_device("cpu")
    bare = FreeList()
    accounted = account(FreeList(), device, "free list")
    result = compare(
        "allocate + deallocate around a Python free list, 256 B",
        {"free list alone": pair(bare, 256), "with accounts": pair(accounted, 256)},
    )
    added = result.ns("with accounts") - result.ns("free list alone")
    spread = sum(figure.spread_ns for figure in result.figures)
    figures = (*result.figures, Figure(name="accounts alone (difference)", ns=added, spread_ns=spread))
    budgets = {"accounts alone (difference)": (Budget(at_most=300),)}
    return Comparison(title=result.title, figures=figures, budgets=budgets, missing={})


def pool_pairs(device: al.Device, label: str, size: int) -> Comparison:
    """Measure the memory pool through Allotment, the same two calls made directly, and the peers' pools."""
    pool = al.get_allocator("mempool", device)
    direct = direct_pool_pair(device, pool.allocator.pool_handle, size)
    contenders: dict[str, Callable[[], object]] = {"same calls directly": direct, "al mempool": pair(pool, size)}
    contenders |= {f"al {name}": pair(al.get_allocator(name, device), size) for name in ("managed", "default")}
    missing: dict[str, str] = {}
    if cupy := imported("cupy", missing):
        contenders["CuPy MemoryPool"] = cupy_pair(cupy.cuda.MemoryPool().malloc, size)
    if torch := imported("torch", missing):
        contenders["PyTorch"] = torch_pair(torch, size)
    budgets = {"al mempool": (Budget(at_most=1.15, reference="same calls directly"),)}
    return compare(f"allocate + deallocate, {label}", contenders, budgets, missing)


def arrays(device: al.Device) -> Comparison:
    """Measure an array of 256 float32, made and dropped."""
    empty, free_list = partial(al.empty, 256, "float32", device), FreeList()
    missing: dict[str, str] = {}
    contenders: dict[str, Callable[[], object] | Timed] = {
        OURS: Within(partial(_setting, device, free_list), empty),
        f"{OURS} in a scope": Within(partial(al.ScopedAllocator, device, free_list), empty),
        "al.empty, mempool": empty,
    }
    if cupy := imported("cupy", missing):
        contenders["cupy.empty"] = lambda: cupy.empty(256, "float32")
    if torch := imported("torch", missing):
        contenders["torch.empty"] = lambda: torch.empty(256, dtype=torch.float32, device="cuda")
    if warp := imported("warp", missing):
        contenders["wp.empty"] = lambda: warp.empty(256, dtype=warp.float32, device="cuda:0")
    budgets = tuple(
        Budget(at_most=at_most, reference=f"{peer}.empty")
        for peer, at_most in (("cupy", 0.6), ("torch", 0.5), ("wp", 0.12))
    )
    return compare("array of 256 float32, created and destroyed", contenders, {OURS: budgets}, missing)


@contextmanager
def _setting(device: al.Device, allocator: al.Allocator) -> Iterator[None]:
    """Let a device's arrays come from an allocator."""
    previous = device.setting
    al.set_device_allocator(device, allocator)
    try:
        yield
    finally:
        al.set_device_allocator(device, previous)


def slices(device: al.Device) -> Comparison:
    """Measure a slice of an array, made and dropped."""
    ours = al.empty(256, "float32", device)
    missing: dict[str, str] = {}
    contenders: dict[str, Callable[[], object]] = {"allotment": lambda: ours[8:128]}
    if cupy := imported("cupy", missing):
        theirs = cupy.empty(256, "float32")
        contenders["CuPy"] = lambda: theirs[8:128]
    if torch := imported("torch", missing):
        tensor = torch.empty(256, device="cuda")
        contenders["PyTorch"] = lambda: tensor[8:128]
    return compare("slice of an array", contenders, missing=missing)


def import_time() -> Comparison:
    """Measure a fresh interpreter that imports the package, less one that imports nothing."""
    pairs = [(_run_ns("pass"), _run_ns("import allotment")) for _ in range(9)]  # in turn: a machine's speed changes
    added = median(importing - alone for alone, importing in pairs)
    figure = Figure(name="import allotment", ns=added, spread_ns=0.0)
    budgets = {"import allotment": (Budget(at_most=60e6),)}
    return Comparison(title="import of the package", figures=(figure,), budgets=budgets, missing={})


def _run_ns(statement: str) -> int:
    from time import perf_counter_ns

    start = perf_counter_ns()
    subprocess.run([sys.executable, "-c", statement], check=True)
    return perf_counter_ns() - start
