"""The budgets of the ``caching`` allocator: its pair beside the peers, among many live blocks, and arrays of it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import allotment as al
from benchmarks.contenders import FreeList, cupy_pair, imported, pair, torch_pair
from benchmarks.measurement import Budget, Comparison, compare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIZES = {"256 B": 256, "1 MiB": 1 << 20, "64 MiB": 64 << 20}
LIVE_BLOCKS = (1_000, 100_000, 1_000_000)


def comparisons() -> Iterator[Comparison]:
    """Run all comparisons on a GPU; none where there is no GPU."""
    device = al.get_preferred_device()
    if device.is_cuda:
        for label, size in SIZES.items():
            yield pairs(device, label, size)
        yield among_live_blocks(device)
        yield arrays(device)


def pairs(device: al.Device, label: str, size: int) -> Comparison:
    """Measure the pair with each engine beside the peers' and a Python free list without any checks."""
    missing: dict[str, str] = {}
    contenders: dict[str, Callable[[], object]] = {
        "al caching": pair(al.get_allocator("caching", device), size),
        "al caching, policy mlx": pair(al.get_allocator("caching", device, policy="mlx"), size),
        "al caching, engine in Python": pair(al.get_allocator("caching", device, engine="python"), size),
        "Python free list, unchecked": pair(FreeList(), size),
    }
    if cupy := imported("cupy", missing):
        contenders["CuPy MemoryPool"] = cupy_pair(cupy.cuda.MemoryPool().malloc, size)
    if torch := imported("torch", missing):
        contenders["PyTorch"] = torch_pair(torch, size)
    budgets = {"al caching": (Budget(at_most=0.35, reference="CuPy MemoryPool"),)}
    return compare(f"allocate + deallocate, {label}", contenders, budgets, missing)


def among_live_blocks(device: al.Device) -> Comparison:
    """Measure the pair of engines that each hold a number of live blocks."""
    contenders: dict[str, Callable[[], object]] = {}
    held = []
    for seconds, count in enumerate(LIVE_BLOCKS, start=1000):
        allocator = al.get_allocator("caching", device, idle_seconds=seconds)  # one of its own
        held.append((allocator, [allocator.allocate(512) for _ in range(count)]))
        contenders[f"beside {count:,} live blocks"] = pair(allocator, 256)
    first, *_, last = contenders
    budgets = {last: (Budget(at_most=1.5, reference=first),)}
    result = compare("allocate + deallocate, 256 B, beside live blocks", contenders, budgets)
    for allocator, blocks in held:
        for block in blocks:
            allocator.deallocate(block, 512)
        allocator.trim()
    return result


def arrays(device: al.Device) -> Comparison:
    """Measure an array of 256 float32, made and dropped."""
    missing: dict[str, str] = {}
    contenders: dict[str, Callable[[], object]] = {"al.empty": lambda: al.empty(256, "float32", device)}
    budgets = []
    if cupy := imported("cupy", missing):
        contenders["cupy.empty"] = lambda: cupy.empty(256, "float32")
        budgets.append(Budget(at_most=0.6, reference="cupy.empty"))
    if torch := imported("torch", missing):
        contenders["torch.empty"] = lambda: torch.empty(256, dtype=torch.float32, device="cuda")
        budgets.append(Budget(at_most=0.5, reference="torch.empty"))
    if warp := imported("warp", missing):
        contenders["wp.empty"] = lambda: warp.empty(256, dtype=warp.float32, device="cuda:0")
        budgets.append(Budget(at_most=0.12, reference="wp.empty"))
    with _allocator_of(device, "caching"):
        title = "array of 256 float32, created and destroyed, memory from caching"
        return compare(title, contenders, {"al.empty": tuple(budgets)}, missing)


@contextmanager
def _allocator_of(device: al.Device, name: str) -> Iterator[None]:
    before = device.setting
    al.set_device_allocator(device, name)
    try:
        yield
    finally:
        al.set_device_allocator(device, before)
