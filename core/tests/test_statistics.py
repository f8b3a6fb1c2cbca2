"""The accounts of all allocators, by device and allocator."""

from __future__ import annotations

import pytest

import allotment as al


def test_before_the_first_use_every_device_has_no_accounts_and_no_context_is_opened(sim):
    assert al.memory_stats() == {"cpu": {}, "cuda:0": {}, "cuda:1": {}}
    assert [al.memory_stats(ident) for ident in (1, "cuda:1", 0)] == [{"cuda:1": {}}, {"cuda:1": {}}, {"cuda:0": {}}]
    assert sim.contexts() == frozenset()


def test_only_the_device_that_was_used_shows_bytes(sim):
    array = al.empty(100, device="cuda:1")
    stats = al.memory_stats()

    assert stats["cuda:0"] == {}
    assert stats["cuda:1"]["mempool"].current == array.nbytes


def test_a_device_that_does_not_exist_is_refused(sim):
    with pytest.raises(al.DeviceNotFoundError):
        al.memory_stats(9)


def test_each_allocator_of_a_device_has_its_own_accounts(sim):
    arrays = []
    for name in ("default", "managed", "mempool"):
        with al.ScopedAllocator("cuda:0", name):
            arrays.append(al.empty(100))

    stats = al.memory_stats("cuda:0")["cuda:0"]
    assert {name: each.current for name, each in stats.items()} == {"default": 800, "managed": 800, "mempool": 800}


def test_one_allocator_can_be_asked_about_however_its_name_is_written(sim):
    array = al.empty(100)
    al.empty(100, device="cpu")

    assert list(al.memory_stats(allocator="MemPool")["cuda:0"]) == ["mempool"]
    assert al.memory_stats(allocator="MemPool")["cpu"] == {}
    del array


def test_the_host_and_its_pinned_memory_are_counted(sim):
    array, pinned = al.empty(100, device="cpu"), al.empty(50, device="cpu", pinned=True)
    stats = al.memory_stats("cpu")["cpu"]

    assert (stats["host"].current, stats["pinned"].current) == (800, 400)
    del array, pinned


def test_an_object_that_a_user_brought_is_counted_under_the_name_of_its_class_or_its_own(sim, recording):
    mine, named = recording(), recording()
    named.name = "special"
    arrays = []
    for allocator in (mine, named):
        with al.ScopedAllocator("cuda:0", allocator):
            arrays.append(al.empty(100))

    assert sorted(al.memory_stats("cuda:0")["cuda:0"]) == ["RecordingAllocator", "special"]


def test_an_allocator_around_another_counts_only_what_went_through_it(sim, recording):
    mine = recording()
    with al.ScopedAllocator("cuda:0", mine):
        before = al.empty(100)
        inner = al.get_allocator()

    class Tracking:
        name = "tracking"
        allocate = staticmethod(inner.allocate)
        deallocate = staticmethod(inner.deallocate)

    al.set_device_allocator("cuda:0", Tracking())
    del before
    array = al.empty(10)
    stats = al.memory_stats("cuda:0")["cuda:0"]

    assert (stats["tracking"].current, stats["tracking"].frees) == (80, 0)
    assert (stats["RecordingAllocator"].current, stats["RecordingAllocator"].frees) == (80, 1)
    del array
