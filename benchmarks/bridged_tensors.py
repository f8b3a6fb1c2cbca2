"""Tensors from Allotment through the bridge to PyTorch, beside those from its own allocator: a process for each.

PyTorch changes its allocator once in a process. ``python -m benchmarks.bridged_tensors MODE ALLOCATOR`` measures one.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import allotment as al
from benchmarks.contenders import imported
from benchmarks.measurement import Budget, Comparison, Figure, compare
from benchmarks.process import answer_of

if TYPE_CHECKING:
    from collections.abc import Iterator

OWN = "PyTorch"
CONTENDERS = {
    OWN: ("own", ""),
    "pool, al caching": ("pool", "caching"),
    "pool, al mempool": ("pool", "mempool"),
    "replace, al caching": ("replace", "caching"),
    "replace, al mempool": ("replace", "mempool"),
}
ROUNDS = 3
"""How often each process is run: in turn, since a machine may be slower for some seconds."""
TENSOR, PAIR = "PyTorch: torch.empty(256), created and destroyed", "PyTorch: caching_allocator_alloc and _delete, 256 B"


def comparisons() -> Iterator[Comparison]:
    """Run all comparisons that the machine allows."""
    missing: dict[str, str] = {}
    if not al.get_cuda_devices() or not imported("torch", missing):
        return
    found: dict[str, list[dict[str, Figure]]] = {}
    for name in ROUNDS * [*CONTENDERS]:
        try:
            found.setdefault(name, []).append(_measure(name, *CONTENDERS[name]))
        except RuntimeError as error:
            missing[name] = str(error)
    budgets = {"replace, al caching": (Budget(at_most=1.0, reference=OWN),)}
    for title in (TENSOR, PAIR):
        yield Comparison(
            title=title,
            figures=tuple(_median([figures[title] for figures in rounds]) for rounds in found.values()),
            budgets={name: budget for name, budget in budgets.items() if name in found and OWN in found},
            missing=missing,
        )


def _median(figures: list[Figure]) -> Figure:
    return sorted(figures, key=lambda figure: figure.ns)[len(figures) // 2]


def _measure(name: str, mode: str, allocator: str) -> dict[str, Figure]:
    figures: dict[str, Any] = answer_of("benchmarks.bridged_tensors", mode, allocator)
    return {title: Figure(**figure | {"name": name}) for title, figure in figures.items()}


def main(mode: str, allocator: str) -> int:
    """Measure in this process, and print the figures."""
    if mode != "own":
        al.init(platform="cuda", quiet=True)
        al.install({"torch": {"mode": mode}}, allocator=allocator)
    import torch

    allocate, delete = torch.cuda.caching_allocator_alloc, torch.cuda.caching_allocator_delete
    found = {
        TENSOR: compare("", {TENSOR: lambda: torch.empty(256, device="cuda")}).figures[-1],
        PAIR: compare("", {PAIR: lambda: delete(allocate(256))}).figures[-1],
    }
    print(json.dumps({title: asdict(figure) for title, figure in found.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
