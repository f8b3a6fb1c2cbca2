"""Fragmentation: a home-made arena has room enough, and cannot serve, because small blocks lie all over it.

The error says so, and the layer ``track`` names the line whose blocks are in the way. On simulated GPUs:

    ALLOTMENT_PLATFORM=sim:2xh200 python examples/fragmentation.py
"""

from __future__ import annotations

import allotment as al

MIB = 2**20


class Arena:
    """One large block of the device that is dealt out first fit, and whose free pieces are never moved together."""

    name = "arena"

    def __init__(self, device: al.Device, nbytes: int) -> None:
        self.nbytes = nbytes
        self.start = device.platform.malloc(nbytes)
        self.free = {self.start: nbytes}

    def allocate(self, size_in_bytes: int) -> int:
        """Return the beginning of the first free piece that is large enough."""
        size = -(-size_in_bytes // MIB) * MIB
        for start, nbytes in self.free.items():
            if nbytes >= size:
                del self.free[start]
                if nbytes > size:
                    self.free[start + size] = nbytes - size
                return start
        raise MemoryError

    def deallocate(self, ptr: int, size_in_bytes: int) -> None:
        """Join a block with the free pieces beside it."""
        size = -(-size_in_bytes // MIB) * MIB
        before = next((start for start, nbytes in self.free.items() if start + nbytes == ptr), ptr)
        size += self.free.pop(before, 0) + self.free.pop(ptr + size, 0)
        self.free[before] = size

    def reservation(self) -> al.Reservation:
        """Return what the arena holds of the device."""
        return al.Reservation(self.nbytes, self.nbytes)

    def reset_peak_reservation(self) -> None:
        """Do nothing: it always holds the same."""

    def largest_free(self) -> int:
        """Return the bytes of the largest piece."""
        return max(self.free.values(), default=0)


def batch_and_statistics() -> tuple[al.Array, al.Array]:
    """Return a batch, and what is to be remembered of it."""
    with al.label("batch"):
        batch = al.empty(15 * MIB, "uint8", "cuda:0")
    with al.label("statistics"):
        return batch, al.empty(MIB, "uint8", "cuda:0")


def run() -> al.Array:
    """Prepare all batches, keep their statistics only, and ask for a large array."""
    prepared = [batch_and_statistics() for _ in range(32)]
    statistics = [each for _, each in prepared]
    del prepared
    large = al.empty(200 * MIB, "uint8", "cuda:0")
    del statistics
    return large


if __name__ == "__main__":
    gpu = al.get_device("cuda:0")
    al.configure(layers=["track"])
    al.set_device_allocator(gpu, Arena(gpu, 512 * MIB))
    run()
