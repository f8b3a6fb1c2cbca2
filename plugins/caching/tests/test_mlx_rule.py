"""The policy "mlx": what it does as MLX does, rule by rule, and MLX's names."""

from __future__ import annotations

from dataclasses import replace

import pytest
from counting_supply import MIB
from engine_bench import FakeStream
from mlx_bench import MENDED, MLX, SIDE, TOTAL, mlx

from allotment_caching.engine.mlx_buffers import MANAGED, PAGE, SLOTS, Kind, fitting_sizes, round_size

SWITCHES = ["ignores_streams", "ignores_devices", "never_retries", "limits_wait", "peak_falls_to_zero"]


# Sizes


@pytest.mark.parametrize(
    ("size", "rounded"),
    [
        (0, 0), (1, 8), (8, 8), (9, 16), (16, 16), (17, 32), (32, 32), (100, 128), (4096, 4096), (4097, 8192),
        (8191, 8192), (8193, 16384), (16383, 16384), (16384, 16384), (16385, 32768), (32768, 32768), (32769, 49152),
        (100000, 114688), (1048576, 1048576), (1048577, 1064960),
    ],
)  # fmt: skip
def test_a_size_is_rounded_as_mlx_does(size, rounded):
    assert round_size(size) == rounded


@pytest.mark.parametrize(
    ("size", "fitting"),
    [
        (8, {8}),
        (16, {16}),
        (4096, {4096}),
        (8192, {8192}),
        (16384, {16384}),
        (32768, {32768, 49152}),
        (49152, {49152, 65536}),
        (MIB, {MIB, MIB + PAGE}),
    ],
)
def test_the_cached_sizes_that_serve_a_request_are_those_of_mlx(size, fitting):
    assert set(fitting_sizes(size)) == fitting


@pytest.mark.parametrize("size", [8, 16, 1024, 8192, PAGE, 2 * PAGE, 3 * PAGE, 4 * PAGE, 100 * PAGE])
def test_they_are_all_rounded_sizes_within_mlx_window(size):
    rounded = {round_size(other) for other in range(1, 2 * size + 3 * PAGE, 8)}

    assert set(fitting_sizes(size)) == {key for key in rounded if size <= key < min(2 * size, size + 2 * PAGE)}


@pytest.mark.parametrize("cached", [16, 4096, PAGE, 2 * PAGE, 3 * PAGE, MIB])
@pytest.mark.parametrize("asked", [16, 4096, PAGE, 2 * PAGE, 3 * PAGE, MIB])
def test_a_cached_buffer_serves_just_the_sizes_that_it_fits(make_mlx, asked, cached):
    bench = make_mlx(mlx())
    buffer = bench.take(cached)
    bench.free(buffer)

    assert (bench.take(asked) is buffer) == (cached in fitting_sizes(asked))


def test_a_reused_buffer_keeps_its_capacity(make_mlx):
    bench = make_mlx()
    bench.free(bench.take(8192))

    assert bench.take(6000).nbytes == 8192
    assert bench.made == 1


# The trace of MLX's rule


def test_the_golden_trace(make_mlx):
    p = PAGE
    bench = make_mlx(mlx(10 * p, 10 * p))
    a, b = bench.take(3 * p), bench.take(3 * p)
    assert bench.bytes() == (6 * p, 0)
    bench.free(a, b)
    assert bench.bytes() == (0, 6 * p)
    d = bench.take(2 * p)
    assert d is a
    assert bench.bytes() == (3 * p, 3 * p)
    e = bench.take(1 * p)
    assert e not in (a, b)
    assert bench.bytes() == (4 * p, 3 * p)
    f = bench.take(4 * p)
    assert bench.evicted() == [b.start]
    assert bench.bytes() == (8 * p, 0)
    bench.take(p + 1)
    assert bench.bytes() == (10 * p, 0)
    assert bench.cache.get_peak_memory() == 10 * p
    bench.free(d, e, f)
    assert bench.bytes() == (2 * p, 8 * p)
    bench.take(5 * p)
    assert bench.evicted() == [b.start, d.start, e.start, f.start]
    assert bench.bytes() == (7 * p, 0)
    bench.take(9 * p)
    assert bench.bytes() == (16 * p, 0)
    assert bench.made == 7


