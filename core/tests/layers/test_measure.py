"""What counts blocks for scopes that measure: with every allocator, beside layers and captures, absent otherwise."""

from __future__ import annotations

import pytest

import allotment as al
from allotment import registry
from allotment.layers.ledger import IS_COMPILED
from allotment.layers.measure import meter

ALLOCATORS = ["default", "mempool", "managed", "caching"]


def told(step):
    """Return peak, current, allocations and frees of a scope."""
    result = step.result
    return result.peak, result.current, result.allocations, result.frees


@pytest.mark.parametrize("name", ALLOCATORS)
@pytest.mark.parametrize("layers", [[], ["ladder"]], ids=["no layer", "ladder"])
@pytest.mark.parametrize("is_first", [True, False], ids=["opened first", "made first"])
def test_blocks_are_counted_whatever_the_allocator(sim, name, layers, is_first):
    if not is_first:
        al.get_allocator(name, "cuda:0", layers=layers)
    with al.measure() as step:
        account = al.get_allocator(name, "cuda:0", layers=layers)
        ptr = account.allocate(1000)
        account.deallocate(ptr, 1000)
    account.deallocate(account.allocate(1000), 1000)

    assert told(step) == (1000, 0, 1, 1)
    assert (account.statistics().allocations, account.statistics().live) == (2, 0)


def test_the_calls_are_the_same_before_and_after(sim):
    account = al.get_allocator("mempool", "cuda:0")
    before = account._pool
    with al.measure(), al.measure():
        during = account._pool

    assert (during, account._pool) == (None, before)
    assert not IS_COMPILED or before


def test_nothing_is_kept_of_blocks_when_no_scope_is_open(sim):
    with al.measure():
        array = al.empty(100, device="cuda:0")
        assert len(meter._blocks) == 1

    assert not meter._blocks
    del array


def test_observers_see_blocks_beside(sim):
    class Watching:
        seen = 0

        def allotment_after_allocate(self):
            self.seen += 1

    watching = Watching()
    with al.measure() as step:
        registry.current().hooks.register(watching)
        al.empty(100, "uint8", "cuda:0")
        registry.current().hooks.unregister(watching)
        al.empty(100, "uint8", "cuda:0")

    assert (watching.seen, told(step)) == (1, (100, 0, 2, 2))


def test_a_block_that_comes_from_another_allocator_is_counted_once(sim):
    account = al.get_allocator("mempool", "cuda:0", layers=[{"fallback": "managed"}, {"limit": "1 KiB"}])
    before = account.allocate(4000)
    with al.measure() as step:
        ptr = account.allocate(5000)
        account.deallocate(ptr, 5000)
        account.deallocate(before, 4000)

    result = step.result
    assert told(step) == (5000, 0, 1, 1)
    assert (result.outside_frees, result.outside_freed_bytes) == (1, 4000)
    assert al.memory_stats("cuda:0", "managed")["cuda:0"]["managed"].allocations == 2


def test_a_finaliser_that_frees_in_the_middle_of_an_allocation_is_counted(sim):
    class Frees:
        """An allocator that lets another block go while it allocates."""

        def allocate(self, size_in_bytes):
            arrays.clear()
            return sim.malloc(size_in_bytes)

        def deallocate(self, ptr, size_in_bytes):
            sim.free(ptr)

    arrays = []
    with al.measure() as step:
        arrays.append(al.empty(500, "uint8", "cuda:0"))
        with al.ScopedAllocator("cuda:0", Frees()):
            al.empty(100, "uint8", "cuda:0")

    assert told(step) == (500, 0, 2, 2)


@pytest.mark.parametrize("name", ["mempool", "caching"])
def test_a_capture_works_in_a_scope_and_what_the_graph_owns_is_not_counted(sim, name):
    with al.ScopedAllocator("cuda:0", name), al.measure() as step:
        outside = al.full(8, 1.0)
        with al.ScopedCapture() as capture:
            inside = al.full(8, 1.0)
        capture.graph.launch()
        values = inside.numpy().tolist()
        del inside, capture
        nbytes = outside.nbytes
        del outside

    assert values == [1.0] * 8
    assert told(step) == (nbytes, 0, 1, 1)
    assert step.result.outside_frees == 0


def test_a_scope_can_be_opened_and_left_while_a_graph_is_captured(sim):
    array = al.full(8, 1.0)
    with al.ScopedCapture() as capture, al.measure() as step:
        inside = al.full(8, 2.0)
        del array
    capture.graph.launch()

    assert inside.numpy().tolist() == [2.0] * 8
    assert told(step) == (0, 0, 0, 0)
    del inside, capture
    assert al.memory_stats("cuda:0")["cuda:0"]["mempool"].live == 0
