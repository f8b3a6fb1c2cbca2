"""Scopes that measure: each thread and each task gets its own right numbers."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import threading
from contextlib import suppress

import pytest

import allotment as al


def empty(nbytes, device="cuda:0"):
    return al.empty(nbytes, "uint8", device)


def told(step):
    """Return peak, current, allocations and frees of a scope."""
    result = step.result
    return result.peak, result.current, result.allocations, result.frees


def in_thread(work):
    """Run something in another thread and return its result, or raise what it raised."""
    result, errors = [], []

    def run():
        try:
            result.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    if errors:
        raise errors[0]
    return result[0]


# One scope


def test_a_scope_counts_what_is_allocated_and_freed_in_it(sim):
    with al.measure("step") as step:
        kept, dropped = empty(1000), empty(500)
        del dropped
        other = empty(200)

    assert told(step) == (1500, 1200, 3, 1)
    assert (step.result.allocated_bytes, step.result.freed_bytes) == (1700, 500)
    assert (step.peak, step.current) == (1500, 1200)
    del kept, other


def test_what_was_live_before_a_scope_is_not_in_its_figures(sim):
    before = empty(5000)
    with al.measure() as step:
        inside = empty(100)

    assert told(step) == (100, 100, 1, 0)
    del before, inside


def test_the_figures_can_be_read_while_the_scope_is_open(sim):
    with al.measure() as step:
        arrays = [empty(1000)]
        first = step.result
        arrays.append(empty(1000))

    assert (first.peak, step.peak) == (1000, 2000)
    del arrays


def test_nothing_is_counted_once_a_scope_is_left(sim):
    with al.measure() as step:
        array = empty(1000)
    result = step.result
    del array
    later = empty(4000)

    assert step.result == result
    assert told(step) == (1000, 1000, 1, 0)
    del later


def test_a_result_is_frozen_and_can_be_printed(sim):
    with al.measure("step") as step:
        arrays = [empty(2048), empty(1024)]
        open_text = repr(step)
        del arrays[0]

    assert str(step) == "step: peak 3 KiB, 1 KiB kept; 2 blocks of 3 KiB allocated, 1 of 2 KiB freed"
    assert str(step.result) == str(step)
    assert open_text.startswith("<open measurement 'step': peak 3 KiB")
    assert repr(step).startswith("<closed measurement 'step'")
    with pytest.raises(dataclasses.FrozenInstanceError):
        step.result.peak = 0


def test_each_device_has_its_figures_and_the_total_peak_is_that_of_the_sum(sim):
    with al.measure() as step:
        first = empty(1000, "cuda:0")
        del first
        second, host = empty(300, "cuda:1"), empty(50, "cpu")

    result = step.result
    assert {alias: count.peak for alias, count in result.devices.items()} == {"cuda:0": 1000, "cuda:1": 300, "cpu": 50}
    assert (result.peak, result.current) == (1000, 350)
    assert str(result).splitlines()[1].startswith("  cuda:0: peak 1000 B")
    del second, host


def test_a_block_from_outside_that_is_freed_inside_is_told_apart(sim):
    before = empty(700)
    with al.measure("step") as step:
        inside = empty(100)
        del before

    result = step.result
    assert told(step) == (100, 100, 1, 0)
    assert (result.outside_frees, result.outside_freed_bytes) == (1, 700)
    assert str(result).endswith(", and 1 of 700 B from outside")
    del inside


def test_an_address_that_was_freed_unseen_is_a_new_block_for_the_next_scope(sim):
    account = al.get_allocator("caching", "cuda:0")
    with al.measure():
        ptr = account.allocate(1000)
    account.deallocate(ptr, 1000)
    with al.measure() as step:
        again = account.allocate(1000)
        account.deallocate(again, 1000)

    assert again == ptr
    assert told(step) == (1000, 0, 1, 1)


def test_an_exception_leaves_the_scope_with_its_figures(sim):
    before = empty(10)
    with suppress(ZeroDivisionError), al.measure() as step:
        array = empty(1000)
        1 / (array.size - 1000)
    del array
    after = empty(2000)

    assert told(step) == (1000, 1000, 1, 0)
    del before, after


def test_a_request_that_fails_is_not_counted(sim):
    with al.measure() as step, pytest.raises(al.OutOfMemoryError):
        empty(2**50)

    assert told(step) == (0, 0, 0, 0)


def test_a_free_that_fails_is_not_counted_and_the_one_that_follows_is(sim):
    account = al.get_allocator("default", "cuda:0", layers=[{"fault": {"at": 1, "call": "deallocate"}}])
    with al.measure() as step:
        ptr = account.allocate(1000)
        with pytest.raises(al.PlatformError):
            account.deallocate(ptr, 1000)
        failed = told(step)
        account.deallocate(ptr, 1000)

    assert (failed, told(step)) == ((1000, 1000, 1, 0), (1000, 0, 1, 1))


def test_a_scope_that_is_entered_again_begins_anew(sim):
    step = al.measure()
    peaks = []
    for nbytes in (1000, 10):
        with step:
            empty(nbytes)
        peaks.append(step.peak)

    assert peaks == [1000, 10]


# Several


def test_an_outer_scope_counts_what_its_inner_ones_count(sim):
    with al.measure("outer") as outer:
        first = empty(100)
        with al.measure("inner") as inner:
            second = empty(1000)
            del second
        with al.measure("other") as other:
            third = empty(10)
        del first

    assert (told(inner), told(other)) == ((1000, 0, 1, 1), (10, 10, 1, 0))
    assert told(outer) == (1100, 10, 3, 2)
    del third


def test_a_block_of_an_outer_scope_that_is_freed_in_an_inner_one_is_outside_of_that_only(sim):
    with al.measure() as outer:
        array = empty(100)
        with al.measure() as inner:
            del array

    assert (told(outer), outer.result.outside_frees) == ((100, 0, 1, 1), 0)
    assert (told(inner), inner.result.outside_frees) == ((0, 0, 0, 0), 1)


def test_a_block_of_an_inner_scope_that_is_freed_after_it_still_counts_for_the_outer_one(sim):
    with al.measure() as outer:
        with al.measure() as inner:
            array = empty(100)
        del array

    assert (told(inner), told(outer)) == ((100, 100, 1, 0), (100, 0, 1, 1))


def test_scopes_may_be_left_in_another_order(sim):
    first, second = al.measure(), al.measure()
    first.__enter__()
    second.__enter__()
    kept = [empty(100)]
    first.__exit__(None, None, None)
    kept.append(empty(1000))
    second.__exit__(None, None, None)
    kept.append(empty(1))

    assert (told(first), told(second)) == ((100, 100, 1, 0), (1100, 1100, 2, 0))
    del kept


def test_a_scope_can_be_left_in_a_context_that_never_entered_it(sim):
    def steps():
        with al.measure() as step:
            yield step

    generator = steps()
    step = next(generator)
    array = empty(100)
    in_thread(generator.close)
    later = empty(1000)

    assert told(step) == (100, 100, 1, 0)
    del array, later


# Threads and tasks


def test_two_threads_get_their_own_numbers(sim):
    together, rounds = threading.Barrier(2, timeout=60), 200

    def work(nbytes):
        with al.measure() as step:
            together.wait()
            for _ in range(rounds):
                kept = empty(nbytes)
                empty(nbytes)
                del kept
            together.wait()
        return told(step)

    results = {}
    threads = [threading.Thread(target=lambda size=size: results.update({size: work(size)})) for size in (1000, 7000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert results == {size: (2 * size, 0, 2 * rounds, 2 * rounds) for size in (1000, 7000)}


def test_two_tasks_get_their_own_numbers(sim):
    async def work(nbytes):
        with al.measure() as step:
            for _ in range(5):
                kept = empty(nbytes)
                await asyncio.sleep(0)
                del kept
                await asyncio.sleep(0)
        return told(step)

    async def both():
        return await asyncio.gather(work(1000), work(7000))

    assert asyncio.run(both()) == [(1000, 0, 5, 5), (7000, 0, 5, 5)]


def test_tasks_that_are_made_in_a_scope_add_up_to_it(sim):
    async def work(nbytes, all_live):
        with al.measure() as step:
            array = empty(nbytes)
            await all_live.wait()
            del array
        return told(step)

    async def both():
        all_live = asyncio.Barrier(2)
        with al.measure() as outer:
            inner = await asyncio.gather(work(1000, all_live), work(7000, all_live))
        return told(outer), inner

    assert asyncio.run(both()) == ((8000, 0, 2, 2), [(1000, 0, 1, 1), (7000, 0, 1, 1)])


def test_a_task_that_outlives_the_scope_that_made_it_is_not_counted_any_more(sim):
    async def late(is_closed):
        await is_closed.wait()
        empty(1000)

    async def main():
        is_closed = asyncio.Event()
        with al.measure() as watching, al.measure() as step:
            task = asyncio.create_task(late(is_closed))
            await asyncio.sleep(0)
        is_closed.set()
        await task
        return told(step), told(watching)

    assert asyncio.run(main()) == ((0, 0, 0, 0), (0, 0, 0, 0))


def test_a_block_belongs_to_the_task_that_allocated_it_whoever_frees_it(sim):
    async def make(queue, is_done):
        with al.measure() as step:
            await queue.put(empty(1000))
            await is_done.wait()
        return told(step), step.result.outside_frees

    async def take(queue, is_done):
        with al.measure() as step:
            array = await queue.get()
            del array
            is_done.set()
        return told(step), step.result.outside_frees

    async def both():
        queue, is_done = asyncio.Queue(), asyncio.Event()
        return await asyncio.gather(make(queue, is_done), take(queue, is_done))

    assert asyncio.run(both()) == [((1000, 0, 1, 1), 0), ((0, 0, 0, 0), 1)]


def test_a_block_that_another_thread_frees_counts_for_the_scope_that_allocated_it(sim):
    with al.measure() as step:
        arrays = [empty(1000)]
        in_thread(arrays.clear)

    assert told(step) == (1000, 0, 1, 1)


def test_a_thread_without_a_scope_is_not_counted(sim):
    with al.measure() as step:
        array = in_thread(lambda: empty(1000))

    assert told(step) == (0, 0, 0, 0)
    del array


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_that_is_forked_in_a_scope_measures_its_host_memory(output_of):
    script = """
    import os
    import allotment as al
    with al.measure("step") as step:
        before = al.empty(10, "uint8", "cpu")
        child = os.fork()
        if not child:
            array = al.empty(1000, "uint8", "cpu")
    if not child:
        print(step.peak, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    print(step.peak)
    """
    assert output_of(script) == ["1010", "10"]
