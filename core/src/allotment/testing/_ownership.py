"""Rules O: who may free what."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from allotment.errors import InvalidPointerError, SizeMismatchError
from allotment.factories import empty
from allotment.selection import ScopedAllocator, account_of
from allotment.testing._fixtures import AllocatorFixtures
from allotment.testing._memory import pattern
from allotment.testing._recording import RecordingAllocator
from allotment.testing._rule import rule

if TYPE_CHECKING:
    from allotment.testing._subject import Subject


class OwnershipTests(AllocatorFixtures):
    """Rules O: who may free what."""

    @rule("O1")
    @pytest.mark.parametrize("given", [0, 1, 999, 1001, 1024, 4096])
    def test_a_wrong_size_is_refused_and_the_block_stays_live(self, subject: Subject, given: int) -> None:
        recording = RecordingAllocator(subject.bare().allocator)
        account = subject.account(allocator=recording)
        data = pattern(1000, seed=given)
        ptr = account.allocate(1000)
        subject.memory.write(ptr, data)
        before = account.statistics()

        with pytest.raises(SizeMismatchError) as refusal:
            account.deallocate(ptr, given)

        assert (refusal.value.pointer, refusal.value.allocated, refusal.value.given) == (ptr, 1000, given)
        assert recording.frees == []
        assert account.statistics() == before
        assert (subject.memory.read(ptr, 1000) == data).all()
        account.deallocate(ptr, 1000)

    @rule("O1")
    def test_a_double_free_is_refused(self, subject: Subject) -> None:
        recording = RecordingAllocator(subject.bare().allocator)
        account = subject.account(allocator=recording)
        ptr = account.allocate(1000)
        account.deallocate(ptr, 1000)
        before = account.statistics()

        with pytest.raises(InvalidPointerError, match=account.name):
            account.deallocate(ptr, 1000)

        assert len(recording.frees) == 1
        assert account.statistics() == before

    @rule("O1")
    @pytest.mark.parametrize("offset", [1, 256, -256, 10**15])
    def test_an_address_that_was_not_handed_out_is_refused(self, subject: Subject, offset: int) -> None:
        recording = RecordingAllocator(subject.bare().allocator)
        account = subject.account(allocator=recording)
        ptr = account.allocate(1000)

        with pytest.raises(InvalidPointerError) as refusal:
            account.deallocate(ptr + offset, 1000)

        assert refusal.value.pointer == ptr + offset
        assert recording.frees == []
        account.deallocate(ptr, 1000)

    @rule("O1")
    def test_null_with_no_bytes_is_no_free_and_with_bytes_a_wrong_one(self, subject: Subject) -> None:
        recording = RecordingAllocator(subject.bare().allocator)
        account = subject.account(allocator=recording)

        account.deallocate(0, 0)
        with pytest.raises(InvalidPointerError):
            account.deallocate(0, 8)

        assert recording.calls == []

    @rule("O2")
    def test_a_foreign_pointer_is_refused_with_its_owners_name(self, subject: Subject) -> None:
        own, other = (RecordingAllocator(subject.bare().allocator) for _ in range(2))
        refusing, owner = account_of(own, subject.device), account_of(other, subject.device)
        ptr = owner.allocate(1000)

        with pytest.raises(InvalidPointerError) as refusal:
            refusing.deallocate(ptr, 1000)

        assert refusal.value.owner == owner.name
        assert own.frees == other.frees == []
        assert owner.is_live(ptr)
        owner.deallocate(ptr, 1000)

    @rule("O3")
    def test_an_array_is_freed_where_it_was_made_whatever_is_selected_then(self, subject: Subject) -> None:
        makes, selected = (RecordingAllocator(subject.bare().allocator) for _ in range(2))
        with ScopedAllocator(subject.device, makes):
            array = empty(1000, "u1", device=subject.device)
        ptr = array.ptr

        with ScopedAllocator(subject.device, selected):
            del array
            gc.collect()

        assert [call.arguments[:2] for call in makes.frees] == [(ptr, 1000)]
        assert selected.calls == []
