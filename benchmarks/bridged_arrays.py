"""Arrays of Numba and Warp from Allotment through their bridges, beside those from the libraries' own allocators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import allotment as al
from benchmarks.contenders import FreeList, drawing, imported
from benchmarks.measurement import Budget, Comparison, Figure, compare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SUPPLIERS = ("caching", "mempool")
ELEMENTS = {"256 elements": 256, "64 Mi elements": 64 << 20}


def comparisons() -> Iterator[Comparison]:
    """Run all comparisons that the machine allows."""
    if not al.get_cuda_devices():
        return
    for label, count in ELEMENTS.items():
        yield numba_arrays(label, count)
        yield warp_arrays(label, count)


def numba_arrays(label: str, count: int) -> Comparison:
    """Measure ``cuda.device_array``, made and dropped. It must run before anything else uses Numba's CUDA target."""
    missing: dict[str, str] = {}
    if not imported("numba", missing):
        return Comparison(title=_title("Numba", label), figures=(), budgets={}, missing=missing)

    def make() -> Callable[[], object]:
        from numba import cuda

        return lambda: cuda.device_array(count, "float32")

    return _beside("numba", "Numba", label, make, missing)


def warp_arrays(label: str, count: int) -> Comparison:
    """Measure ``wp.empty``, made and dropped."""
    missing: dict[str, str] = {}
    warp: Any = imported("warp", missing)
    if not warp:
        return Comparison(title=_title("Warp", label), figures=(), budgets={}, missing=missing)
    warp.config.log_level = 30

    def make() -> Callable[[], object]:
        return lambda: warp.empty(count, dtype=warp.float32, device="cuda:0")

    warp.set_device_allocator("cuda:0", FreeList())
    try:
        floor = compare("", {"Warp, a free list in Python without checks": make()}).figures
    finally:
        warp.set_device_allocator("cuda:0", None)
    return _beside("warp", "Warp", label, make, missing, floor)


def _title(library: str, label: str) -> str:
    return f"array of {library}, {label} of float32, created and destroyed"


def _beside(
    bridge: str,
    library: str,
    label: str,
    make: Callable[[], Callable[[], object]],
    missing: dict[str, str],
    floor: Sequence[Figure] = (),
) -> Comparison:
    """Measure with the bridge and each supplier, and without: last, for Numba's context keeps what it begins with."""
    own = f"{library}, its own allocator"
    figures = [*floor]
    for supplier in SUPPLIERS:
        name = f"{library} from al {supplier}"
        try:
            with drawing(bridge, supplier):
                figures += compare("", {name: make()}).figures
        except al.BridgeError as error:
            missing[name] = error.cause
    figures += compare("", {own: make()}).figures
    budgets = {f"{library} from al caching": (Budget(at_most=1.0, reference=own),)}
    budgets = {name: budget for name, budget in budgets.items() if name not in missing}
    return Comparison(title=_title(library, label), figures=tuple(figures), budgets=budgets, missing=missing)
