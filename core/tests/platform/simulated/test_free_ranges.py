from hypothesis import given
from hypothesis import strategies as st

from allotment.platform.simulated._free_ranges import Condition, FreeRanges
from allotment.platform.simulated._stream import Stream

SIZE = 4096


def stream(serial):
    return Stream(serial, serial, 0)


def test_a_freed_range_of_the_size_is_handed_out_last_freed_first():
    ranges = FreeRanges()
    for start in (0, 512, 1024):
        ranges.add(start, 512)
    assert [ranges.take(512) for _ in range(4)] == [1024, 512, 0, None]


def test_neighbours_are_merged_when_no_range_has_the_size():
    ranges = FreeRanges()
    ranges.add(0, 512)
    ranges.add(1024, 512)
    ranges.add(512, 512)
    assert ranges.take(1536) == 0


def test_the_smallest_range_that_fits_is_cut():
    ranges = FreeRanges()
    ranges.add(0, 4096)
    ranges.add(8192, 1024)
    assert ranges.take(512) == 8192
    assert ranges.take(4096) == 0


def test_a_range_under_a_condition_is_not_for_everyone():
    ranges = FreeRanges()
    ranges.add(0, 512, Condition(stream(1), 1))
    assert ranges.take(512) is None
    assert ranges.take(512, lambda condition: condition is not None) == 0


def test_adjacent_ranges_under_different_conditions_serve_a_request_that_may_use_both():
    ranges = FreeRanges()
    ranges.add(0, 512, Condition(stream(1), 1))
    ranges.add(512, 512)
    assert ranges.take(1024) is None
    assert ranges.take(1024, lambda _: True) == 0


def test_ranges_of_one_stream_merge_under_the_later_ticket():
    ranges, one = FreeRanges(), stream(1)
    ranges.add(0, 512, Condition(one, 3))
    ranges.add(512, 512, Condition(one, 7))
    assert ranges.conditions() == [Condition(one, 7)]


def test_a_settled_range_is_free_for_everyone():
    ranges, one, two = FreeRanges(), stream(1), stream(2)
    ranges.add(0, 512, Condition(one, 1))
    ranges.add(512, 512, Condition(two, 1))
    ranges.settle(lambda condition: condition.stream is one)
    assert list(ranges.runs()) == [(0, 512)]


def test_a_removed_range_leaves_what_is_around_it():
    ranges = FreeRanges()
    ranges.add(0, 4096)
    ranges.remove(1024, 2048)
    assert list(ranges.runs()) == [(0, 1024), (2048, 4096)]


def test_removal_crosses_ranges_under_different_conditions():
    ranges, one = FreeRanges(), stream(1)
    ranges.add(0, 1024, Condition(one, 1))
    ranges.add(1024, 1024)
    ranges.remove(512, 1536)
    assert list(ranges.runs(lambda _: True)) == [(0, 512), (1536, 2048)]


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 64), st.integers(0, 3)), max_size=120))
def test_live_ranges_never_overlap_and_nothing_is_lost(steps):
    ranges, owners, live = FreeRanges(), [None, stream(1), stream(2), stream(3)], []
    ranges.add(0, SIZE)
    for take, size, who in steps:
        if take or not live:
            start = ranges.take(size, lambda condition, who=who: condition is None or condition.stream is owners[who])
            if start is not None:
                assert all(start + size <= other or start >= other + length for other, length in live)
                live.append((start, size))
        else:
            start, length = live.pop(size % len(live))
            ranges.add(start, length, None if owners[who] is None else Condition(owners[who], 1))
        assert ranges.nbytes + sum(length for _, length in live) == SIZE
    for start, length in live:
        ranges.add(start, length)
    ranges.settle(lambda _: True)
    assert list(ranges.runs()) == [(0, SIZE)]
