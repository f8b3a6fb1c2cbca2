"""Rules that core keeps for other allocators, and one that keeps the accounts itself keeps itself."""

from __future__ import annotations

import gc
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from allotment.allocator import KeepsAccounts
from allotment.errors import InvalidPointerError, SizeMismatchError
from allotment.factories import empty
from allotment.selection import ScopedAllocator, account_of
from allotment.testing._fixtures import AllocatorFixtures
from allotment.testing._rule import rule
from allotment.testing._sizes import NO_INTEGERS, NO_SIZES

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment.layers.accounting import AccountedAllocator
    from allotment.testing._subject import Subject


class AccountTests(AllocatorFixtures):
    """Rules S, O and R where the allocator keeps the accounts itself."""

    @rule("S1")
    def test_own_accounts_know_nothing_of_zero_bytes(self, subject: Subject) -> None:
        account = _account_of_its_own(subject)

        ptr = account.allocate(0)
        account.deallocate(ptr, 0)

        statistics = account.statistics()
        assert (ptr, statistics.allocations, statistics.frees, statistics.live) == (0, 0, 0, 0)

    @rule("S2")
    @pytest.mark.parametrize("size", [*NO_SIZES, *NO_INTEGERS], ids=repr)
    def test_own_accounts_refuse_what_is_no_size(self, subject: Subject, size: Any) -> None:
        account = _account_of_its_own(subject)

        with pytest.raises(ValueError if type(size) is int else TypeError):
            account.allocate(size)

        assert account.statistics().live == 0

    @rule("S2")
    def test_own_accounts_take_an_integer_of_another_type(self, subject: Subject) -> None:
        account = _account_of_its_own(subject)
        size: Any = np.int64(1000)

        ptr = account.allocate(size)
        booked = account.blocks()
        account.deallocate(ptr, 1000)

        assert [(type(nbytes), nbytes) for _, nbytes in booked] == [(int, 1000)]

    @rule("O1")
    @pytest.mark.parametrize("given", [1, 999, 1001, 4096])
    def test_own_accounts_refuse_a_wrong_size(self, subject: Subject, given: int) -> None:
        account = _account_of_its_own(subject)
        ptr = account.allocate(1000)

        _refuse(account, SizeMismatchError, partial(account.deallocate, ptr, given))

        account.deallocate(ptr, 1000)

    @rule("O1")
    def test_own_accounts_refuse_a_second_free_and_an_unknown_address(self, subject: Subject) -> None:
        account = _account_of_its_own(subject)
        kept, freed = account.allocate(1000), account.allocate(1000)
        account.deallocate(freed, 1000)

        for ptr in (freed, kept + 256, 10**15):
            _refuse(account, InvalidPointerError, partial(account.deallocate, ptr, 1000))

        account.deallocate(kept, 1000)

    @rule("O2")
    def test_own_accounts_refuse_a_foreign_pointer_with_its_owners_name(self, subject: Subject) -> None:
        refusing, owner = (_account_of_its_own(subject) for _ in range(2))
        ptr = owner.allocate(1000)

        with pytest.raises(InvalidPointerError) as refusal:
            refusing.deallocate(ptr, 1000)

        assert refusal.value.owner == owner.name
        assert owner.is_live(ptr)
        owner.deallocate(ptr, 1000)

    @rule("O3")
    def test_own_accounts_take_an_array_back_whatever_is_selected_then(self, subject: Subject) -> None:
        makes, selected = (_account_of_its_own(subject) for _ in range(2))
        with ScopedAllocator(subject.device, makes):
            array = empty(1000, "u1", device=subject.device)

        with ScopedAllocator(subject.device, selected):
            del array
            gc.collect()

        counts = [(account.statistics().allocations, account.statistics().frees) for account in (makes, selected)]
        assert counts == [(1, 1), (0, 0)]


def _account_of_its_own(subject: Subject) -> AccountedAllocator:
    """Return the accounts of a new object that keeps them itself, or skip the test of one that does not."""
    subject.require(KeepsAccounts, "core keeps the accounts")
    return account_of(subject.bare().allocator, subject.device)


def _refuse(account: AccountedAllocator, error: type[Exception], call: Callable[[], object]) -> None:
    """Check that a call is refused and changes nothing."""
    before = account.statistics(), sorted(account.blocks())
    with pytest.raises(error):
        call()
    assert (account.statistics(), sorted(account.blocks())) == before
