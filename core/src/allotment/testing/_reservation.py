"""Rules R: accounts, what is held, and giving it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import pytest

from allotment.allocator import SupportsLargestFree, SupportsLimits, SupportsReservation, SupportsTrim
from allotment.errors import OutOfMemoryError, SizeMismatchError
from allotment.testing._allocation import SIZES
from allotment.testing._fixtures import AllocatorFixtures
from allotment.testing._ledger import ALLOCATIONS, outstanding_bytes
from allotment.testing._memory import pattern
from allotment.testing._rule import concerning, rule
from allotment.units import MAX_BYTES

if TYPE_CHECKING:
    from allotment.testing._subject import Subject

_MIB: Final = 2**20
_IDLE: Final = (3_000_000, 70_000, 2_000_000)
"""Sizes in bytes of blocks that lie idle, the largest first."""
_CALLS: Final = 4096
"""In the course of how many calls idle memory above the cache limit is given back."""


class ReservationTests(AllocatorFixtures):
    """Rules R: accounts, what is held, and giving it back."""

    @rule("R1", "O1")
    def test_the_accounts_are_exact(self, subject: Subject) -> None:
        account = subject.account()

        first, second = account.allocate(3000), account.allocate(500)
        account.deallocate(first, 3000)
        with pytest.raises(MemoryError):
            account.allocate(MAX_BYTES)
        with concerning("O1"), pytest.raises(SizeMismatchError):
            account.deallocate(second, 501)
        statistics = account.statistics()
        account.deallocate(second, 500)

        assert (statistics.current, statistics.peak, statistics.live) == (500, 3500, 1)
        assert (statistics.allocations, statistics.frees, statistics.failed_allocations) == (2, 1, 1)
        assert account.statistics().current == account.statistics().live == 0

    @rule("R1")
    def test_resetting_the_peak_leaves_the_rest(self, subject: Subject) -> None:
        account = subject.account()
        first, second = account.allocate(3000), account.allocate(500)
        account.deallocate(first, 3000)

        account.reset_peak()

        statistics = account.statistics()
        assert (statistics.current, statistics.peak, statistics.allocations, statistics.frees) == (500, 500, 2, 1)
        account.deallocate(second, 500)

    @rule("R2")
    def test_what_is_held_is_at_least_what_is_handed_out(self, subject: Subject) -> None:
        subject.require(SupportsReservation, "it does not say what it holds")
        calls = subject.bare()
        allocator, handed_out = cast("SupportsReservation", calls.allocator), 0

        for size in SIZES:
            calls.allocate(size)
            handed_out += size
            held = allocator.reservation()
            assert held.current >= handed_out
            assert held.peak >= held.current

    @rule("R2")
    def test_the_peak_of_what_is_held_stays_until_it_is_reset(self, subject: Subject) -> None:
        subject.require(SupportsReservation, "it does not say what it holds")
        calls = subject.bare()
        allocator = cast("SupportsReservation", calls.allocator)
        ptr = calls.allocate(100_000_000)
        peak = allocator.reservation().peak
        calls.deallocate(ptr, 100_000_000)
        subject.account(allocator=calls.allocator).trim()

        kept = allocator.reservation().peak
        allocator.reset_peak_reservation()
        reset = allocator.reservation()

        assert kept == peak >= 100_000_000
        assert reset.peak == reset.current

    @rule("R3", on_cuda=False)
    def test_trimming_gives_idle_memory_back_to_the_driver(self, subject: Subject) -> None:
        subject.require(SupportsTrim, "there is nothing to trim")
        calls = subject.bare()
        free = [subject.platform.memory_info(ordinal).free for ordinal in range(subject.platform.device_count())]
        for size in SIZES * 3:
            calls.allocate(size)
        calls.free_all()

        cast("SupportsTrim", calls.allocator).trim(0)

        now = [subject.platform.memory_info(ordinal).free for ordinal in range(subject.platform.device_count())]
        assert outstanding_bytes(subject.simulation.calls) == 0
        assert now == free

    @rule("R3")
    def test_trimming_returns_what_it_gave_back(self, subject: Subject) -> None:
        subject.require(SupportsTrim, "there is nothing to trim")
        subject.require(SupportsReservation, "it does not say what it holds")
        calls = subject.bare()
        of_others = cast("SupportsReservation", calls.allocator).reservation().current  # where the memory is shared
        ptr = calls.allocate(3_000_000)
        calls.deallocate(ptr, 3_000_000)
        before = cast("SupportsReservation", calls.allocator).reservation().current

        given_back = cast("SupportsTrim", calls.allocator).trim(0)
        again = cast("SupportsTrim", calls.allocator).trim(0)

        after = cast("SupportsReservation", calls.allocator).reservation().current
        assert given_back == before - after
        assert given_back > 0 or before <= of_others
        assert again == 0

    @rule("R3")
    def test_trimming_leaves_live_blocks_alone(self, subject: Subject) -> None:
        subject.require(SupportsTrim, "there is nothing to trim")
        calls = subject.bare()
        blocks = [(calls.allocate(size), size) for size in SIZES]
        for number, (ptr, size) in enumerate(blocks):
            subject.memory.write(ptr, pattern(size, seed=number))
        for ptr, size in blocks[::2]:
            calls.deallocate(ptr, size)

        cast("SupportsTrim", calls.allocator).trim(0)

        for number, (ptr, size) in list(enumerate(blocks))[1::2]:
            assert (subject.memory.read(ptr, size) == pattern(size, seed=number)).all()

    @rule("R3")
    def test_trimming_keeps_what_it_is_told_to_keep(self, subject: Subject) -> None:
        subject.require(SupportsTrim, "there is nothing to trim")
        calls = subject.bare()
        ptr = calls.allocate(3_000_000)
        calls.deallocate(ptr, 3_000_000)

        assert cast("SupportsTrim", calls.allocator).trim(2**50) == 0

    @rule("R4")
    def test_a_limit_is_what_was_set_and_a_setter_returns_what_it_was(self, subject: Subject) -> None:
        subject.require(SupportsLimits, "there is nothing to limit")
        limits = cast("SupportsLimits", subject.bare().allocator)
        before = limits.get_memory_limit(), limits.get_cache_limit()

        returned = limits.set_memory_limit(300 * _MIB), limits.set_cache_limit(100 * _MIB)
        assert returned == before
        assert (limits.get_memory_limit(), limits.get_cache_limit()) == (300 * _MIB, 100 * _MIB)

        assert (limits.set_memory_limit(before[0]), limits.set_cache_limit(before[1])) == (300 * _MIB, 100 * _MIB)
        assert (limits.get_memory_limit(), limits.get_cache_limit()) == before

    @rule("R4")
    def test_a_request_above_the_memory_limit_is_out_of_memory_until_it_is_raised(self, subject: Subject) -> None:
        subject.require(SupportsLimits, "there is nothing to limit")
        account = subject.account()
        limits = cast("SupportsLimits", account.allocator)
        before = limits.set_memory_limit(100 * _MIB)

        with pytest.raises(OutOfMemoryError) as refusal:
            account.allocate(101 * _MIB)
        within = account.allocate(_MIB)
        limits.set_memory_limit(before)
        above = account.allocate(101 * _MIB)

        assert refusal.value.limit == 100 * _MIB
        account.deallocate(within, _MIB)
        account.deallocate(above, 101 * _MIB)

    @rule("R4")
    def test_a_memory_limit_below_what_is_handed_out_leaves_that_alone(self, subject: Subject) -> None:
        subject.require(SupportsLimits, "there is nothing to limit")
        calls, data = subject.bare(), pattern(3_000_000, seed=1)
        ptr = calls.allocate(3_000_000)
        subject.memory.write(ptr, data)

        cast("SupportsLimits", calls.allocator).set_memory_limit(1000)

        assert (subject.memory.read(ptr, 3_000_000) == data).all()
        calls.deallocate(ptr, 3_000_000)

    @rule("R4")
    def test_idle_memory_is_given_back_before_the_memory_limit_refuses_a_request(self, subject: Subject) -> None:
        subject.require(SupportsLimits, "there is nothing to limit")
        calls = subject.bare()
        ptr = calls.allocate(60 * _MIB)
        calls.deallocate(ptr, 60 * _MIB)
        cast("SupportsLimits", calls.allocator).set_memory_limit(100 * _MIB)

        calls.allocate(80 * _MIB)

        if subject.offers(SupportsReservation):
            held = cast("SupportsReservation", calls.allocator).reservation().current
            assert held <= 100 * _MIB, f"{held:,} bytes are held"

    @rule("R4")
    def test_what_is_idle_above_the_cache_limit_goes_in_the_course_of_calls(self, subject: Subject) -> None:
        subject.require(SupportsLimits, "there is nothing to limit")
        subject.require(SupportsReservation, "it does not say what it holds")
        account = subject.account()
        cast("SupportsLimits", account.allocator).set_cache_limit(8 * _MIB)
        account.deallocate(account.allocate(100 * _MIB), 100 * _MIB)

        for _ in range(_CALLS):
            account.deallocate(account.allocate(1000), 1000)

        held = cast("SupportsReservation", account.allocator).reservation().current
        assert held <= 8 * _MIB, f"{held:,} bytes are held, and none is handed out"

    @rule("R5")
    def test_a_request_of_what_is_free_takes_no_more_of_the_device(self, subject: Subject) -> None:
        subject.require(SupportsLargestFree, "it does not say what is free")
        log, calls = subject.simulation.calls, subject.bare()
        for size in _IDLE:
            calls.allocate(size)
        calls.free_all()
        subject.device.synchronize()
        held = outstanding_bytes(log)

        said = cast("SupportsLargestFree", calls.allocator).largest_free()
        if said:
            calls.allocate(said)

        more = outstanding_bytes(log) - held
        assert more <= 0, f"{said:,} bytes were said to be free, and {more:,} more were taken for them"

    @rule("R5")
    def test_what_is_served_of_idle_memory_was_said_to_be_free(self, subject: Subject) -> None:
        subject.require(SupportsLargestFree, "it does not say what is free")
        log, calls = subject.simulation.calls, subject.bare()
        for size in _IDLE:
            calls.allocate(size)
        calls.free_all()
        subject.device.synchronize()
        before = len(log)

        said = cast("SupportsLargestFree", calls.allocator).largest_free()
        calls.allocate(_IDLE[0])

        taken = [call.name for call in list(log)[before:] if call.name in ALLOCATIONS]
        assert taken or said >= _IDLE[0], f"{_IDLE[0]:,} bytes were idle, and {said:,} were said to be"
