"""The policy "mlx": nothing is lost, whatever fails, and in whatever order calls come."""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from counting_supply import MIB, SupplyError
from engine_bench import FakeStream
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from mlx_bench import MENDED, MLX, PolicyBench

from allotment_caching.engine.mlx_buffers import MANAGED, PAGE, SLOTS, fitting_sizes, round_size

if TYPE_CHECKING:
    from mlx_bench import Bench, Buffer

    from allotment_caching.engine.mlx_buffers import Buffer as PolicyBuffer
    from allotment_caching.engine.mlx_cache import MlxSettings


# Failures, with both engines


@pytest.mark.parametrize("name", ["free_async", "pool_reserved", "malloc_async"])
def test_a_failure_loses_nothing(make_mlx, name):
    bench = make_mlx(replace(MENDED, memory_limit=6 * MIB))
    bench.free(*[bench.take(2 * MIB) for _ in range(2)])
    bench.supply.fail_after(0, name)

    with pytest.raises(SupplyError):
        bench.take(3 * MIB)

    assert bench.reserved == [bench.supply.live]
    assert bench.cache.get_active_memory() == 0
    assert bench.take(3 * MIB).nbytes == 3 * MIB
    bench.engine.look_around()
    assert bench.reserved == [bench.supply.live]


def exercise(bench: Bench, dice: random.Random, live: list[Buffer]) -> None:
    """Take or free at random over two devices; the call may fail, and what fails changes nothing."""
    device, roll = dice.randrange(2), dice.random()
    if roll < 0.5:
        size = dice.choice([4, 100, 5000, PAGE, 3 * PAGE, dice.randrange(1, MIB)])
        live.append(bench.take(size, dice.randrange(3), device))
    elif roll < 0.9 and live:
        buffer = live.pop(dice.randrange(len(live)))
        try:
            bench.free_after(buffer, *[dice.randrange(3)] * (roll > 0.8))
        except SupplyError:
            live.append(buffer)
            raise
    elif roll < 0.93:
        bench.engines[device].trim(dice.randrange(MIB))
    elif roll < 0.98:
        bench.cache.set_cache_limit(dice.randrange(4 * MIB))
    else:
        bench.cache.clear_cache()


def check_bench(bench: Bench, live: list[Buffer]) -> None:
    assert bench.cache.get_active_memory() == sum(buffer.nbytes for buffer in live)
    assert sum(bench.reserved) == sum(supply.live for supply in bench.supplies)
    check_spans(live)


def check_spans(live: list[Any]) -> None:
    spans = sorted((buffer.start, buffer.start + buffer.nbytes) for buffer in live)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


@pytest.mark.filterwarnings("ignore:idle memory was not given back")
@pytest.mark.parametrize("settings", [MENDED, MLX], ids=["mended", "mlx"])
def test_ten_thousand_failures_lose_nothing(make_mlx, settings):
    dice = random.Random(6)
    bench = make_mlx(replace(settings, memory_limit=8 * MIB, cache_limit=4 * MIB), devices=2, total=16 * MIB)
    live: list[Buffer] = []
    while sum(supply.failures for supply in bench.supplies) < 10_000:
        for supply in bench.supplies:
            supply.fail_after(dice.randrange(3), lack=dice.random() < 0.5)
        for _ in range(3):
            with suppress(SupplyError):
                exercise(bench, dice, live)
        if len(live) > 50:
            for supply in bench.supplies:
                supply.fail_no_more()
            check_bench(bench, live)
            while live:
                bench.free(live.pop())

    for supply in bench.supplies:
        supply.fail_no_more()
    check_bench(bench, live)
    bench.free(*live)
    for _ in range(2):  # what was pending, then what that freed
        for engine in bench.engines:
            engine.trim(0)
    assert bench.reserved == [supply.live for supply in bench.supplies] == [0, 0]
    assert [len(supply.marks) for supply in bench.supplies] == [0, 0]
    assert bench.bytes() == (0, 0)


# Threads, with both engines


def test_many_threads_leave_the_counters_at_rest(make_mlx):
    bench = make_mlx(replace(MENDED, memory_limit=64 * MIB, cache_limit=8 * MIB))

    def churn(seed: int) -> None:
        dice = random.Random(seed)
        mine: list[tuple[int, int]] = []
        for _ in range(2000):
            if mine and dice.random() < 0.5:
                bench.engine.deallocate(*mine.pop(dice.randrange(len(mine))))
            else:
                size = dice.choice([8, 200, PAGE, 50_000])
                ptr = bench.engine.allocate_on(size, FakeStream(dice.randrange(3)))
                bench.engine.enter(ptr, size)
                mine.append((ptr, size))
        for block in mine:
            bench.engine.deallocate(*block)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(churn, range(4)))

    assert (bench.engine.current, len(bench.engine), bench.cache.get_active_memory()) == (0, 0, 0)
    bench.engine.trim(0)
    assert bench.bytes() == (0, 0)
    assert bench.supply.live == 0


