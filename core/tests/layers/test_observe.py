"""Observers of blocks: they see every one while they observe, and cost nothing before and after."""

from __future__ import annotations

import warnings

import pytest

import allotment as al
from allotment import registry
from allotment.layers.ledger import IS_COMPILED

ALLOCATORS = ["default", "mempool", "managed", "caching"]


class Watching:
    def __init__(self):
        self.seen = []

    def allotment_after_allocate(self, allocator, device, ptr, nbytes):
        self.seen.append(("allocated", allocator.name, device.alias, ptr, nbytes))

    def allotment_after_deallocate(self, allocator, device, ptr, nbytes):
        self.seen.append(("freed", allocator.name, device.alias, ptr, nbytes))


@pytest.fixture
def watching():
    return Watching()


@pytest.mark.parametrize("name", ALLOCATORS)
@pytest.mark.parametrize("layers", [[], ["ladder"]], ids=["no layer", "ladder"])
@pytest.mark.parametrize("is_first", [True, False], ids=["observed first", "made first"])
def test_an_observer_sees_each_block_whatever_the_allocator(sim, watching, name, layers, is_first):
    hooks = registry.current().hooks
    if is_first:
        hooks.register(watching)
    account = al.get_allocator(name, "cuda:0", layers=layers)
    if not is_first:
        hooks.register(watching)
    ptr = account.allocate(1000)
    account.deallocate(ptr, 1000)
    hooks.unregister(watching)
    account.deallocate(account.allocate(1000), 1000)

    assert watching.seen == [(what, name, "cuda:0", ptr, 1000) for what in ("allocated", "freed")]
    assert (account.statistics().allocations, account.statistics().live) == (2, 0)


def test_the_calls_are_the_same_before_and_after(sim, watching):
    account, hooks = al.get_allocator("mempool", "cuda:0"), registry.current().hooks
    before = account._pool
    hooks.register(watching)
    during = account._pool
    hooks.unregister(watching)

    assert (during, account._pool) == (None, before)
    assert not IS_COMPILED or before


def test_a_block_from_before_is_seen_when_it_goes(sim, watching):
    account = al.get_allocator("caching", "cuda:0")
    ptr = account.allocate(1000)
    registry.current().hooks.register(watching)
    account.deallocate(ptr, 1000)

    assert [what for what, *_ in watching.seen] == ["freed"]


def test_an_observer_that_comes_during_a_capture_sees_what_is_not_the_graphs(sim, watching):
    account = al.get_allocator("mempool", "cuda:0")
    aside, captured = (al.Stream("cuda:0", non_blocking=True) for _ in range(2))
    with al.ScopedStream(captured), al.ScopedCapture("cuda:0"):
        registry.current().hooks.register(watching)
        with al.ScopedStream(aside, sync_enter=False):
            beside = account.allocate(1000)
        ptr = account.allocate(500)
        account.deallocate(ptr, 500)
    account.deallocate(beside, 1000)

    assert [(what, nbytes) for what, _, _, _, nbytes in watching.seen] == [("allocated", 1000), ("freed", 1000)]


def test_an_observer_that_fails_is_a_warning_and_the_block_is_there(sim):
    class Failing:
        def allotment_after_allocate(self):
            raise RuntimeError("disk full")

    registry.current().hooks.register(Failing())
    account = al.get_allocator("mempool", "cuda:0")
    with pytest.warns(al.ObserverWarning, match="disk full"):
        ptr = account.allocate(1000)

    assert account.is_live(ptr)


def test_a_warning_that_is_an_exception_loses_no_block(sim):
    class Failing(Watching):
        def allotment_after_allocate(self):
            raise RuntimeError("disk full")

        def allotment_after_deallocate(self):
            raise RuntimeError("disk full")

    account = al.get_allocator("default", "cuda:0")
    ptr = account.allocate(500)
    registry.current().hooks.register(Failing())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(al.ObserverWarning):
            account.allocate(1000)
        account.deallocate(ptr, 500)

    assert account.statistics().live == 0
    calls = [call.name for call in sim.calls]
    assert calls.count("malloc") == calls.count("free") == 2


def test_out_of_memory_is_told_before_it_is_raised(sim):
    class Telling:
        seen = ()

        def allotment_on_out_of_memory(self, error):
            self.seen = (*self.seen, (error.requested, error.allocator))

    observer = Telling()
    registry.current().hooks.register(observer)
    account = al.get_allocator("mempool", "cuda:0")
    for size in (account.device.total_memory, account.device.total_memory + 1):
        account.allocate(1000)
        with pytest.raises(al.OutOfMemoryError):
            account.allocate(size)

    assert observer.seen == tuple((account.device.total_memory + more, "mempool") for more in (0, 1))
