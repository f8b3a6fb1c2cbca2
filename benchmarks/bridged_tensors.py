"""Tensors from Allotment through the bridge to PyTorch, beside those from its own allocator.

PyTorch changes its allocator once in a process: each contender has its own, and they take turns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import allotment as al
from benchmarks.contenders import imported, torch_pair
from benchmarks.measurement import Budget, Comparison, compare
from benchmarks.timing_process import Elsewhere, started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OWN = "PyTorch"
CONTENDERS = {
    OWN: ("own", ""),
    "pool, al caching": ("pool", "caching"),
    "pool, al mempool": ("pool", "mempool"),
    "replace, al caching": ("replace", "caching"),
    "replace, al mempool": ("replace", "mempool"),
}
TENSOR, PAIR = "PyTorch: torch.empty(256), created and destroyed", "PyTorch: caching_allocator_alloc and _delete, 256 B"


def comparisons() -> Iterator[Comparison]:
    """Run all comparisons that the machine allows."""
    missing: dict[str, str] = {}
    if not al.get_cuda_devices() or not imported("torch", missing):
        return
    budgets = {"replace, al caching": (Budget(at_most=1.0, reference=OWN),)}
    with started(prepare, CONTENDERS, missing) as processes:
        for title in (TENSOR, PAIR):
            found = {name: Elsewhere(process, title) for name, process in processes.items()}
            yield compare(title, found, budgets, missing)


def prepare(mode: str, allocator: str) -> dict[str, Callable[[], object]]:
    """Let PyTorch draw from an allocator in this process, and return what is timed."""
    if mode != "own":
        al.init(platform="cuda", quiet=True)
        al.install({"torch": {"mode": mode}}, allocator=allocator)
    import torch

    return {TENSOR: lambda: torch.empty(256, device="cuda"), PAIR: torch_pair(torch, 256)}
