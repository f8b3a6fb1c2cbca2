"""The status of this process: right figures, and nothing disturbed."""

from __future__ import annotations

import os
from dataclasses import fields

import pytest

import allotment as al
from allotment import platform
from allotment.platform import CaptureMode
from allotment.serving import read_status


def row(allocator, device="cuda:0"):
    (found,) = (each for each in read_status().allocators if (each.device, each.allocator) == (device, allocator))
    return found


def test_before_a_device_is_used_there_is_no_platform_and_none_is_chosen():
    status = read_status()

    assert (status.pid, status.platform, status.devices, status.allocators) == (os.getpid(), None, (), ())
    assert platform._choice._choice.in_force is None


def test_every_figure_is_the_accounts(sim):
    arrays = [al.empty(100) for _ in range(3)]
    del arrays[0]
    with pytest.raises(al.OutOfMemoryError):
        al.empty(2**50)
    statistics = al.memory_stats()["cuda:0"]["mempool"]
    found = row("mempool")

    assert {name: getattr(found, name) for name in (field.name for field in fields(statistics))} == {
        field.name: getattr(statistics, field.name) for field in fields(statistics)
    }
    assert (found.failed, found.problem) == (1, None)


def test_the_largest_free_block_is_told_by_an_allocator_that_knows_it(sim):
    with al.ScopedAllocator("cuda:0", "caching"):
        array = al.empty(2**20, "uint8")
    del array

    assert row("caching").largest_free == al.memory_summary("cuda:0", "caching").rows[0].largest_free > 0


def test_free_memory_is_told_of_devices_with_a_context_and_none_is_opened(sim):
    array = al.empty(100, device="cuda:0")
    first, second = read_status().devices

    assert (first.free, first.total) == (sim.memory_info(0).free, sim.memory_info(0).total)
    assert (second.free, second.total) == (None, first.total)
    assert 1 not in sim.contexts()
    del array


def test_two_allocators_of_one_name_are_told_apart_and_keep_their_names(sim, recording):
    first, second = recording(), recording()
    with al.ScopedAllocator("cuda:0", first):
        one = al.empty(1, "uint8")
    with al.ScopedAllocator("cuda:0", second):
        two = al.empty(2, "uint8")
    assert (row("RecordingAllocator").current, row("RecordingAllocator#2").current) == (1, 2)

    del one, first
    al.get_device("cuda:0").forget_supply()
    assert row("RecordingAllocator#2").current == 2
    del two


def test_an_allocator_that_cannot_tell_its_figures_hides_no_other(sim):
    class Silent:
        def allocate(self, size_in_bytes):
            return sim.malloc(size_in_bytes)

        def deallocate(self, ptr, size_in_bytes):
            sim.free(ptr)

        def reservation(self):
            raise ValueError("lost count")

        def reset_peak_reservation(self):
            pass

    array = al.empty(100)
    with al.ScopedAllocator("cuda:0", Silent()):
        other = al.empty(100)

    assert (row("Silent").problem, row("Silent").current) == ("ValueError: lost count", None)
    assert row("mempool").current == 800
    del array, other


def test_while_a_graph_is_captured_the_driver_is_asked_nothing_and_what_only_it_knows_is_unknown(sim):
    array = al.empty(100)
    with al.ScopedCapture(capture_mode=CaptureMode.GLOBAL):
        before = len(sim.calls)
        status = read_status()
        asked = len(sim.calls) - before
    (found,) = status.allocators

    assert asked == 0
    assert (found.current, found.reserved, found.peak_reserved) == (800, None, None)
    assert status.devices[0].free is None
    assert row("mempool").reserved > 0
    del array


def test_a_capture_of_another_library_is_not_ended(sim):
    array = al.empty(100)
    stream = al.Stream("cuda:0", non_blocking=True)
    sim.begin_capture(stream.handle, 0, CaptureMode.GLOBAL)
    found = row("mempool")
    graph = sim.end_capture(stream.handle, 0)

    assert found.reserved > 0
    assert graph
    assert [call.name for call in sim.calls if call.error] == []
    sim.destroy_graph(graph)
    del array


def test_the_capture_mode_of_the_thread_is_put_back(sim):
    array = al.empty(100)
    before = sim.exchange_capture_mode(CaptureMode.THREAD_LOCAL)
    read_status()

    assert sim.exchange_capture_mode(before) is CaptureMode.THREAD_LOCAL
    del array


def test_a_lost_device_does_not_hinder_the_answer(sim):
    array = al.empty(100)
    sim.fail("memory_info", 1, "cudaErrorUnknown")

    assert read_status().devices[0].free is None
    del array


def test_when_the_platform_is_retired_the_books_still_answer(output_of):
    lines = output_of("""
        import allotment as al
        from allotment import _process
        from allotment.serving import read_status
        al.init("sim:2xh200", quiet=True)
        array = al.empty(100, device="cuda:0")
        _process._lifecycle.shut_down()
        status = read_status()
        print(status.allocators[0].current, status.devices[0].free)
    """)

    assert lines == ["800 None"]
