"""A double free: two parts of a program both believe that a block is theirs to free.

The accounts refuse the second free, and the layer ``track`` says where the first one was. On simulated GPUs:

    ALLOTMENT_PLATFORM=sim:2xh200 python examples/double_free.py
"""

from __future__ import annotations

import allotment as al

SIZE = 4096


def consume(pool: al.AccountedAllocator, ptr: int) -> None:
    """Use a block, and free it."""
    pool.deallocate(ptr, SIZE)


def produce(pool: al.AccountedAllocator) -> None:
    """Make a block, have it used, and free it again."""
    ptr = pool.allocate(SIZE)
    consume(pool, ptr)
    pool.deallocate(ptr, SIZE)


if __name__ == "__main__":
    produce(al.get_allocator("mempool", "cuda:0", layers=["track"]))
