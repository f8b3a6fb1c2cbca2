"""The two engines with the policy "mlx" do the same, call for call, on two devices, whatever happens and is restored.

``STEPS`` in the environment sets the length of the long runs, as in `test_twins`.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from counting_supply import MIB, CountingSupply
from engine_bench import FakeStream, Refused, act_at_random, compiled_bench, mlx_benches, python_bench
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from mlx_bench import MENDED, MLX
from test_twins import MACHINE, STEPS, Twins, refuse_overlaps

from allotment_caching._twins import compiled_module
from allotment_caching.engine.mlx_buffers import PAGE

if TYPE_CHECKING:
    from allotment_caching.engine.mlx_cache import MlxSettings

pytestmark = [
    pytest.mark.skipif(compiled_module() is None, reason="the compiled engine was not built here"),
    pytest.mark.filterwarnings("ignore:idle memory was not given back"),
]

TOTAL = 300 * PAGE
SWITCHES = ["ignores_streams", "ignores_devices", "never_retries", "limits_wait", "peak_falls_to_zero"]
SIZES = st.one_of(st.integers(1, 64), st.integers(1, 4 * PAGE), st.integers(1, 30 * PAGE))
STREAMS = st.integers(0, 2)
DEVICES = st.integers(0, 1)


class MlxTwins:
    """Both caches, and both engines of each of two devices."""

    def __init__(self, settings: MlxSettings, total: int = TOTAL) -> None:
        self.caches, pairs = [], []
        for make in (python_bench, compiled_bench):
            supplies = [CountingSupply(total=total, base=(ordinal + 1) << 44) for ordinal in range(2)]
            cache, benches = mlx_benches(make, settings, supplies)
            self.caches.append(cache)
            pairs.append(benches)
        self.devices = [Twins(python, compiled) for python, compiled in zip(*pairs, strict=True)]

    def both_caches(self, call: Any) -> Any:
        """Make a call on both caches; what both answer is the same."""
        answers = []
        for cache in self.caches:
            try:
                answers.append(call(cache))
            except Exception as error:
                answers.append((type(error), str(error)))
        assert answers[0] == answers[1]
        return answers[0]

    def on_all(self, call: Any) -> None:
        """Make a call on both engines of both devices."""
        for device in self.devices:
            device.both(call)

    def check(self) -> None:
        """Both hold the same, and what the accounts say is true."""
        for device in self.devices:
            device.compare()
        for question in ("active_memory", "peak_memory", "cache_memory", "memory_limit", "cache_limit"):
            self.both_caches(lambda cache, name=question: getattr(cache, f"get_{name}")())
        refuse_overlaps([block for device in self.devices for block in device.live])
        for twin, cache in enumerate(self.caches):
            supplies = [device.benches[twin].supply for device in self.devices]
            figures = [device.benches[twin].engine.figures() for device in self.devices]
            assert sum(each.reserved for each in figures) == sum(supply.live for supply in supplies)
            assert sum(each.allocated for each in figures) == cache.get_active_memory()
            assert cache.get_active_memory() >= sum(device.benches[twin].engine.current for device in self.devices)

    def finish(self) -> None:
        """Free everything: nothing is left."""
        for _ in range(2):  # a buffer of one device may be held by another
            for device in self.devices:
                device.free_all()
        for device in self.devices:
            assert [bench.supply.live for bench in device.benches] == [0, 0]
            assert [bench.supply.marks for bench in device.benches] == [{}, {}]
            assert [bench.reserved for bench in device.benches] == [0, 0]
        assert self.both_caches(lambda cache: cache.get_active_memory()) == 0


class MlxTwinsMachine(RuleBasedStateMachine):
    @initialize(
        switches=st.fixed_dictionaries(dict.fromkeys(SWITCHES, st.booleans())),
        idle_seconds=st.sampled_from([None, 0.0, 10.0]),
        alignment=st.sampled_from([8, 256]),
    )
    def begin(self, switches: dict[str, bool], idle_seconds: float | None, alignment: int) -> None:
        given = replace(MENDED, memory_limit=80 * PAGE, cache_limit=40 * PAGE, total=TOTAL, **switches)
        self.twins = MlxTwins(replace(given, idle_seconds=idle_seconds, scalar_alignment=alignment))
        self.ignores_streams = switches["ignores_streams"]

    @rule(device=DEVICES, size=SIZES, stream=STREAMS, pool=st.sampled_from([0, 0, 0, 1, 2]))
    def allocate(self, device: int, size: int, stream: int, pool: int) -> None:
        self.twins.devices[device].allocate(size, stream, pool)

    @rule(device=DEVICES, index=st.integers(0, 1000))
    def free(self, device: int, index: int) -> None:
        if self.twins.devices[device].live:
            self.twins.devices[device].free(index)

    @rule(device=DEVICES, index=st.integers(0, 1000), stream=STREAMS)
    def use(self, device: int, index: int, stream: int) -> None:
        if self.twins.devices[device].live:
            self.twins.devices[device].use(index, stream)

    @precondition(lambda self: not self.ignores_streams)
    @rule(device=DEVICES, index=st.integers(0, 1000))
    def work(self, device: int, index: int) -> None:
        twins = self.twins.devices[device]
        if twins.live:
            ptr, size, stream = twins.live[index % len(twins.live)]
            maker = self.twins.devices[(ptr >> 44) - 1]  # the other device's supply knows nothing of the memory
            if maker is twins:
                maker.both(lambda bench: bench.supply.work(stream, ptr, size))

    @rule(device=DEVICES, stream=STREAMS)
    def hold(self, device: int, stream: int) -> None:
        self.twins.devices[device].both(lambda bench: bench.supply.hold(stream))

    @rule(device=DEVICES, stream=STREAMS)
    def let_finish(self, device: int, stream: int) -> None:
        self.twins.devices[device].both(lambda bench: bench.supply.finish(stream))

    @rule(device=DEVICES, keep=st.integers(0, 80 * PAGE))
    def trim(self, device: int, keep: int) -> None:
        self.twins.devices[device].both(lambda bench: bench.engine.trim(keep))

    @rule(device=DEVICES, seconds=st.floats(0, 30))
    def look_around(self, device: int, seconds: float) -> None:
        for twins in self.twins.devices:
            for bench in twins.benches:
                bench.supply.clock += seconds
        self.twins.devices[device].both(lambda bench: bench.engine.look_around())

    @rule(device=DEVICES, pool=st.sampled_from([1, 2]))
    def release(self, device: int, pool: int) -> None:
        self.twins.devices[device].both(lambda bench: bench.engine.release_pool(pool))

    @rule(may_ask=st.booleans())
    def capture(self, may_ask: bool) -> None:
        for twins in self.twins.devices:
            for bench in twins.benches:
                bench.supply.may_ask = may_ask

    @rule(device=DEVICES, calls=st.integers(0, 6), lack=st.booleans())
    def fail(self, device: int, calls: int, lack: bool) -> None:
        self.twins.devices[device].both(lambda bench: bench.supply.fail_after(calls, lack=lack))

    @rule(device=DEVICES, nbytes=st.integers(0, TOTAL))
    def others_use_the_pool(self, device: int, nbytes: int) -> None:
        for bench in self.twins.devices[device].benches:
            bench.supply.pool_used_elsewhere = nbytes

    @rule(device=DEVICES, limit=st.integers(-1, 90 * PAGE), is_of_cache=st.booleans())
    def limit(self, device: int, limit: int, is_of_cache: bool) -> None:
        name = "cache_limit" if is_of_cache else "limit"
        self.twins.devices[device].both(lambda bench: setattr(bench.engine, name, limit))

    @rule()
    def clear(self) -> None:
        self.twins.both_caches(lambda cache: cache.clear_cache())

    @rule()
    def reset_peaks(self) -> None:
        self.twins.both_caches(lambda cache: cache.reset_peak_memory())
        self.twins.on_all(lambda bench: bench.engine.reset_peak_reserved())

    @rule(device=DEVICES, enable=st.booleans())
    def share(self, device: int, enable: bool) -> None:
        self.twins.devices[device].both(lambda bench: bench.engine.share(1 - device, enable))

    @rule(device=DEVICES, ptr=st.integers(0, 2**43), size=st.integers(0, 100))
    def free_nonsense(self, device: int, ptr: int, size: int) -> None:
        assert self.twins.devices[device].both(lambda bench: bench.free(ptr, size))[0] is Refused

    @invariant()
    def agree(self) -> None:
        if hasattr(self, "twins"):
            self.twins.check()

    def teardown(self) -> None:
        if hasattr(self, "twins"):
            self.twins.finish()


TestMlxTwinsMachine = MlxTwinsMachine.TestCase
TestMlxTwinsMachine.settings = MACHINE


@pytest.mark.parametrize("given", [MENDED, MLX], ids=["mended", "mlx"])
@pytest.mark.parametrize("seed", range(3))
def test_the_twins_agree_over_many_steps(given: MlxSettings, seed: int) -> None:
    total = 256 * MIB
    twins = MlxTwins(replace(given, total=total, memory_limit=150 * MIB, cache_limit=50 * MIB), total)
    chance = random.Random(seed)
    sizes = [4, 8, 200, 4096, 70_000, MIB, 3 * MIB, 21 * MIB]
    for step in range(STEPS):
        act_at_random(chance.choice(twins.devices), chance, sizes, step)
        if step % 97 == 0:
            twins.check()
    twins.check()
    twins.finish()


def test_a_stream_is_named_to_an_engine_before_it_is_used() -> None:
    twins = MlxTwins(replace(MENDED, total=TOTAL))
    device = twins.devices[0]
    device.allocate(PAGE, 1)
    device.both(lambda bench: bench.engine.record_use(device.live[0][0], FakeStream(2)))

    assert [bench.streams.find(2) is not None for bench in device.benches] == [True, True]
    twins.finish()
