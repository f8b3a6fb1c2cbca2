"""The two engines do the same, call for call, whatever happens; and whatever fails, nothing is lost.

``STEPS`` in the environment sets the length of the long runs: ``python3 dev nightly`` makes them a million.
"""

from __future__ import annotations

import os
import random
from itertools import pairwise
from typing import Any

import pytest
from counting_supply import GIB, MIB, CountingSupply, MisuseError
from engine_bench import Bench, FakeStream, Refused, act_at_random, compiled_bench, python_bench
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from allotment_caching._twins import compiled_module
from allotment_caching.engine.elastic import ElasticSettings

pytestmark = pytest.mark.skipif(compiled_module() is None, reason="the compiled engine was not built here")

STEPS = int(os.environ.get("STEPS", "3000"))
SIZES = st.one_of(
    st.integers(1, 4096), st.sampled_from([512, 1024, MIB, 2 * MIB]), st.integers(1, 40).map(lambda n: n * 777_777)
)
STREAMS = st.integers(0, 3)


class Twins:
    """Both engines on one device, given the same calls."""

    def __init__(self, python: Bench, compiled: Bench) -> None:
        self.benches = [python, compiled]
        self.live: list[tuple[int, int, int]] = []

    @classmethod
    def elastic(cls, total: int, granule: int, limit: int, idle_seconds: float | None) -> Twins:
        """Return twins with the policy "elastic"."""
        given = ElasticSettings(total=total, limit=limit, cache_limit=total // 2, idle_seconds=idle_seconds)
        supplies = [CountingSupply(total=total, granule=granule) for _ in range(2)]
        return cls(python_bench(supplies[0], given), compiled_bench(supplies[1], given))

    def both(self, call: Any) -> Any:
        """Make a call on both; return what both answered, which is the same."""
        first, second = (self._outcome(call, bench) for bench in self.benches)
        assert first == second
        return first

    def _outcome(self, call: Any, bench: Bench) -> Any:
        try:
            return call(bench)
        except MisuseError:
            raise
        except Exception as error:
            return type(error), str(error)

    def allocate(self, size: int, stream: int, pool: int = 0) -> None:
        if pool:
            ptr = self.both(lambda bench: bench.engine.allocate_on(size, FakeStream(stream), pool))
            if isinstance(ptr, int):
                self.both(lambda bench: bench.engine.enter(ptr, size))
        else:
            ptr = self.both(lambda bench: bench.allocate(size, stream=stream))
        if isinstance(ptr, int):
            self.live.append((ptr, size, stream))

    def free(self, index: int) -> None:
        ptr, size, _ = self.live[index % len(self.live)]
        if self.both(lambda bench: bench.free(ptr, size)) is None:
            del self.live[index % len(self.live)]

    def work(self, index: int) -> None:
        """Queue work on a block: the supply refuses if others still work on that memory."""
        ptr, size, stream = self.live[index % len(self.live)]
        self.both(lambda bench: bench.supply.work(stream, ptr, size))

    def use(self, index: int, stream: int) -> None:
        ptr, _, _ = self.live[index % len(self.live)]
        self.both(lambda bench: bench.engine.record_use(ptr, FakeStream(stream)))

    def check(self) -> None:
        """Both hold the same, and what the accounts say is true."""
        self.compare()
        for bench in self.benches:
            engine, figures = bench.engine, bench.engine.figures()
            assert figures.reserved == bench.supply.in_use
            assert engine.current <= figures.allocated <= figures.reserved

    def compare(self) -> None:
        """Both made the same calls, and their accounts are those of what is live."""
        python, compiled = self.benches
        assert python.supply.calls == compiled.supply.calls
        assert python.supply.forgotten == compiled.supply.forgotten
        assert python.engine.figures() == compiled.engine.figures()
        for bench in self.benches:
            assert (len(bench.engine), bench.engine.current) == (len(self.live), sum(size for _, size, _ in self.live))
            assert sorted(bench.engine.blocks()) == sorted((ptr, size) for ptr, size, _ in self.live)
        refuse_overlaps(self.live)

    def free_all(self) -> None:
        """Free everything, and give it back."""
        for bench in self.benches:
            bench.supply.fail_no_more()
            bench.supply.may_ask = True
            for stream in range(10):
                bench.supply.finish(stream)
        while self.live:
            self.free(0)
        for pool in (1, 2):
            self.both(lambda bench, pool=pool: bench.engine.release_pool(pool))
        for _ in range(2):  # what was pending, then what that freed
            self.both(lambda bench: bench.engine.trim(0))

    def finish(self) -> None:
        """Free everything: nothing is left."""
        self.free_all()
        for bench in self.benches:
            supply = bench.supply
            assert (supply.in_use, supply.mappings, supply.reservations, supply.marks) == (0, {}, {}, {})


def refuse_overlaps(live: list[tuple[int, int, int]]) -> None:
    blocks = sorted((ptr, ptr + size) for ptr, size, _ in live)
    assert all(end <= start for (_, end), (start, _) in pairwise(blocks))


class TwinsMachine(RuleBasedStateMachine):
    @initialize(granule=st.sampled_from([0, 2 * MIB]), limit=st.sampled_from([60 * MIB, 1 * GIB]))
    def begin(self, granule: int, limit: int) -> None:
        self.twins = Twins.elastic(total=128 * MIB, granule=granule, limit=limit, idle_seconds=10)

    @rule(size=SIZES, stream=STREAMS, pool=st.sampled_from([0, 0, 0, 1, 2]))
    def allocate(self, size: int, stream: int, pool: int) -> None:
        self.twins.allocate(size, stream, pool)

    @precondition(lambda self: self.twins.live)
    @rule(index=st.integers(0, 1000))
    def free(self, index: int) -> None:
        self.twins.free(index)

    @precondition(lambda self: self.twins.live)
    @rule(index=st.integers(0, 1000))
    def work(self, index: int) -> None:
        self.twins.work(index)

    @rule(stream=STREAMS)
    def hold(self, stream: int) -> None:
        self.twins.both(lambda bench: bench.supply.hold(stream))

    @rule(stream=STREAMS)
    def let_finish(self, stream: int) -> None:
        self.twins.both(lambda bench: bench.supply.finish(stream))

    @rule(keep=st.sampled_from([0, 10 * MIB, 100 * MIB]))
    def trim(self, keep: int) -> None:
        self.twins.both(lambda bench: bench.engine.trim(keep))

    @rule(pool=st.sampled_from([1, 2]))
    def release(self, pool: int) -> None:
        self.twins.both(lambda bench: bench.engine.release_pool(pool))

    @rule(may_ask=st.booleans())
    def capture(self, may_ask: bool) -> None:
        for bench in self.twins.benches:
            bench.supply.may_ask = may_ask

    @rule(calls=st.integers(0, 6), lack=st.booleans())
    def fail(self, calls: int, lack: bool) -> None:
        self.twins.both(lambda bench: bench.supply.fail_after(calls, lack=lack))

    @rule(ptr=st.integers(0, 2**45), size=st.integers(0, 100))
    def free_nonsense(self, ptr: int, size: int) -> None:
        assert self.twins.both(lambda bench: bench.free(ptr, size))[0] is Refused

    @invariant()
    def agree(self) -> None:
        if hasattr(self, "twins"):
            self.twins.check()

    def teardown(self) -> None:
        if hasattr(self, "twins"):
            self.twins.finish()


MACHINE = settings(max_examples=60, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck))
TestTwinsMachine = TwinsMachine.TestCase
TestTwinsMachine.settings = MACHINE


