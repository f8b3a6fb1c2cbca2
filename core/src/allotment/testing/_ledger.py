"""What a simulated driver has handed out and not got back, told from its own log of calls."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from allotment.platform.simulated import Call

_TAKES: Final = {
    "malloc": "memory",
    "malloc_managed": "memory",
    "host_alloc": "memory",
    "malloc_from_pool": "memory",
    "address_range": "address range",
    "create_pool": "pool",
    "create_event": "event",
    "create_stream": "stream",
}
_GIVES: Final = {
    "free": ("memory", "ptr"),
    "host_free": ("memory", "ptr"),
    "free_async": ("memory", "ptr"),
    "free_address_range": ("address range", "ptr"),
    "destroy_pool": ("pool", "pool"),
    "destroy_event": ("event", "event"),
    "destroy_stream": ("stream", "stream"),
}
_BLOCKS: Final = tuple(name for name, kind in _TAKES.items() if kind == "memory")
FREES: Final = (*(name for name, (kind, _) in _GIVES.items() if kind == "memory"), "unmap_physical")
"""The calls that give memory back."""
ALLOCATIONS: Final = (*_BLOCKS, "create_physical")
"""The calls that take memory."""


def outstanding(calls: Iterable[Call]) -> Counter[str]:
    """Return how many blocks of memory, pools, events, … were taken from the driver and not given back, by kind."""
    held: Counter[tuple[str, int]] = Counter()
    succeeded = [call for call in calls if call.error is None]
    for call in succeeded:
        if kind := _TAKES.get(call.name):
            held[kind, call.result] += 1
        elif given := _GIVES.get(call.name):
            held[given[0], call.arguments[given[1]]] -= 1
    left = Counter(kind for (kind, _), count in held.items() if count > 0)
    return left + Counter(memory=len(_pieces_left(succeeded)))


def outstanding_bytes(calls: Iterable[Call]) -> int:
    """Return the bytes of memory that were taken from the driver and not given back."""
    sizes: dict[int, int] = {}
    succeeded = [call for call in calls if call.error is None]
    for call in succeeded:
        if call.name in _BLOCKS:
            sizes[call.result] = call.arguments["nbytes"]
        elif call.name in FREES:
            sizes.pop(call.arguments["ptr"], None)
    return sum(sizes.values()) + sum(piece.nbytes for piece in _pieces_left(succeeded))


@dataclass(slots=True, eq=False)
class _Piece:
    """Physical memory, which is given back once its handle is released and it is mapped nowhere."""

    nbytes: int
    is_held: bool = True
    mappings: int = 0


def _pieces_left(calls: Iterable[Call]) -> list[_Piece]:
    """Return the physical memory that was made and not given back."""
    made: list[_Piece] = []
    held: dict[int, _Piece] = {}
    mapped: dict[int, _Piece] = {}
    for call in calls:
        match call.name, call.arguments:
            case "create_physical", {"nbytes": nbytes}:
                held[call.result] = _Piece(nbytes)
                made.append(held[call.result])
            case "release_physical", {"handle": handle} if handle in held:
                held.pop(handle).is_held = False
            case "map_physical", {"ptr": ptr, "handle": handle} if handle in held:
                mapped[ptr] = held[handle]
                mapped[ptr].mappings += 1
            case "unmap_physical", {"ptr": start, "nbytes": nbytes}:
                for ptr in [ptr for ptr in mapped if start <= ptr < start + nbytes]:
                    mapped.pop(ptr).mappings -= 1
    return [piece for piece in made if piece.is_held or piece.mappings]
