"""What tests of capture look at: the calls of the simulated platform, and that nothing is left behind."""

from __future__ import annotations

import gc
from functools import partial

import pytest

import allotment as al


@pytest.fixture
def errors(sim):
    """Return a function that gives the calls of the platform that failed so far."""
    return lambda: [(call.name, call.error) for call in sim.calls if call.error]


@pytest.fixture
def nothing_left(sim):
    """Check in the end that all memory is given back, that no call failed, and that calls go straight again."""
    yield
    gc.collect()
    al.synchronize()
    assert [(call.name, call.error) for call in sim.calls if call.error] == []
    for device in al.get_devices():
        assert not device.captures
        for account in list(device.accounts.values()):
            assert account.statistics().live == 0, account
            assert not account.graph_blocks
            assert goes_straight(account)
        if device.is_cuda:
            assert sim.graph_memory(device.ordinal).used % 2**25 == 0
            assert al.get_mempool_used_mem_current(device) == 0


def goes_straight(account):
    """Return whether nothing stands between a ledger and its allocator."""
    return not any(isinstance(call, partial) for call in (account._allocate, account._deallocate))


@pytest.fixture
def straight_calls():
    """Return a function that gives what a ledger calls, to compare before and after."""

    def calls(account):
        cells = [getattr(call, "__closure__", None) or () for call in (account._allocate, account._deallocate)]
        inside = [[cell.cell_contents for cell in closure if callable(cell.cell_contents)] for closure in cells]
        return getattr(account, "_pool", None), goes_straight(account), inside

    return calls
