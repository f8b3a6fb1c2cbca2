"""A use after free: an address outlives the array that it belongs to, and is written to.

The layer ``guard`` finds the write, and ``track`` says where the block was allocated and freed. On simulated GPUs:

    ALLOTMENT_PLATFORM=sim:2xh200 python examples/use_after_free.py
"""

from __future__ import annotations

import allotment as al


def weights_elsewhere() -> al.Array:
    """Return an array over the memory of another one, which is gone when this returns."""
    weights = al.zeros(1024, device="cuda:0")
    address = weights.ptr
    del weights
    return al.from_pointer(address, shape=(1024,), dtype="float64", device="cuda:0")


if __name__ == "__main__":
    al.configure(layers=["track", "guard"])
    stale = weights_elsewhere()
    stale.fill_(1)
    al.check_guards()
