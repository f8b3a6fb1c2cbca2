"""Threads on one engine: no block is handed out twice, and at rest the accounts add up."""

from __future__ import annotations

import random
import sys
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from threading import Barrier
from typing import TYPE_CHECKING

import pytest
from counting_supply import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine_bench import Bench

SIZES = (512, 700, 4096, MIB, 3 * MIB, 17 * MIB)


@pytest.fixture(autouse=True)
def switch_threads_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_threads_that_free_each_others_blocks_keep_the_accounts(bench: Bench) -> None:
    handed: SimpleQueue[tuple[int, int]] = SimpleQueue()
    start = Barrier(4)

    def work(seed: int) -> int:
        chance = random.Random(seed)
        start.wait()
        for _ in range(1500):
            size = chance.choice(SIZES)
            handed.put((bench.engine.allocate(size), size))
            if chance.random() < 0.9:
                bench.free(*handed.get())
        return 1500

    with ThreadPoolExecutor(4) as pool:
        total = sum(pool.map(work, range(4)))
    assert bench.engine.allocations == total
    rest = [handed.get() for _ in range(handed.qsize())]
    assert len({ptr for ptr, _ in rest}) == len(rest) == len(bench.engine)
    assert bench.engine.current == sum(size for _, size in rest)
    for block in rest:
        bench.free(*block)
    bench.engine.trim(0)

    assert (bench.engine.current, bench.engine.frees, bench.reserved, bench.supply.in_use) == (0, total, 0, 0)


def test_threads_that_trim_meanwhile_lose_nothing(bench: Bench) -> None:
    start = Barrier(3)

    def churn(seed: int) -> None:
        chance = random.Random(seed)
        start.wait()
        for _ in range(800):
            size = chance.choice(SIZES)
            ptr = bench.engine.allocate(size)
            bench.supply.memory_behind(ptr, size)
            bench.free(ptr, size)

    def trim() -> None:
        start.wait()
        for _ in range(200):
            bench.engine.trim(0)
            bench.engine.figures()

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(churn, 1), pool.submit(churn, 2), pool.submit(trim)]:
            done.result()
    bench.engine.trim(0)

    assert (bench.engine.current, bench.reserved, bench.supply.in_use) == (0, 0, 0)
