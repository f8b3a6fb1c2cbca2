"""Rules A: the two methods and what they return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from allotment.errors import OutOfMemoryError
from allotment.registry import check_instance
from allotment.testing._fixtures import AllocatorFixtures
from allotment.testing._ledger import outstanding_bytes
from allotment.testing._rule import rule

if TYPE_CHECKING:
    from allotment.testing._subject import Subject

SIZES: Final = (1, 3, 255, 256, 257, 4095, 4096, 4097, 65_536, 1_048_577)
"""Sizes around the boundaries that allocators round to, in bytes."""
BEYOND: Final = 2**62
"""More than any machine has addresses for, in bytes."""
_ROUNDS: Final = 10


class AllocationTests(AllocatorFixtures):
    """Rules A: the two methods and what they return."""

    @rule("A1")
    def test_an_object_has_the_two_methods(self, subject: Subject) -> None:
        check_instance(subject.build(), self.allocator_name)

    @rule("A1")
    def test_the_two_methods_work_also_where_core_calls_others(self, subject: Subject) -> None:
        allocator = subject.bare().allocator

        allocator.deallocate(allocator.allocate(1000), 1000)

    @rule("A2")
    def test_a_pointer_is_a_plain_int_above_zero(self, subject: Subject) -> None:
        calls = subject.bare()

        for size in SIZES:
            ptr = calls.allocate(size)
            assert type(ptr) is int, f"allocate({size}) returned {ptr!r}"
            assert ptr > 0, f"allocate({size}) returned {ptr}"

    @rule("A3")
    def test_an_address_is_not_handed_out_while_it_is_live(self, subject: Subject) -> None:
        calls = subject.bare()

        pointers = [calls.allocate(size) for size in SIZES for _ in range(4)]

        assert len(set(pointers)) == len(pointers)

    @rule("A3")
    def test_an_address_may_come_again_once_it_was_freed(self, subject: Subject) -> None:
        calls = subject.bare()
        kept, freed = [calls.allocate(512) for _ in range(8)], [calls.allocate(512) for _ in range(8)]
        for ptr in freed:
            calls.deallocate(ptr, 512)

        again = [calls.allocate(512) for _ in range(12)]

        assert len({*kept, *again}) == len(kept) + len(again)

    @rule("A4", on_cuda=False)
    def test_the_same_sizes_again_take_no_more_from_the_driver(self, subject: Subject) -> None:
        calls = subject.bare()

        def cycle() -> int:
            pointers = [(calls.allocate(size), size) for size in SIZES]
            for ptr, size in pointers:
                calls.deallocate(ptr, size)
            return outstanding_bytes(subject.simulation.calls)

        steady = max(cycle(), cycle())

        assert max(cycle() for _ in range(_ROUNDS)) <= steady

    @rule("A4")
    def test_one_after_another_more_is_served_than_the_device_has(self, subject: Subject) -> None:
        if not subject.device.is_cuda:
            pytest.skip(f"memory of {self.allocator_name} is not the device's")
        account, total = subject.account(), subject.device.total_memory
        size, served = total // 16, 0

        while served <= total:
            try:
                account.deallocate(account.allocate(size), size)
            except OutOfMemoryError:  # there is less of it, or others have it
                if size <= max(SIZES):
                    raise
                size //= 2
            else:
                served += size
