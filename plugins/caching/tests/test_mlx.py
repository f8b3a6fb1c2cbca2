"""The policy "mlx": what is mended, and the switches that restore what MLX does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from counting_supply import MIB, MisuseError, SupplyError, SupplyMemoryError
from mlx_bench import MENDED, MLX, SIDE

from allotment_caching.engine.mlx_buffers import MANAGED, PAGE, Kind

# Streams


def test_a_stream_reuses_at_once_what_it_freed(make_mlx):
    bench = make_mlx()
    bench.supply.hold(SIDE)
    buffer = bench.take(MIB, SIDE)
    bench.supply.work(SIDE, buffer.start, MIB)
    bench.free(buffer)

    assert bench.take(MIB, SIDE) is buffer


def test_another_stream_does_not_get_a_buffer_that_is_worked_on(make_mlx):
    bench = make_mlx()
    bench.supply.hold(SIDE)
    buffer = bench.take(MIB, SIDE)
    bench.supply.work(SIDE, buffer.start, MIB)
    bench.free(buffer)

    other = bench.take(MIB)

    assert other is not buffer
    bench.supply.work(0, other.start, MIB)


def test_another_stream_gets_it_once_the_work_is_past(make_mlx):
    bench = make_mlx()
    bench.supply.hold(SIDE)
    buffer = bench.take(MIB, SIDE)
    bench.free(buffer)
    bench.supply.finish(SIDE)

    assert bench.take(MIB) is buffer
    assert not bench.supply.marks


def test_a_mark_says_nothing_of_later_frees(make_mlx):
    bench = make_mlx()
    bench.supply.hold(SIDE)
    early, late = bench.take(MIB, SIDE), bench.take(4 * MIB, SIDE)
    bench.free(early)
    bench.take(MIB)
    bench.supply.finish(SIDE)
    bench.supply.hold(SIDE)
    bench.supply.work(SIDE, late.start, MIB)
    bench.free(late)

    assert bench.take(MIB) is early
    assert bench.take(4 * MIB) is not late


def test_of_the_buffers_of_other_streams_the_oldest_is_taken(make_mlx):
    bench = make_mlx()
    buffers = {stream: bench.take(MIB, stream) for stream in (1, 2, 3)}
    bench.free(buffers[2], buffers[3], buffers[1])

    assert [bench.take(MIB, 4) for _ in range(3)] == [buffers[2], buffers[3], buffers[1]]


def test_streams_can_be_ignored_as_with_mlx(make_mlx):
    bench = make_mlx(replace(MENDED, ignores_streams=True))
    bench.supply.hold(SIDE)
    buffer = bench.take(MIB, SIDE)
    bench.supply.work(SIDE, buffer.start, MIB)
    bench.free(buffer)

    other = bench.take(MIB)

    assert other is buffer
    with pytest.raises(MisuseError, match="work on the same memory"):
        bench.supply.work(0, other.start, MIB)


def test_null_streams_of_two_devices_are_two_streams(make_mlx):
    bench = make_mlx(devices=2)
    first = bench.take_managed(MIB)
    bench.supplies[0].hold(0)
    bench.free(first)

    assert bench.take_managed(MIB, device=1) is not first


def test_nothing_of_another_stream_is_taken_while_nobody_may_ask(make_mlx):
    bench = make_mlx()
    buffer = bench.take(MIB, SIDE)
    bench.free(buffer)
    bench.supply.may_ask = False
    assert bench.take(MIB) is not buffer
    bench.supply.may_ask = True

    assert bench.take(MIB) is buffer


def test_a_buffer_is_given_back_in_the_order_of_the_stream_that_freed_it_last(make_mlx):
    bench = make_mlx()
    buffer = bench.take(MIB, SIDE)
    bench.free(buffer)
    assert bench.take(MIB, 9) is buffer
    bench.free(buffer)

    bench.cache.clear_cache()

    assert bench.supply.calls[-1] == ("free_async", (buffer.start, 9))


def test_memory_is_not_given_back_in_the_order_of_a_stream_that_is_captured(make_mlx):
    bench = make_mlx()
    bench.free(bench.take(MIB))
    bench.supply.may_ask = False
    bench.cache.clear_cache()
    assert bench.supply.live == MIB
    assert bench.engine.figures().reserved == MIB
    bench.supply.may_ask = True

    bench.engine.look_around()

    assert bench.supply.live == 0
    assert bench.engine.figures().reserved == 0


# Buffers that several streams use


def test_a_buffer_that_others_use_comes_back_when_they_are_done(make_mlx):
    bench = make_mlx()
    bench.supply.hold(SIDE)
    buffer = bench.take(MIB)
    bench.supply.work(SIDE, buffer.start, MIB)
    bench.free_after(buffer, SIDE)
    assert bench.bytes() == (0, 0)
    assert bench.engine.figures().reserved == MIB
    assert bench.take(MIB) is not buffer
    bench.supply.finish(SIDE)

    bench.engine.look_around()

    assert bench.cache.get_cache_memory() == MIB
    assert bench.take(MIB) is buffer
    assert not bench.supply.marks


def test_what_others_use_counts_for_the_memory_limit(make_mlx):
    bench = make_mlx(replace(MENDED, memory_limit=4 * PAGE))
    bench.supply.hold(SIDE)
    used, idle = bench.take(2 * PAGE), bench.take(PAGE)
    bench.free(idle)
    bench.free_after(used, SIDE)

    bench.take(2 * PAGE)

    assert bench.evicted() == [idle.start]


def test_a_mark_that_could_not_be_set_is_set_later(make_mlx):
    bench = make_mlx()
    buffer = bench.take(MIB)
    bench.supply.may_ask = False
    bench.free_after(buffer, SIDE)
    bench.engine.look_around()
    assert bench.cache.get_cache_memory() == 0
    bench.supply.may_ask = True

    bench.engine.look_around()

    assert bench.cache.get_cache_memory() == MIB


def test_a_buffer_stays_handed_out_when_its_users_cannot_be_marked(make_mlx):
    bench = make_mlx()
    buffer = bench.take(MIB)
    bench.supply.fail_after(1, "mark")

    with pytest.raises(SupplyError):
        bench.free_after(buffer, 1, 2)

    assert bench.bytes() == (MIB, 0)
    bench.free_after(buffer, 1, 2)
    bench.engine.look_around()
    assert bench.bytes() == (0, MIB)
    assert not bench.supply.marks


# Managed memory


def test_without_a_stream_of_a_device_memory_is_managed(make_mlx):
    bench = make_mlx()

    buffer = bench.take_managed(MIB)

    assert (buffer.device, buffer.kind) == (MANAGED, Kind.MANAGED)
    assert bench.supply.managed == MIB


def test_a_managed_policy_takes_all_of_it_from_managed_memory(make_mlx):
    bench = make_mlx()
    buffer = bench.take_managed(MIB)
    bench.free(buffer)

    assert bench.supply.counts["malloc_async"] == 0
    assert bench.take_managed(MIB) is buffer


def test_a_managed_buffer_does_not_serve_a_request_for_a_device(make_mlx):
    bench = make_mlx()
    bench.free(bench.take_managed(MIB))

    assert bench.take(MIB).device == 0


def test_a_managed_buffer_serves_a_request_for_a_device_as_with_mlx(make_mlx):
    bench = make_mlx(replace(MENDED, ignores_devices=True))
    managed = bench.take_managed(MIB)
    bench.free(managed)

    assert bench.take(MIB) is managed
    assert bench.supply.counts["malloc_async"] == 0


def test_a_buffer_of_one_device_does_not_serve_another(make_mlx):
    bench = make_mlx(devices=2)
    bench.free(bench.take(MIB))

    assert bench.take(MIB, device=1).device == 1


@pytest.mark.parametrize("ignores_streams", [False, True])
def test_a_buffer_of_one_device_becomes_managed_for_another_as_with_mlx(make_mlx, ignores_streams):
    bench = make_mlx(replace(MENDED, ignores_devices=True, ignores_streams=ignores_streams), devices=2)
    old = bench.take(MIB, device=0)
    bench.free(old)

    moved = bench.take(MIB, device=1)

    assert moved.device == MANAGED
    assert bench.supplies[0].live == 0
    assert bench.supplies[1].managed == MIB
    assert bench.reserved == [0, MIB]
    bench.free(moved)
    assert bench.take(MIB, device=0) is moved, "and stays managed for ever"
    assert bench.reserved == [MIB, 0]


def test_memory_in_use_is_never_moved(make_mlx):
    bench = make_mlx(MLX, devices=2)
    buffer = bench.take(MIB, device=0)
    start = buffer.start

    bench.take(MIB, device=1)
    bench.take_managed(MIB, device=1)

    assert (buffer.start, buffer.device) == (start, 0)
    bench.supplies[0].work(0, start, MIB)


def test_a_managed_buffer_of_another_device_is_reused_when_its_work_is_past(make_mlx):
    bench = make_mlx(devices=2)
    bench.supplies[0].hold(SIDE)
    managed = bench.take_managed(MIB, SIDE)
    bench.free(managed)

    other = bench.take_managed(MIB, SIDE, device=1)
    assert other is not managed
    bench.supplies[0].finish(SIDE)

    assert bench.take_managed(MIB, SIDE, device=1) is managed


def test_a_buffer_is_lost_to_nobody_when_it_cannot_be_replaced(make_mlx):
    bench = make_mlx(replace(MENDED, ignores_devices=True), devices=2)
    bench.free(bench.take(MIB, device=0))
    bench.supplies[1].fail_after(0, "malloc_managed")

    with pytest.raises(SupplyError):
        bench.take(MIB, device=1)

    assert bench.bytes() == (0, MIB)
    assert bench.take(MIB, device=1).device == MANAGED


# Lack of memory


def test_idle_memory_is_given_back_before_a_request_fails(make_mlx):
    bench = make_mlx(total=4 * MIB)
    bench.free(bench.take(3 * MIB))

    assert bench.take(2 * MIB).nbytes == 2 * MIB
    assert bench.cache.get_cache_memory() == 0


def test_work_is_waited_for_before_a_request_fails(make_mlx):
    bench = make_mlx(total=4 * MIB)
    bench.supply.hold(SIDE)
    buffer = bench.take(3 * MIB)
    bench.supply.work(SIDE, buffer.start, MIB)
    bench.free_after(buffer, SIDE)

    assert bench.take(2 * MIB).nbytes == 2 * MIB


def test_a_request_fails_at_once_for_lack_of_memory_as_with_mlx(make_mlx):
    bench = make_mlx(replace(MENDED, never_retries=True), total=4 * MIB)
    bench.free(bench.take(3 * MIB))

    with pytest.raises(SupplyMemoryError):
        bench.take(2 * MIB)

    assert bench.cache.get_cache_memory() == 3 * MIB


def test_a_request_that_cannot_be_met_fails_with_the_error_of_the_supply(make_mlx):
    bench = make_mlx(total=4 * MIB)
    live = bench.take(3 * MIB)

    with pytest.raises(SupplyMemoryError):
        bench.take(2 * MIB)

    assert bench.bytes() == (3 * MIB, 0)
    bench.free(live)
    assert bench.take(2 * MIB)


def test_another_failure_is_not_a_lack_of_memory(make_mlx):
    bench = make_mlx()
    bench.free(bench.take(3 * MIB))
    bench.supply.fail_after(0, "malloc_async")

    with pytest.raises(SupplyError):
        bench.take(MIB)

    assert bench.cache.get_cache_memory() == 3 * MIB


def test_lack_of_memory_on_one_device_leaves_the_cache_of_another(make_mlx):
    bench = make_mlx(devices=2)
    bench.free(bench.take(MIB, device=0))
    bench.free(bench.take(MIB, device=1))
    bench.supplies[1].fail_after(0, "malloc_async", lack=True)

    bench.take(4 * MIB, device=1)

    assert bench.reserved == [MIB, 4 * MIB]


# Age


def test_what_is_idle_for_long_is_given_back(make_mlx):
    bench = make_mlx(replace(MENDED, idle_seconds=60.0))
    bench.free(bench.take(MIB))
    bench.engine.look_around()
    bench.supply.clock = 30.0
    later = bench.take(3 * MIB)
    bench.free(later)
    bench.engine.look_around()
    bench.supply.clock = 60.0

    bench.engine.look_around()

    assert bench.cache.get_cache_memory() == later.nbytes


def test_a_buffer_is_not_taken_for_idle_before_it_was_freed(make_mlx):
    bench = make_mlx(replace(MENDED, idle_seconds=60.0))
    buffer = bench.take(MIB)
    bench.supply.clock = 1000.0
    bench.free(buffer)

    bench.engine.look_around()

    assert bench.cache.get_cache_memory() == MIB


def test_making_memory_gives_back_what_is_idle_for_long(make_mlx):
    bench = make_mlx(replace(MENDED, idle_seconds=60.0))
    for second in range(0, 500, 10):
        bench.supply.clock = float(second)
        bench.free(bench.take((second + 1) * PAGE))

    assert bench.cache.get_cache_memory() <= 8 * 500 * PAGE


def test_nothing_ages_with_mlx(make_mlx):
    bench = make_mlx(MLX)
    bench.free(bench.take(MIB))
    bench.engine.look_around()
    bench.supply.clock = 1e9

    bench.engine.look_around()

    assert bench.cache.get_cache_memory() == MIB


# Trimming, pools, other devices


def test_trim_keeps_what_it_is_told_to_and_gives_the_oldest_back(make_mlx):
    bench = make_mlx()
    live = bench.take(MIB)
    buffers = [bench.take(size * MIB) for size in (1, 2, 3)]
    bench.free(*buffers)

    bench.engine.trim(4 * MIB)

    assert bench.evicted() == [buffer.start for buffer in buffers[:2]]
    assert bench.engine.figures().reserved == live.nbytes + 3 * MIB


def test_trim_waits_for_work(make_mlx):
    bench = make_mlx()
    bench.supply.hold(SIDE)
    buffer = bench.take(MIB)
    bench.free_after(buffer, SIDE)
    bench.free(bench.take(MIB, SIDE))

    bench.engine.trim(0)

    assert bench.supply.in_use == 0
    assert bench.engine.figures().reserved == 0
    assert not bench.supply.marks


def test_trim_concerns_one_device(make_mlx):
    bench = make_mlx(devices=2)
    for device in (0, 1):
        bench.free(bench.take(MIB, device=device))

    bench.engines[0].trim(0)

    assert bench.reserved == [0, MIB]


def test_a_stream_is_forgotten_when_nothing_is_kept_for_it(make_mlx):
    bench = make_mlx()
    live = bench.take(MIB, SIDE)
    bench.free(bench.take(MIB, 9))
    bench.engine.trim(0)
    assert bench.supply.forgotten == [9]
    bench.free(live)
    bench.engine.trim(0)

    assert bench.supply.forgotten == [9, SIDE]
    assert not bench.supply.marks


def test_a_stream_is_not_forgotten_while_a_freed_buffer_waits_for_it(make_mlx):
    bench = make_mlx()
    bench.free(bench.take(MIB, SIDE))
    buffer = bench.take(MIB)
    bench.supply.may_ask = False
    bench.free_after(buffer, SIDE)
    bench.engine.look_around()
    assert not bench.supply.forgotten
    bench.supply.may_ask = True

    bench.engine.look_around()

    assert bench.supply.forgotten == [SIDE]
    assert bench.cache.get_cache_memory() == MIB


def test_the_memory_of_a_private_pool_serves_only_the_pool(make_mlx):
    bench = make_mlx()
    buffer = bench.take(MIB, SIDE, pool=1)
    bench.free(buffer)
    assert bench.cache.get_cache_memory() == 0
    bench.cache.clear_cache()

    assert bench.take(MIB, SIDE) is not buffer
    assert bench.take(MIB, SIDE, pool=2) is not buffer
    assert bench.take(MIB, SIDE, pool=1) is buffer


def test_the_memory_of_a_private_pool_counts_for_the_memory_limit(make_mlx):
    bench = make_mlx(replace(MENDED, memory_limit=4 * PAGE))
    idle = bench.take(PAGE)
    bench.free(idle, bench.take(2 * PAGE, pool=1))

    bench.take(2 * PAGE)

    assert bench.evicted() == [idle.start]


def test_no_graph_owns_the_memory_of_a_private_pool(make_mlx):
    bench = make_mlx()

    assert bench.take(MIB, pool=1).kind is Kind.SEGMENT
    assert bench.supply.counts["malloc"] == 1


def test_the_idle_memory_of_a_released_pool_serves_others_and_the_rest_when_it_is_freed(make_mlx):
    bench = make_mlx()
    idle, live = bench.take(MIB, SIDE, pool=1), bench.take(3 * MIB, SIDE, pool=1)
    bench.free(idle)

    bench.engine.release_pool(1)

    assert bench.take(MIB, SIDE) is idle
    bench.free(live)
    assert bench.take(3 * MIB, SIDE) is live


def test_releasing_a_pool_concerns_one_device(make_mlx):
    bench = make_mlx(devices=2)
    for device in (0, 1):
        bench.free(bench.take(MIB, device=device, pool=1))

    bench.engines[0].release_pool(1)

    assert bench.cache.get_cache_memory() == MIB


def test_sharing_lets_another_device_touch_the_default_pool(make_mlx):
    bench = make_mlx()
    bench.engine.share(1, True)
    assert bench.supply.pool_readers == {1}

    bench.engine.share(1, False)

    assert bench.supply.pool_readers == set()


def test_figures_are_those_of_one_device(make_mlx):
    bench = make_mlx(devices=2)
    live = bench.take(3 * MIB)
    bench.free(bench.take(MIB), bench.take(2 * MIB))
    bench.take(MIB, device=1)

    figures = bench.engine.figures()

    assert (figures.reserved, figures.allocated, figures.largest_free) == (6 * MIB, live.nbytes, 2 * MIB)
    assert figures.peak_reserved == 6 * MIB
    assert bench.engines[1].figures().reserved == MIB
    bench.engine.trim(0)
    bench.engine.reset_peak_reserved()
    assert bench.engine.figures().peak_reserved == 3 * MIB
