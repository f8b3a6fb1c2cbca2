"""Failures on demand."""

from __future__ import annotations

import pytest

import allotment as al


def outcomes(said, count=6):
    """Return which of some allocations, or the frees after them, fail, and how."""
    account, found = al.get_allocator("mempool", "cuda:0", layers=[{"fault": said}]), []
    for _ in range(count):
        try:
            account.deallocate(account.allocate(100), 100)
            found.append("")
        except al.AllotmentError as error:
            found.append(type(error).__name__)
    return found


NO_MEMORY = "OutOfMemoryError"


def test_the_call_of_a_number_fails(sim):
    assert outcomes(3) == ["", "", NO_MEMORY, "", "", ""]


def test_every_kth_call_fails(sim):
    assert outcomes({"every": 2}) == ["", NO_MEMORY] * 3


def test_both_can_be_said(sim):
    assert outcomes({"at": 1, "every": 4}) == [NO_MEMORY, "", "", NO_MEMORY, "", ""]


def test_another_failure_than_out_of_memory_can_be_asked_for(sim):
    assert outcomes({"at": 2, "code": "cudaErrorUnknown"}) == ["", "PlatformError", "", "", "", ""]


def test_frees_can_fail_and_the_block_stays_on_the_books(sim):
    account = al.get_allocator("mempool", "cuda:0", layers=[{"fault": {"at": 1, "call": "deallocate"}}])
    ptr = account.allocate(100)
    with pytest.raises(al.PlatformError, match="The layer 'fault' was asked for this failure"):
        account.deallocate(ptr, 100)
    assert account.is_live(ptr)
    account.deallocate(ptr, 100)


def test_the_allocator_is_not_asked(sim):
    outcomes({"every": 1})

    assert not any(call.name == "malloc_from_pool" for call in sim.calls)


@pytest.mark.parametrize("said", [{}, {"at": 0}, {"every": -1}])
def test_numbers_that_no_call_has_are_refused(sim, said):
    with pytest.raises(al.ConfigError, match=r"layers\.fault"):
        al.get_allocator("mempool", "cuda:0", layers=[{"fault": said}])
