"""Blocks that a test left live."""

from __future__ import annotations

import gc

from allotment.statistics import memory_stats


def live_blocks() -> dict[tuple[str, str], int]:
    """Return how many blocks are live after a collection of garbage, by device and allocator."""
    gc.collect()
    return {
        (device, allocator): statistics.live
        for device, allocators in memory_stats().items()
        for allocator, statistics in allocators.items()
    }