def fill_in_falling_order(bench):
    buffers = [bench.take(pages * PAGE) for pages in (4, 3, 2, 1)]
    bench.free(*buffers)
    return [buffer.start for buffer in buffers]


def test_the_oldest_leave_when_a_part_of_the_cache_must(make_mlx):
    bench = make_mlx(mlx(10 * PAGE, 10 * PAGE))
    starts = fill_in_falling_order(bench)

    bench.take(6 * PAGE)

    assert bench.evicted() == starts[:2]
    assert bench.cache.get_cache_memory() == 3 * PAGE


def test_all_leave_by_size_when_nearly_all_must(make_mlx):
    bench = make_mlx(mlx(10 * PAGE, 10 * PAGE))
    starts = fill_in_falling_order(bench)

    bench.take(9 * PAGE)

    assert bench.evicted() == starts[::-1]
    assert bench.cache.get_cache_memory() == 0


def test_the_buffer_that_passes_the_cache_limit_is_kept_until_the_next_request(make_mlx):
    p = PAGE
    bench = make_mlx(mlx(cache=4 * p))
    small, large = bench.take(3 * p), bench.take(8 * p)
    bench.free(small, large)
    assert bench.cache.get_cache_memory() == 11 * p

    bench.take(1 * p)

    assert bench.evicted() == [small.start, large.start]
    assert bench.cache.get_cache_memory() == 0


def test_a_request_that_is_served_brings_the_cache_within_its_limit_too(make_mlx):
    p = PAGE
    bench = make_mlx(mlx(cache=4 * p))
    small, large = bench.take(3 * p), bench.take(8 * p)
    bench.free(small, large)

    assert bench.take(3 * p) is small
    assert bench.evicted() == [large.start]


def test_a_full_cache_takes_nothing_more(make_mlx):
    bench = make_mlx(mlx(cache=4 * PAGE))
    first, second = bench.take(4 * PAGE), bench.take(PAGE)

    bench.free(first, second)

    assert bench.cache.get_cache_memory() == 4 * PAGE
    assert bench.evicted() == [second.start]


def test_what_a_full_cache_did_not_take_is_given_back_with_the_next_call_at_the_latest(make_mlx):
    bench = make_mlx(replace(MENDED, cache_limit=0))
    buffer = bench.take(PAGE)
    bench.engine.deallocate_on(buffer.start, PAGE, FakeStream(0))  # which leaves it to others to look around
    assert bench.reserved == [PAGE]

    bench.take(PAGE)

    assert bench.evicted() == [buffer.start]


def test_of_equal_buffers_the_one_that_was_freed_first_is_taken(make_mlx):
    bench = make_mlx()
    first, second, third = (bench.take(MIB) for _ in range(3))
    bench.free(second, third, first)

    assert [bench.take(MIB) for _ in range(3)] == [second, third, first]


def test_the_memory_limit_is_a_guideline(make_mlx):
    bench = make_mlx(mlx(4 * PAGE))

    bench.take(16 * PAGE)

    assert bench.cache.get_active_memory() == 16 * PAGE


