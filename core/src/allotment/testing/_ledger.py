"""What a simulated driver has handed out and not got back, told from its own log of calls."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from allotment.platform.simulated import Call

_TAKES: Final = {
    "malloc": "memory",
    "malloc_managed": "memory",
    "host_alloc": "memory",
    "malloc_from_pool": "memory",
    "create_pool": "pool",
    "create_event": "event",
    "create_stream": "stream",
}
_GIVES: Final = {
    "free": ("memory", "ptr"),
    "host_free": ("memory", "ptr"),
    "free_async": ("memory", "ptr"),
    "destroy_pool": ("pool", "pool"),
    "destroy_event": ("event", "event"),
    "destroy_stream": ("stream", "stream"),
}
FREES: Final = tuple(name for name, (kind, _) in _GIVES.items() if kind == "memory")
"""The calls that give memory back."""
ALLOCATIONS: Final = tuple(name for name, kind in _TAKES.items() if kind == "memory")
"""The calls that take memory."""


def outstanding(calls: Iterable[Call]) -> Counter[str]:
    """Return how many blocks of memory, pools, events and streams were taken from the driver and not given back."""
    held: Counter[tuple[str, int]] = Counter()
    for call in calls:
        if call.error is not None:
            continue
        if kind := _TAKES.get(call.name):
            held[kind, call.result] += 1
        elif given := _GIVES.get(call.name):
            held[given[0], call.arguments[given[1]]] -= 1
    return Counter(kind for (kind, _), count in held.items() if count > 0)


def outstanding_bytes(calls: Iterable[Call]) -> int:
    """Return the bytes of memory that were taken from the driver and not given back."""
    sizes: dict[int, int] = {}
    for call in calls:
        if call.error is not None:
            continue
        if call.name in ALLOCATIONS:
            sizes[call.result] = call.arguments["nbytes"]
        elif call.name in FREES:
            sizes.pop(call.arguments["ptr"], None)
    return sum(sizes.values())
