"""What layers cost per allocation and free: one at a time, all together, observers, and none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import allotment as al
from allotment import registry
from allotment.layers.account import account
from allotment.layers.stack import build_layers
from allotment.selection import layers_before, stand_in
from benchmarks.contenders import FreeList, pair
from benchmarks.measurement import Budget, Comparison, compare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIZE = 256
ONE_BY_ONE: dict[str, list[Any]] = {
    "limit": [{"limit": "1 GiB"}],
    "ladder": ["ladder"],
    "fallback": [{"fallback": "host"}],
    "fault": [{"fault": 2**62}],
    "track": ["track"],
    "trace, the last 1000": [{"trace": {"path": os.devnull, "last": 1000}}],
}
ALL = [layer for name in ("fallback", "ladder", "limit", "fault") for layer in ONE_BY_ONE[name]]


def comparisons() -> Iterator[Comparison]:
    """Run all comparisons: around a Python free list, and around the allocators of a GPU where there is one."""
    yield around_free_list()
    device = al.get_preferred_device()
    if device.is_cuda:
        for name in ("mempool", "caching"):
            yield around(device, name)
        yield measured(device)
        yield recorded(device)
        yield prefetch(device)


def around_free_list() -> Comparison:
    """Measure layers around the least that an allocator can do."""
    device = al.get_device("cpu")

    def contender(layers: list[Any]) -> Callable[[], object]:
        built = build_layers(layers_before(device, layers), device, stand_in)
        return pair(account(FreeList(), device, "free list", layers=built), SIZE)

    contenders = {"no layer": contender([]), "layers = []": contender([])}
    contenders |= {name: contender(layers) for name, layers in ONE_BY_ONE.items()}
    contenders["fallback, ladder, limit and fault"] = contender(ALL)
    with registry.use(registry.Registry()):  # its observer sees what is made here, and nothing else
        registry.current().hooks.register(Idle())
        contenders["an observer that does nothing"] = pair(account(FreeList(), device, "free list"), SIZE)
    return compare(f"allocate + deallocate around a Python free list, {SIZE} B", contenders, _none_costs_nothing())


def around(device: al.Device, name: str) -> Comparison:
    """Measure layers around an allocator of a GPU."""
    fallback = [{"fallback": "managed"}]
    contenders = {"no layer": pair(al.get_allocator(name, device), SIZE)}
    contenders["layers = []"] = pair(al.get_allocator(name, device, layers=[]), SIZE)
    own = {"fallback": fallback, "guard": ["guard"], "fallback, ladder, limit and fault": [*fallback, *ALL[1:]]}
    for layer, layers in ({**ONE_BY_ONE, **own}).items():
        contenders[layer] = pair(al.get_allocator(name, device, layers=layers), SIZE)
    return compare(f"allocate + deallocate with {name}, {SIZE} B", contenders, _none_costs_nothing())


def measured(device: al.Device) -> Comparison:
    """Measure allocators while a scope of `allotment.measure` counts their blocks."""
    with al.measure("benchmark"):
        contenders = {name: pair(al.get_allocator(name, device), SIZE) for name in ("mempool", "caching")}
        return compare(f"allocate + deallocate in a scope of al.measure, {SIZE} B", contenders)


def recorded(device: al.Device) -> Comparison:
    """Measure allocators while everything is recorded."""
    with al.record(last=1000):
        contenders = {name: pair(al.get_allocator(name, device), SIZE) for name in ("mempool", "caching")}
        return compare(f"allocate + deallocate while al.record runs, {SIZE} B", contenders)


def prefetch(device: al.Device) -> Comparison:
    """Measure moving managed memory ahead."""
    contenders = {"no layer": pair(al.get_allocator("managed", device), SIZE)}
    contenders["prefetch"] = pair(al.get_allocator("managed", device, layers=["prefetch"]), SIZE)
    return compare(f"allocate + deallocate with managed, {SIZE} B", contenders)


def _none_costs_nothing() -> dict[str, tuple[Budget, ...]]:
    return {"layers = []": (Budget(at_most=1.05, reference="no layer"),)}


class Idle:
    """An observer that does nothing."""

    def allotment_after_allocate(self) -> None:
        """See nothing."""

    def allotment_after_deallocate(self) -> None:
        """See nothing."""
