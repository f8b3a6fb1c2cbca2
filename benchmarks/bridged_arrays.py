"""Arrays of Numba and Warp from Allotment through their bridges, beside those from the libraries' own allocators."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import allotment as al
from benchmarks.contenders import FreeList, drawing, imported
from benchmarks.measurement import Budget, Comparison, Within, compare
from benchmarks.timing_process import Elsewhere, started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from benchmarks.measurement import Timed

SUPPLIERS = ("caching", "mempool")
ELEMENTS = {"256 elements": 256, "64 Mi elements": 64 << 20}


def comparisons() -> Iterator[Comparison]:
    """Run all comparisons that the machine allows."""
    if not al.get_cuda_devices():
        return
    yield from numba_arrays()
    yield from warp_arrays()


def numba_arrays() -> Iterator[Comparison]:
    """Measure ``cuda.device_array``, made and dropped: a process for each, for Numba keeps what its context has."""
    missing: dict[str, str] = {}
    if not imported("numba", missing):
        yield Comparison(title="arrays of Numba", figures=(), budgets={}, missing=missing)
        return
    contenders = {f"Numba from al {supplier}": (supplier,) for supplier in SUPPLIERS}
    with started(prepare_numba, contenders | {_own("Numba"): ("",)}, missing) as processes:
        for label in ELEMENTS:
            found = {name: Elsewhere(process, label) for name, process in processes.items()}
            yield _compare("Numba", label, found, missing)


def prepare_numba(supplier: str) -> dict[str, Callable[[], object]]:
    """Let Numba draw from a supplier in this process, and return what is timed."""
    if supplier:
        al.init(platform="cuda", quiet=True)
        al.install("numba", allocator=supplier)
    from numba import cuda

    return {label: partial(cuda.device_array, count, "float32") for label, count in ELEMENTS.items()}


def warp_arrays() -> Iterator[Comparison]:
    """Measure ``wp.empty``, made and dropped."""
    missing: dict[str, str] = {}
    warp: Any = imported("warp", missing)
    if not warp:
        yield Comparison(title="arrays of Warp", figures=(), budgets={}, missing=missing)
        return
    warp.config.log_level = 30
    free_list = FreeList()
    for label, count in ELEMENTS.items():
        make = partial(warp.empty, count, dtype=warp.float32, device="cuda:0")
        contenders: dict[str, Timed] = {
            "Warp, a free list in Python without checks": Within(partial(_given, warp, free_list), make)
        }
        for supplier in SUPPLIERS:
            name, scope = f"Warp from al {supplier}", partial(drawing, "warp", supplier)
            try:
                with scope():
                    contenders[name] = Within(scope, make)
            except al.BridgeError as error:
                missing[name] = error.cause
        yield _compare("Warp", label, contenders | {_own("Warp"): Within(nullcontext, make)}, missing)


@contextmanager
def _given(warp: Any, allocator: object) -> Iterator[None]:
    """Let Warp draw from an allocator of ours, without a bridge."""
    warp.set_device_allocator("cuda:0", allocator)
    try:
        yield
    finally:
        warp.set_device_allocator("cuda:0", None)


def _own(library: str) -> str:
    return f"{library}, its own allocator"


def _compare(library: str, label: str, contenders: Mapping[str, Timed], missing: dict[str, str]) -> Comparison:
    budgets = {f"{library} from al caching": (Budget(at_most=1.0, reference=_own(library)),)}
    title = f"array of {library}, {label} of float32, created and destroyed"
    return compare(title, contenders, budgets, missing)
