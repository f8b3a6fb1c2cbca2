"""Ticks: how fast an allocator allocates between two looks."""

from __future__ import annotations

from threading import Event

import pytest

import allotment as al
from allotment.serving import AllocatorStatus, Pace, ProcessStatus, ticking


def status(clock, **allocations):
    rows = tuple(
        AllocatorStatus(device="cuda:0", allocator=name, allocations=number) for name, number in allocations.items()
    )
    return ProcessStatus(pid=1, program="train.py", time=0.0, clock=clock, allocators=rows)


def test_the_first_look_knows_no_rate():
    assert Pace().next(status(10.0, mempool=500)).rates == (None,)


def test_a_rate_is_what_was_allocated_since_the_look_before_by_the_watched_clock():
    pace = Pace()
    pace.next(status(10.0, mempool=500))

    assert pace.next(status(12.0, mempool=800)).rates == (150.0,)
    assert pace.next(status(13.0, mempool=800)).rates == (0.0,)


def test_an_allocator_that_is_new_began_with_nothing():
    pace = Pace()
    pace.next(status(10.0, mempool=500))

    assert pace.next(status(12.0, caching=100, mempool=500)).rates == (50.0, 0.0)


@pytest.mark.parametrize("later", [status(12.0, mempool=3), status(12.0, mempool=None), status(10.0, mempool=600)])
def test_a_count_that_fell_or_is_not_known_or_no_time_between_gives_no_rate(later):
    pace = Pace()
    pace.next(status(10.0, mempool=500))

    assert pace.next(later).rates == (None,)


def test_a_count_that_was_not_known_gives_no_rate():
    pace = Pace()
    pace.next(status(10.0, mempool=None))

    assert pace.next(status(12.0, mempool=600)).rates == (None,)


def test_ticks_come_while_the_block_runs_and_one_at_its_end(sim):
    seen, twice = [], Event()

    def show(tick):
        seen.append(tick)
        if len(seen) == 2:
            twice.set()

    with ticking(show, 0.001):
        assert twice.wait(60)
        array = al.empty(100)

    assert seen[-1].status.allocators[0].current == 800
    assert len(seen) > 2
    del array


def test_the_last_tick_comes_also_when_the_block_fails():
    seen = []
    with pytest.raises(ZeroDivisionError), ticking(seen.append, 60):
        raise ZeroDivisionError

    assert len(seen) == 1


def test_one_may_want_the_last_tick_only():
    seen = []
    with ticking(seen.append, 0.001, only_last=True):
        assert seen == []

    assert len(seen) == 1