@pytest.mark.parametrize("granule", [2 * MIB, 0], ids=["mapped", "segments"])
@pytest.mark.parametrize("seed", range(3))
def test_the_twins_agree_over_many_steps(granule: int, seed: int) -> None:
    twins = Twins.elastic(total=GIB, granule=granule, limit=700 * MIB, idle_seconds=50)
    chance = random.Random(seed)
    sizes = [512, 600, 4096, 70_000, MIB, 3 * MIB, 21 * MIB]
    for step in range(STEPS):
        act_at_random(twins, chance, sizes, step)
        if step % 97 == 0:
            twins.check()
    twins.check()
    twins.finish()


@pytest.mark.parametrize("granule", [2 * MIB, 0], ids=["mapped", "segments"])
@pytest.mark.parametrize("make", [python_bench, compiled_bench])
def test_ten_thousand_failures_lose_nothing(make: Any, granule: int) -> None:
    supply = CountingSupply(total=GIB, granule=granule)
    bench = make(supply, ElasticSettings(total=GIB, limit=600 * MIB, cache_limit=GIB, idle_seconds=None))
    chance = random.Random(1)
    live: list[tuple[int, int]] = []
    while supply.failures < 10_000:
        supply.fail_after(chance.randrange(4), lack=chance.random() < 0.5)
        try:
            if chance.random() < 0.5 or not live:
                size = chance.choice([512, 5 * MIB, 30 * MIB, 90 * MIB])
                live.append((bench.allocate(size, stream=chance.randrange(3)), size))
            elif chance.random() < 0.8:
                index = chance.randrange(len(live))
                if chance.random() < 0.3:
                    bench.engine.record_use(live[index][0], FakeStream(chance.randrange(3)))
                bench.free(*live[index])
                del live[index]
            else:
                bench.engine.trim(chance.choice([0, 100 * MIB]))
        except MisuseError:
            raise
        except Exception:
            pass
        assert bench.engine.current == sum(size for _, size in live)
        if supply.failures % 500 == 0:
            assert bench.reserved == supply.in_use
    supply.fail_no_more()
    for block in live:
        bench.free(*block)
    bench.engine.trim(0)
    bench.engine.trim(0)
    assert (supply.in_use, supply.mappings, supply.reservations, supply.marks) == (0, {}, {}, {})
    bench.free(bench.allocate(90 * MIB), 90 * MIB)