def test_a_part_of_the_cache_is_given_back_when_a_default_pool_has_reserved_nearly_all(make_mlx):
    bench = make_mlx(MLX)
    buffers = [bench.take(TOTAL // 32) for _ in range(4)]
    bench.free(*buffers)
    bench.supply.pool_used_elsewhere = int(0.95 * TOTAL)

    bench.take(PAGE)

    assert bench.evicted() == [buffer.start for buffer in buffers[:2]]


def test_the_cache_stays_when_no_default_pool_has_reserved_so_much(make_mlx):
    bench = make_mlx(MLX)
    bench.free(bench.take(TOTAL // 32))
    bench.supply.pool_used_elsewhere = int(0.9 * TOTAL)

    bench.take(PAGE)

    assert not bench.evicted()


def test_the_pools_of_all_devices_are_asked(make_mlx):
    bench = make_mlx(MENDED, devices=2)
    bench.free(bench.take(TOTAL // 32))
    bench.supplies[1].pool_used_elsewhere = TOTAL

    bench.take(PAGE)

    assert bench.cache.get_cache_memory() == 0


# Scalars


def test_scalars_lie_in_one_piece_of_managed_memory(make_mlx):
    bench = make_mlx(MLX)

    scalars = [bench.take(size) for size in (1, 4, 8)]

    assert [scalar.start - scalars[0].start for scalar in scalars] == [0, 8, 16]
    assert all(scalar.device == MANAGED for scalar in scalars)
    assert bench.supply.managed == 64 * 1024
    assert bench.cache.get_active_memory() == 24


def test_there_are_8192_slots_and_then_managed_memory_for_each(make_mlx):
    bench = make_mlx(MLX)
    scalars = [bench.take(8) for _ in range(8192)]
    assert bench.supply.counts["malloc_managed"] == 1

    one_more = bench.take(8)

    assert one_more.kind is Kind.MANAGED
    assert one_more.nbytes == 8
    assert len({scalar.start for scalar in scalars}) == 8192


def test_a_freed_scalar_is_reused_through_the_cache_first(make_mlx):
    bench = make_mlx(MLX)
    scalars = [bench.take(8) for _ in range(8192)]
    bench.free(scalars[5])
    assert bench.cache.get_cache_memory() == 8

    assert bench.take(4) is scalars[5]


def test_a_slot_that_left_the_cache_is_the_next_to_be_taken(make_mlx):
    bench = make_mlx(MLX)
    scalars = [bench.take(8) for _ in range(3)]
    bench.free(scalars[1], scalars[0])
    bench.cache.clear_cache()

    assert bench.take(8) is scalars[0]
    assert bench.take(8) is scalars[1]
    assert bench.take(8).start == scalars[2].start + 8


def test_scalars_are_aligned_as_all_memory_is(make_mlx):
    bench = make_mlx(MENDED)

    scalars = [bench.take(8) for _ in range(3)]

    assert all(scalar.start % 256 == 0 for scalar in scalars)
    assert bench.supply.managed == SLOTS * 256


def test_the_alignment_of_scalars_is_a_setting(make_mlx):
    bench = make_mlx(replace(MENDED, scalar_alignment=8))

    assert bench.take(8).start + 8 == bench.take(8).start


def test_a_slot_goes_to_another_stream_only_when_its_work_is_past(make_mlx):
    bench = make_mlx(MENDED)
    bench.supply.hold(SIDE)
    scalar = bench.take(8, SIDE)
    bench.free(scalar)
    bench.cache.clear_cache()

    assert bench.take(8) is not scalar
    assert bench.take(8, SIDE) is scalar


def test_slots_in_flight_are_looked_at_when_no_other_is_left(make_mlx):
    bench = make_mlx(MENDED)
    scalars = [bench.take(8, SIDE) for _ in range(SLOTS)]
    bench.free(*scalars)
    bench.cache.clear_cache()

    assert bench.take(8) in scalars
    assert bench.supply.counts["malloc_managed"] == 1


def test_an_empty_slab_is_given_back_by_trim(make_mlx):
    bench = make_mlx()
    bench.free(bench.take(8))

    bench.engine.trim(0)

    assert bench.supply.managed == 0
    assert bench.engine.figures().reserved == 0
    assert bench.take(8).nbytes == 8


# Limits and figures, with MLX's names


def test_setting_a_limit_returns_the_former_one(make_mlx):
    cache = make_mlx().cache
    memory, idle = cache.get_memory_limit(), cache.get_cache_memory()

    assert cache.set_memory_limit(10) == memory
    assert cache.set_memory_limit(memory) == 10
    former = cache.set_cache_limit(20)
    assert former == MENDED.cache_limit
    assert cache.set_cache_limit(former) == 20
    assert cache.get_cache_memory() == idle


def test_a_negative_limit_is_refused(make_mlx):
    cache = make_mlx().cache

    with pytest.raises(ValueError, match="must be 0 or more"):
        cache.set_memory_limit(-1)
    with pytest.raises(ValueError, match="must be 0 or more"):
        cache.set_cache_limit(-1)

    assert cache.get_memory_limit() == MENDED.memory_limit


def test_with_a_cache_limit_of_0_the_cache_stays_empty(make_mlx):
    bench = make_mlx()
    bench.cache.set_cache_limit(0)

    for size in (8, 100, MIB):
        bench.free(bench.take(size))
        assert bench.cache.get_cache_memory() == 0

    assert bench.supply.live == bench.engine.figures().reserved == SLOTS * 256


def test_mlx_limits_are_95_percent_of_the_memory():
    assert (MLX.memory_limit, MLX.cache_limit) == (int(0.95 * TOTAL),) * 2


def test_the_cache_is_limited_to_a_part_of_the_memory():
    assert MENDED.cache_limit == TOTAL // 4


def test_new_limits_take_effect_at_once(make_mlx):
    bench = make_mlx()
    bench.free(*[bench.take(MIB) for _ in range(4)])
    bench.cache.set_cache_limit(2 * MIB)
    assert bench.cache.get_cache_memory() == 2 * MIB

    bench.cache.set_memory_limit(MIB)

    assert bench.cache.get_cache_memory() == MIB


def test_new_limits_wait_for_the_next_request_as_with_mlx(make_mlx):
    bench = make_mlx(replace(MENDED, limits_wait=True))
    bench.free(*[bench.take(MIB) for _ in range(4)])
    bench.cache.set_cache_limit(2 * MIB)
    assert bench.cache.get_cache_memory() == 4 * MIB

    bench.take(PAGE)

    assert bench.cache.get_cache_memory() == 2 * MIB


def test_the_peak_falls_to_what_is_active(make_mlx):
    bench = make_mlx()
    live, other = bench.take(MIB), bench.take(MIB)
    bench.free(other)
    assert bench.cache.get_peak_memory() == 2 * MIB

    bench.cache.reset_peak_memory()

    assert bench.cache.get_peak_memory() == bench.cache.get_active_memory() == live.nbytes


def test_the_peak_falls_to_zero_as_with_mlx(make_mlx):
    bench = make_mlx(replace(MENDED, peak_falls_to_zero=True))
    bench.take(MIB)

    bench.cache.reset_peak_memory()

    assert bench.cache.get_peak_memory() == 0


def test_active_memory_counts_capacities(make_mlx):
    bench = make_mlx()
    buffer = bench.take(PAGE + 1)
    assert bench.cache.get_active_memory() == 2 * PAGE

    bench.free(buffer)

    assert bench.cache.get_active_memory() == 0


def test_clearing_the_cache_gives_all_back(make_mlx):
    bench = make_mlx()
    bench.free(*[bench.take(size) for size in (16, MIB, 3 * MIB)])

    bench.cache.clear_cache()

    assert bench.cache.get_cache_memory() == bench.supply.live == 0


def test_mlx_settings_have_every_switch_on_and_mended_ones_none():
    assert all(getattr(MLX, switch) for switch in SWITCHES)
    assert not any(getattr(MENDED, switch) for switch in SWITCHES)
    assert (MLX.scalar_alignment, MLX.idle_seconds) == (8, None)
