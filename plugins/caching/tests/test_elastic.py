"""The policy "elastic", with each engine: what serves a request, where memory moves, and when it goes."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
from counting_supply import MIB, SupplyError, SupplyMemoryError
from engine_bench import FakeStream, Refused

from allotment_caching.engine.policy import LimitError

if TYPE_CHECKING:
    from engine_bench import Bench, MakeBench

GRANULE = 2 * MIB


def driver_calls(bench: Bench) -> int:
    return len(bench.supply.calls)


def free_often(bench: Bench, at: tuple[float, ...]) -> None:
    """Make as many frees as lie between two looks at what is due, at each of several times."""
    for bench.supply.clock in at:
        for _ in range(1024):
            bench.free(bench.allocate(200), 200)


def test_streams_that_come_and_go_do_not_use_the_addresses_up(bench: Bench) -> None:
    bench.free(bench.allocate(1000, stream=7), 1000)
    bench.supply.address_space = 3 * sum(bench.supply.reservations.values())
    for stream in range(8, 30):
        bench.free(bench.allocate(1000, stream=stream), 1000)

    assert len(bench.supply.reservations) <= 3
    kept = [bench.allocate(1000, stream=stream) for stream in (7, 8, 9)]
    with pytest.raises(SupplyMemoryError, match="addresses"):
        bench.allocate(1000, stream=10)
    for ptr in kept:
        bench.free(ptr, 1000)


class TestReuse:
    def test_the_block_freed_last_serves_the_next_request_of_its_size(self, bench: Bench) -> None:
        first, second = bench.allocate(1000), bench.allocate(1000)
        bench.free(first, 1000)
        bench.free(second, 1000)

        assert bench.allocate(1000) == second
        assert bench.allocate(1000) == first

    def test_cached_memory_serves_without_a_call_to_the_driver(self, bench: Bench) -> None:
        bench.free(bench.allocate(64 * MIB), 64 * MIB)
        before = driver_calls(bench)

        for _ in range(100):
            bench.free(bench.allocate(64 * MIB), 64 * MIB)

        assert driver_calls(bench) == before

    def test_sizes_are_rounded_to_512_bytes(self, bench: Bench) -> None:
        bench.free(ptr := bench.allocate(1), 1)

        assert bench.allocate(512) == ptr

    def test_a_free_block_is_split(self, bench: Bench) -> None:
        bench.free(ptr := bench.allocate(4 * MIB), 4 * MIB)

        assert bench.allocate(MIB) == ptr
        assert bench.allocate(MIB) == ptr + MIB
        assert bench.reserved == 4 * MIB

    def test_neighbours_that_are_free_are_joined(self, bench: Bench) -> None:
        parts = [bench.allocate(MIB) for _ in range(4)]
        for part in parts:
            bench.free(part, MIB)

        assert bench.allocate(4 * MIB) == parts[0]
        assert bench.reserved == 4 * MIB

    def test_the_lowest_block_that_fits_is_taken(self, bench: Bench) -> None:
        sizes = (MIB, 100_000, 8 * MIB, 100_000, 4 * MIB, 100_000)
        blocks = [bench.allocate(size) for size in sizes]
        for index in (0, 2, 4):
            bench.free(blocks[index], sizes[index])

        assert bench.allocate(3 * MIB) == blocks[2]
        assert bench.allocate(1000) == blocks[0]

    def test_memory_of_another_stream_is_not_taken_while_that_stream_works(self, bench: Bench) -> None:
        bench.supply.hold(1)
        bench.free(ptr := bench.allocate(2 * MIB, stream=1), 2 * MIB)
        other = bench.allocate(2 * MIB, stream=2)

        assert other != ptr
        assert bench.reserved == 4 * MIB


class TestMoving:
    def test_idle_memory_moves_before_new_memory_is_made(self, bench: Bench) -> None:
        blocks = [bench.allocate(GRANULE) for _ in range(8)]
        for block in blocks[::2]:
            bench.free(block, GRANULE)

        large = bench.allocate(4 * GRANULE)

        assert bench.reserved == 8 * GRANULE
        bench.supply.work(7, large, 4 * GRANULE)

    def test_addresses_stay_mapped_while_work_may_use_them(self, bench: Bench) -> None:
        bench.supply.hold(7)
        blocks = [bench.allocate(GRANULE) for _ in range(8)]
        for block in blocks:
            bench.supply.work(7, block, GRANULE)
        for block in blocks[::2]:
            bench.free(block, GRANULE)
        bench.allocate(4 * GRANULE)

        bench.allocate(64 * GRANULE)  # would unmap what is due
        assert bench.supply.counts["unmap"] == 0

        bench.supply.finish(7)
        bench.allocate(128 * GRANULE)
        assert bench.supply.counts["unmap"] > 0

    def test_memory_of_a_stream_that_is_done_moves_to_another(self, bench: Bench) -> None:
        bench.free(bench.allocate(8 * GRANULE, stream=1), 8 * GRANULE)

        ptr = bench.allocate(8 * GRANULE, stream=2)

        assert bench.reserved == 8 * GRANULE
        bench.supply.work(2, ptr, 8 * GRANULE)

    def test_streams_do_not_take_memory_from_each_other_for_ever(self, bench: Bench) -> None:
        def pass_round() -> None:
            for stream in range(4):
                bench.free(bench.allocate(8 * GRANULE, stream=stream), 8 * GRANULE)

        for _ in range(10):
            pass_round()
        before = driver_calls(bench)
        for _ in range(100):
            pass_round()

        assert driver_calls(bench) == before
        assert bench.reserved <= 4 * 8 * GRANULE

    def test_memory_does_not_move_for_a_private_pool(self, bench: Bench) -> None:
        bench.free(bench.allocate(4 * GRANULE), 4 * GRANULE)

        bench.engine.allocate_on(4 * GRANULE, bench.stream, 1)

        assert bench.reserved == 8 * GRANULE

    def test_memory_of_a_private_pool_moves_once_it_is_released(self, bench: Bench) -> None:
        ptr = bench.engine.allocate_on(4 * GRANULE, bench.stream, 1)
        bench.engine.deallocate_on(ptr, 4 * GRANULE, bench.stream)
        bench.allocate(4 * GRANULE, stream=9)
        assert bench.reserved == 8 * GRANULE

        bench.engine.release_pool(1)
        bench.allocate(4 * GRANULE, stream=9)
        assert bench.reserved == 8 * GRANULE

    def test_a_private_pool_reuses_its_own_memory(self, bench: Bench) -> None:
        ptr = bench.engine.allocate_on(MIB, bench.stream, 1)
        bench.engine.deallocate_on(ptr, MIB, bench.stream)

        assert bench.engine.allocate_on(MIB, bench.stream, 1) == ptr
        assert bench.allocate(MIB) != ptr

    def test_nothing_is_asked_of_streams_while_that_is_not_allowed(self, bench: Bench) -> None:
        bench.free(bench.allocate(4 * GRANULE, stream=1), 4 * GRANULE)
        bench.supply.may_ask = False

        bench.allocate(4 * GRANULE, stream=2)

        assert bench.reserved == 8 * GRANULE


class TestUses:
    def test_a_block_that_another_stream_uses_is_not_reused_before_that_is_done(self, bench: Bench) -> None:
        bench.supply.hold(2)
        ptr = bench.allocate(MIB, stream=1)
        bench.engine.record_use(ptr, FakeStream(2))
        bench.supply.work(2, ptr, MIB)
        bench.free(ptr, MIB)
        assert bench.allocate(MIB) != ptr

        bench.supply.finish(2)
        assert ptr in [bench.allocate(MIB) for _ in range(4)]

    def test_a_use_on_its_own_stream_changes_nothing(self, bench: Bench) -> None:
        ptr = bench.allocate(MIB, stream=1)
        bench.engine.record_use(ptr, FakeStream(1))
        bench.free(ptr, MIB)

        assert bench.allocate(MIB) == ptr

    def test_a_use_that_cannot_be_marked_is_marked_later(self, bench: Bench) -> None:
        ptr = bench.allocate(MIB, stream=1)
        bench.engine.record_use(ptr, FakeStream(2))
        bench.supply.may_ask = False
        bench.free(ptr, MIB)
        assert bench.allocate(MIB) != ptr

        bench.supply.may_ask = True
        assert ptr in [bench.allocate(MIB) for _ in range(4)]

    def test_a_block_freed_on_another_stream_waits_for_it(self, bench: Bench) -> None:
        bench.supply.hold(2)
        ptr = bench.engine.allocate_on(MIB, FakeStream(1))
        bench.engine.deallocate_on(ptr, MIB, FakeStream(2))

        assert bench.engine.allocate_on(MIB, FakeStream(1)) != ptr

    def test_a_free_that_cannot_mark_a_use_fails_and_the_block_stays(self, bench: Bench) -> None:
        ptr = bench.allocate(MIB, stream=1)
        bench.engine.record_use(ptr, FakeStream(2))
        bench.supply.fail_after(0, "mark")

        with pytest.raises(SupplyError):
            bench.free(ptr, MIB)

        assert ptr in bench.engine
        assert (bench.engine.current, bench.engine.frees) == (MIB, 0)
        bench.free(ptr, MIB)
        assert len(bench.engine) == 0


class TestLimits:
    def test_a_request_beyond_the_limit_is_refused_with_the_figures(self, make_bench: MakeBench) -> None:
        bench = make_bench(limit=8 * GRANULE)
        bench.allocate(6 * GRANULE)

        with pytest.raises(LimitError, match=r"8,388,608 bytes would be added to the 12,582,912 .* 16,777,216"):
            bench.allocate(4 * GRANULE)

    def test_idle_memory_is_given_back_before_a_request_is_refused(self, make_bench: MakeBench) -> None:
        bench = make_bench(limit=16 * GRANULE)
        bench.supply.hold(1)
        bench.free(bench.allocate(12 * GRANULE, stream=1), 12 * GRANULE)

        bench.allocate(12 * GRANULE, stream=2)

        assert bench.reserved <= 16 * GRANULE
        assert bench.supply.counts["synchronize"] > 0

    def test_a_lack_of_memory_of_the_driver_is_met_likewise(self, make_bench: MakeBench) -> None:
        bench = make_bench(total=16 * GRANULE, limit=64 * GRANULE)
        bench.supply.hold(1)
        bench.free(bench.allocate(12 * GRANULE, stream=1), 12 * GRANULE)

        bench.allocate(12 * GRANULE, stream=2)

        assert bench.supply.created <= 16 * GRANULE

    def test_a_lack_of_memory_that_nothing_cures_is_told(self, make_bench: MakeBench) -> None:
        bench = make_bench(total=16 * GRANULE, limit=64 * GRANULE)
        ptr = bench.allocate(12 * GRANULE)

        with pytest.raises(SupplyMemoryError):
            bench.allocate(12 * GRANULE)

        bench.free(ptr, 12 * GRANULE)
        bench.allocate(16 * GRANULE)

    def test_nobody_waits_while_that_is_not_allowed(self, make_bench: MakeBench) -> None:
        bench = make_bench(limit=16 * GRANULE)
        bench.free(bench.allocate(12 * GRANULE, stream=1), 12 * GRANULE)
        bench.supply.may_ask = False

        with pytest.raises(LimitError):
            bench.allocate(12 * GRANULE, stream=2)


class TestGivingBack:
    def test_a_trim_gives_back_what_is_idle(self, bench: Bench) -> None:
        bench.allocate(3 * GRANULE)
        bench.free(bench.allocate(100 * GRANULE), 100 * GRANULE)

        bench.engine.trim(0)

        assert bench.reserved == 4 * GRANULE - GRANULE
        assert bench.supply.created == bench.reserved

    def test_a_trim_keeps_what_it_is_told_to(self, bench: Bench) -> None:
        bench.free(bench.allocate(8 * GRANULE), 8 * GRANULE)

        bench.engine.trim(4 * GRANULE)

        assert bench.reserved <= 4 * GRANULE

    def test_a_trim_of_everything_leaves_nothing_behind(self, bench: Bench) -> None:
        for stream in range(4):
            sizes = [1, 5000, 3 * MIB, 70 * MIB]
            blocks = [(bench.allocate(size, stream=stream), size) for size in sizes]
            for block in blocks:
                bench.free(*block)

        bench.engine.trim(0)

        supply = bench.supply
        assert (supply.created, supply.mappings, supply.reservations, supply.marks) == (0, {}, {}, {})
        assert sorted(supply.forgotten) == [0, 1, 2, 3]

    def test_memory_that_was_idle_for_long_is_given_back_in_the_course_of_calls(self, make_bench: MakeBench) -> None:
        bench = make_bench(idle_seconds=10)
        bench.free(bench.allocate(64 * GRANULE), 64 * GRANULE)
        small = bench.allocate(100)

        for bench.supply.clock in (11, 22):
            for _ in range(1024):
                bench.free(bench.allocate(200), 200)

        assert bench.reserved <= 2 * GRANULE
        bench.free(small, 100)

    def test_memory_that_was_needed_in_between_is_kept(self, make_bench: MakeBench) -> None:
        bench = make_bench(idle_seconds=10)

        for bench.supply.clock in range(11, 100, 11):
            for _ in range(1024):
                bench.free(bench.allocate(200), 200)
            bench.free(bench.allocate(64 * GRANULE), 64 * GRANULE)

        assert bench.supply.counts["release"] == 0

    def test_idle_memory_above_its_limit_is_given_back_in_the_course_of_calls(self, make_bench: MakeBench) -> None:
        bench = make_bench(cache_limit=16 * GRANULE)
        bench.free(bench.allocate(64 * GRANULE), 64 * GRANULE)

        for _ in range(1024):
            bench.free(bench.allocate(200), 200)

        assert 0 < bench.reserved <= 17 * GRANULE

    def test_limits_can_be_changed(self, bench: Bench) -> None:
        bench.engine.limit, bench.engine.cache_limit = 8 * GRANULE, 4 * GRANULE

        assert (bench.engine.limit, bench.engine.cache_limit) == (8 * GRANULE, 4 * GRANULE)
        with pytest.raises(LimitError):
            bench.allocate(9 * GRANULE)

    def test_addresses_whose_memory_serves_another_stream_are_kept_until_it_has_left(
        self, make_bench: MakeBench
    ) -> None:
        bench = make_bench(idle_seconds=10)
        bench.free(bench.allocate(4 * GRANULE, stream=1), 4 * GRANULE)
        bench.supply.hold(2)
        ptr = bench.allocate(4 * GRANULE, stream=2)
        bench.supply.clock = 11

        for _ in range(1024):
            bench.free(bench.allocate(200, stream=3), 200)

        bench.supply.memory_behind(ptr, 4 * GRANULE)
        bench.supply.finish(2)
        bench.free(ptr, 4 * GRANULE)
        bench.engine.trim(0)
        assert (bench.supply.created, bench.supply.reservations) == (0, {})

    def test_memory_is_kept_for_ever_if_nothing_is_said(self, bench: Bench) -> None:
        bench.free(bench.allocate(64 * GRANULE), 64 * GRANULE)
        bench.supply.clock = 1e9

        for _ in range(2048):
            bench.free(bench.allocate(200), 200)

        assert bench.reserved >= 64 * GRANULE

    def test_what_cannot_be_given_back_in_passing_is_told_and_the_free_is_done(self, make_bench: MakeBench) -> None:
        bench = make_bench(idle_seconds=10)
        bench.free(bench.allocate(64 * GRANULE), 64 * GRANULE)
        bench.supply.fail_after(0, "unmap")

        with pytest.warns(match="idle memory was not given back"):
            free_often(bench, at=(11, 22))

        assert len(bench.engine) == 0
        bench.engine.trim(0)
        assert bench.supply.created == 0


class TestSegments:
    def test_a_device_that_cannot_map_gets_segments(self, make_bench: MakeBench) -> None:
        bench = make_bench(granule=0)

        bench.allocate(1000)

        assert (bench.reserved, bench.supply.counts["malloc"]) == (2 * MIB, 1)

    @pytest.mark.parametrize(
        ("size", "segment"), [(MIB, 2), (MIB + 1, 20), (10 * MIB, 20), (10 * MIB + 1, 12), (33 * MIB, 34)]
    )
    def test_the_size_of_a_segment_follows_the_request(self, make_bench: MakeBench, size: int, segment: int) -> None:
        bench = make_bench(granule=0)

        bench.allocate(size)

        assert bench.reserved == segment * MIB

    def test_segments_are_split_and_joined(self, make_bench: MakeBench) -> None:
        bench = make_bench(granule=0)
        blocks = [bench.allocate(512 * 1024) for _ in range(4)]
        for block in blocks:
            bench.free(block, 512 * 1024)

        assert bench.allocate(2 * MIB) == blocks[0]

    def test_idle_segments_are_freed_by_a_trim(self, make_bench: MakeBench) -> None:
        bench = make_bench(granule=0)
        bench.allocate(100)
        bench.free(bench.allocate(30 * MIB), 30 * MIB)

        bench.engine.trim(0)

        assert bench.reserved == 2 * MIB
        assert bench.supply.in_use == 2 * MIB

    def test_idle_segments_are_freed_before_a_request_is_refused(self, make_bench: MakeBench) -> None:
        bench = make_bench(granule=0, limit=40 * MIB)
        bench.free(bench.allocate(30 * MIB), 30 * MIB)

        bench.allocate(36 * MIB)

        assert bench.reserved == 36 * MIB


class TestFigures:
    def test_figures_tell_what_is_held_handed_out_and_idle(self, bench: Bench) -> None:
        bench.allocate(1000)
        figures = bench.engine.figures()

        assert (figures.reserved, figures.allocated, figures.idle) == (GRANULE, 1024, GRANULE - 1024)
        assert figures.largest_free == GRANULE - 1024
        assert figures.external_fragmentation == 0

    def test_scattered_free_space_is_fragmentation(self, bench: Bench) -> None:
        blocks = [bench.allocate(MIB) for _ in range(4)]
        bench.free(blocks[0], MIB)
        bench.free(blocks[2], MIB)

        assert bench.engine.figures().external_fragmentation == 0.5

    def test_the_peak_of_what_is_held_is_kept_until_it_is_reset(self, bench: Bench) -> None:
        bench.free(bench.allocate(8 * GRANULE), 8 * GRANULE)
        bench.engine.trim(0)
        assert bench.engine.figures().peak_reserved == 8 * GRANULE

        bench.engine.reset_peak_reserved()
        assert bench.engine.figures().peak_reserved == 0

    def test_memory_that_is_shared_is_shared_wholly_and_in_future(self, bench: Bench) -> None:
        bench.allocate(GRANULE)
        bench.engine.share(1, True)

        assert bench.supply.readers == {1}
        bench.engine.share(1, False)
        assert bench.supply.readers == set()


class TestAccounts:
    def test_accounts_count_what_was_asked_for(self, bench: Bench) -> None:
        ptr = bench.allocate(1000)
        bench.free(bench.allocate(500), 500)

        engine = bench.engine
        assert (engine.current, engine.peak, engine.allocations, engine.frees, len(engine)) == (1000, 1500, 2, 1, 1)
        assert ptr in engine
        engine.reset_peak()
        assert engine.peak == 1000

    @pytest.mark.parametrize("size", [0, -1, 2**63, 1.5, "8", True, None])
    def test_an_odd_size_is_left_to_core(self, bench: Bench, size: object) -> None:
        with pytest.raises(Refused):
            bench.engine.allocate(size)

    @pytest.mark.parametrize("ptr", [0, 12345, -1, 2**70, "x", None])
    def test_a_free_of_what_is_not_live_is_left_to_core(self, bench: Bench, ptr: object) -> None:
        with pytest.raises(Refused) as refusal:
            bench.engine.deallocate(ptr, 8)

        assert refusal.value.args == (ptr, None, 8)

    @pytest.mark.parametrize("size", [999, 1001, 0, -1, "x", None])
    def test_a_free_with_a_wrong_size_is_left_to_core(self, bench: Bench, size: object) -> None:
        ptr = bench.allocate(1000)

        with pytest.raises(Refused) as refusal:
            bench.engine.deallocate(ptr, size)

        assert refusal.value.args == (ptr, 1000, size)
        bench.free(ptr, 1000)

    def test_a_block_is_freed_once(self, bench: Bench) -> None:
        bench.free(ptr := bench.allocate(1000), 1000)

        with pytest.raises(Refused):
            bench.free(ptr, 1000)

    def test_blocks_that_nobody_booked_are_entered_and_left(self, bench: Bench) -> None:
        ptr = bench.engine.allocate_on(1000, bench.stream)
        assert ptr not in bench.engine

        bench.engine.enter(ptr, 1000)
        assert ptr in bench.engine
        assert bench.engine.leave(ptr, 1000).handle == bench.stream.handle
        bench.engine.deallocate_on(ptr, 1000, bench.stream)
        assert len(bench.engine) == 0

    def test_a_finaliser_may_free_in_the_middle_of_a_call(self, bench: Bench) -> None:
        class Holder:
            def __init__(self) -> None:
                self.ptr, self.me = bench.allocate(700), self

            def __del__(self) -> None:
                bench.free(self.ptr, 700)

        threshold = gc.get_threshold()
        gc.set_threshold(1, 1, 1)
        try:
            for size in range(1, 300):
                Holder()
                bench.free(bench.allocate(size * 512), size * 512)
        finally:
            gc.set_threshold(*threshold)
        gc.collect()

        assert (len(bench.engine), bench.engine.current) == (0, 0)