# The rest looks into the engine in Python


def check_sums(bench: PolicyBench, live: list[PolicyBuffer]) -> None:
    assert bench.cache.get_active_memory() == sum(buffer.nbytes for buffer in live)
    assert bench.policy.figures().reserved == bench.supply.live
    check_spans(live)


# A machine that does anything in any order


class CacheMachine(RuleBasedStateMachine):
    """The rules hold whatever the order of calls, work in flight and failures."""

    switches: MlxSettings = MENDED

    def __init__(self):
        super().__init__()
        self.bench = PolicyBench(
            replace(self.switches, memory_limit=40 * PAGE, cache_limit=20 * PAGE), total=200 * PAGE
        )
        self.live: list[PolicyBuffer] = []

    @rule(
        size=st.one_of(st.integers(1, 64), st.integers(1, 4 * PAGE), st.integers(1, 30 * PAGE)),
        stream=st.integers(0, 2),
        managed=st.booleans(),
    )
    def take(self, size, stream, managed):
        bench = self.bench
        try:
            buffer = bench.policy.take_managed(size, stream) if managed else bench.take(size, stream)
        except SupplyError:
            return
        assert buffer.nbytes in {*fitting_sizes(round_size(size))}
        assert managed <= (buffer.device == MANAGED)
        if not self.switches.ignores_streams:
            bench.supply.work(stream, buffer.start, buffer.nbytes)
        self.live.append(buffer)

    @precondition(lambda self: self.live)
    @rule(index=st.integers(0, 1000))
    def free(self, index):
        buffer = self.live.pop(index % len(self.live))
        with suppress(SupplyError):
            self.bench.free(buffer)

    @precondition(lambda self: self.live)
    @rule(index=st.integers(0, 1000), user=st.integers(0, 2))
    def free_after_use(self, index, user):
        buffer = self.live[index % len(self.live)]
        try:
            self.bench.free_after(buffer, user)
        except SupplyError:
            return
        self.live.remove(buffer)

    @rule(stream=st.integers(0, 2))
    def hold(self, stream):
        self.bench.supply.hold(stream)

    @rule(stream=st.integers(0, 2))
    def finish(self, stream):
        self.bench.supply.finish(stream)

    @rule(calls=st.integers(0, 6), lack=st.booleans())
    def fail_soon(self, calls, lack):
        self.bench.supply.fail_after(calls, lack=lack)

    @rule(keep=st.integers(0, 40 * PAGE))
    def trim(self, keep):
        try:
            self.bench.policy.trim(keep)
        except SupplyError:
            return
        figures = self.bench.policy.figures()
        assert figures.reserved <= max(keep, figures.allocated + SLOTS * self.switches.scalar_alignment)

    @rule(seconds=st.floats(0, 100))
    def look_around(self, seconds):
        self.bench.supply.clock += seconds
        with suppress(SupplyError):
            self.bench.policy.look_around()

    @rule(limit=st.integers(0, 30 * PAGE))
    def limit_cache(self, limit):
        try:
            self.bench.cache.set_cache_limit(limit)
        except SupplyError:
            return
        if not self.switches.limits_wait:
            assert self.bench.cache.get_cache_memory() <= limit

    @rule()
    def clear(self):
        with suppress(SupplyError):
            self.bench.cache.clear_cache()
        assert self.bench.cache.get_cache_memory() == 0

    @invariant()
    def live_buffers_do_not_overlap_and_the_sums_are_right(self):
        check_sums(self.bench, self.live)
        figures = self.bench.policy.figures()
        pending = [pending.buffer.nbytes for pending in self.bench.policy._pending]
        assert self.bench.cache._pending == sum(pending)
        assert figures.allocated == self.bench.cache.get_active_memory()
        assert figures.idle >= 0
        assert self.bench.cache.get_cache_memory() == sum(buffer.nbytes for buffer in self.bench.cache.shelves)
        assert self.bench.cache.get_peak_memory() >= self.bench.cache.get_active_memory()

    @invariant()
    def lines_count_their_buffers(self):
        counted = Counter({line: line.buffers for line in self.bench.cache.lines.values() if line.buffers})
        pending = [pending.buffer for pending in self.bench.policy._pending]
        buffers = [*self.live, *pending, *self.bench.cache.shelves, *self.bench.cache._leaving]
        assert counted == Counter(buffer.line for buffer in buffers)

    def teardown(self):
        supply = self.bench.supply
        supply.fail_no_more()
        for buffer in self.live:
            self.bench.free(buffer)
        self.bench.policy.trim(0)
        self.bench.policy.trim(0)
        assert supply.live == self.bench.policy.figures().reserved == 0
        assert not supply.marks
        assert not self.bench.cache.lines


class MlxMachine(CacheMachine):
    switches = MLX


STEPS = settings(max_examples=60, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck))
TestMended = CacheMachine.TestCase
TestMended.settings = STEPS
TestAsMlx = MlxMachine.TestCase
TestAsMlx.settings = STEPS
