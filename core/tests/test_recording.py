"""Recordings: what a program allocates and frees, as events in a file or kept in memory."""

from __future__ import annotations

import gc
import inspect
import multiprocessing
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

import allotment as al
from allotment import trace
from allotment.errors import TraceError, UnsupportedError
from allotment.trace import EventKind, TraceSource

NAMES = ["default", "mempool", "managed", "caching"]


def line():
    """Return the line that calls this, as call sites have it."""
    return inspect.currentframe().f_back.f_lineno


def kinds(path):
    return "".join(event.kind.value for event in trace.read(path))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.jsonl.gz"


@pytest.mark.parametrize("name", NAMES)
def test_an_allocation_has_its_size_source_stream_label_and_call_site(sim, path, name):
    account, stream = al.get_allocator(name, "cuda:0"), al.Stream("cuda:0")
    with al.record(path), al.label("step"), al.label("weights"), al.ScopedStream(stream):
        ptr, at = account.allocate(1000), line()
        account.deallocate(ptr, 1000)
    made, freed = trace.read(path)

    assert (made.kind, made.size, made.label) == (EventKind.ALLOCATE, 1000, "step/weights")
    assert made.source == TraceSource("cuda:0", name)
    assert made.stream == (1 if account.takes_streams else 0)
    assert made.site.frames[0][:2] == (__file__, at)
    assert (freed.kind, freed.id, freed.size) == (EventKind.FREE, made.id, 1000)
    assert 0 <= made.time <= freed.time


def test_all_devices_and_allocators_are_recorded(sim, path):
    with al.record(path):
        kept = [al.empty(8, device=device) for device in ("cuda:0", "cuda:1", "cpu")]
        kept.append(al.get_allocator("managed", "cuda:0").allocate(8))

    assert Counter(event.source.device for event in trace.read(path)) == {"cuda:0": 2, "cuda:1": 1, "cpu": 1}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_live_at_the_beginning_is_held_and_its_free_is_recorded(sim, path, name):
    account = al.get_allocator(name, "cuda:0")
    blocks = [(account.allocate(size), size) for size in (100, 200, 300)]
    with al.record(path):
        account.deallocate(*blocks.pop())
    events = list(trace.read(path))

    assert [event.kind.value for event in events] == ["h", "h", "h", "f"]
    assert sorted(event.size for event in events[:3]) == [100, 200, 300]
    assert events[3].size == 300
    for block in blocks:
        account.deallocate(*block)


def test_what_happens_before_and_after_is_not_recorded(sim, path):
    before = al.empty(8, device="cuda:0")
    del before
    with al.record(path):
        array = al.empty(8, device="cuda:0")
    del array
    al.empty(8, device="cuda:0")

    assert kinds(path) == "a"


@pytest.mark.parametrize("name", NAMES)
def test_an_account_is_as_it_was_once_nobody_records(sim, path, name):
    account = al.get_allocator(name, "cuda:0")
    before = account.own_calls()
    with al.record(path):
        during = account.own_calls()

    assert during.allocate is not before.allocate
    assert account.own_calls().allocate.__qualname__ == before.allocate.__qualname__


def test_two_recordings_at_once_see_the_same(sim, tmp_path):
    with al.record(tmp_path / "a.jsonl"), al.record(tmp_path / "b.jsonl"):
        al.empty(8, device="cuda:0")

    assert kinds(tmp_path / "a.jsonl") == kinds(tmp_path / "b.jsonl") == "af"


@pytest.mark.parametrize("size", [2**50, 150 * 10**9])
def test_a_request_that_is_not_met_is_recorded_where_it_was_made(sim, path, size):
    filler = al.get_allocator("default", "cuda:0")
    ptr = filler.allocate(10**9)
    with al.record(path), pytest.raises(al.OutOfMemoryError), al.label("big"):
        filler.allocate(size)
    _, event = trace.read(path)

    assert (event.kind, event.id, event.size, event.label) == (EventKind.OUT_OF_MEMORY, -1, size, "big")
    assert event.site.frames[0].file == __file__
    filler.deallocate(ptr, 10**9)


def test_a_request_that_is_not_met_is_in_the_file_at_once(sim, path):
    with al.record(path):
        al.empty(8, device="cuda:0")
        with pytest.raises(al.OutOfMemoryError):
            al.get_allocator("default", "cuda:0").allocate(2**50)
        problems = []
        events = list(trace.read(path, on_problem=problems.append))

    assert [event.kind.value for event in events] == ["a", "f", "o"]
    assert ["cut off" in problem.problem for problem in problems] == [True]


def test_a_block_that_cannot_be_freed_is_not_recorded_as_freed(sim, path):
    account = al.get_allocator("default", "cuda:0")
    with al.record(path):
        ptr = account.allocate(8)
        sim.fail("free")
        with pytest.raises(al.AllotmentError):
            account.deallocate(ptr, 8)
        account.deallocate(ptr, 8)

    assert kinds(path) == "af"


def test_a_block_that_another_allocator_gives_is_recorded_once(sim, path):
    account = al.get_allocator("default", "cuda:0", layers=[{"fallback": "managed"}, {"limit": "1 KiB"}])
    with al.record(path):
        account.deallocate(account.allocate(4096), 4096)
    made, freed = (event for event in trace.read(path) if event.kind is not EventKind.OUT_OF_MEMORY)

    assert (made.source.allocator, freed.id) == ("managed", made.id)


def test_blocks_of_many_threads_are_all_recorded(sim, path):
    def work():
        for _ in range(300):
            al.empty(64, device="cuda:0")

    with al.record(path) as recording:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    events = list(trace.read(path))

    assert len(events) == recording.events == 2400
    assert trace.summarize(events).live_at_end == 0


def test_a_finaliser_in_the_middle_of_writing_is_recorded(sim, path):
    class Ring:
        def __init__(self):
            self.array, self.me = al.empty(8, device="cuda:0"), self

    gc.disable()
    try:
        with al.record(path):
            for _ in range(3000):
                Ring()
            gc.collect()
            gc.collect()
    finally:
        gc.enable()

    assert Counter(kinds(path)) == {"a": 3000, "f": 3000}


def test_the_last_events_are_kept_in_memory_and_saved_when_wanted(sim, tmp_path):
    with al.record(last=4) as recording:
        for _ in range(50):
            al.empty(8, device="cuda:0")
        recording.save(tmp_path / "now.jsonl")
    recording.save(tmp_path / "end.jsonl")

    assert kinds(tmp_path / "now.jsonl") == kinds(tmp_path / "end.jsonl") == "afaf"
    assert recording.events == 100


def test_blocks_that_live_longer_than_their_event_is_kept_are_held(sim, tmp_path):
    with al.record(last=4) as recording:
        with al.label("weights"):
            weights = al.empty(1000, "uint8", "cuda:0")
        for _ in range(50):
            al.empty(8, device="cuda:0")
    recording.save(tmp_path / "ring.jsonl")
    first, *rest = trace.read(tmp_path / "ring.jsonl")

    assert (first.kind, first.size, first.label) == (EventKind.HELD, 1000, "weights")
    assert "".join(event.kind.value for event in rest) == "afaf"
    del weights


def test_the_last_events_are_written_when_memory_is_not_to_be_had(sim, path):
    with al.record(path, last=100):
        al.empty(8, device="cuda:0")
        assert not path.exists()
        with pytest.raises(al.OutOfMemoryError):
            al.get_allocator("default", "cuda:0").allocate(2**50)
        assert kinds(path) == "afo"
        al.empty(8, device="cuda:0")

    assert kinds(path) == "afoaf"


def test_a_recording_may_be_started_and_stopped_by_hand_and_again(sim, path):
    recording = al.record(path)
    for _ in range(2):
        recording.start()
        al.empty(8, device="cuda:0")
        recording.stop()
        recording.stop()

    assert kinds(path) == "af"
    assert "at rest: 2 events" in repr(recording)


def test_a_running_recording_cannot_be_started(sim, path):
    with al.record(path) as recording, pytest.raises(UnsupportedError, match="runs already"):
        recording.start()


def test_what_is_not_kept_cannot_be_saved(sim, path):
    recording = al.record(path)
    with pytest.raises(UnsupportedError, match="was not begun"):
        recording.save(path)
    with recording, pytest.raises(UnsupportedError, match="writes to"):
        recording.save(path)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [({}, "say where"), ({"last": 0}, "from 1"), ({"path": "x", "depth": -1}, "from 0")],
)
def test_impossible_recordings_are_refused(arguments, problem):
    with pytest.raises(ValueError, match=problem):
        al.record(**arguments)


def test_a_file_that_cannot_be_written_is_told_at_the_beginning(sim, tmp_path):
    with pytest.raises(TraceError, match="cannot be written: No such file"), al.record(tmp_path / "none" / "x"):
        pass


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a device that is always full")
def test_a_full_disk_does_not_stop_the_program_and_is_told_at_the_end(sim):
    recording = al.record("/dev/full", last=10)
    recording.start()
    al.empty(8, device="cuda:0")
    with pytest.raises(al.OutOfMemoryError):
        al.get_allocator("default", "cuda:0").allocate(2**50)

    with pytest.raises(TraceError, match="No space left"):
        recording.stop()


def test_no_call_site_is_kept_at_depth_0(sim, path):
    with al.record(path, depth=0):
        al.empty(8, device="cuda:0")

    assert [event.site for event in trace.read(path)] == [None, None]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_leaves_the_file_to_its_parent(path):
    account = al.get_allocator("host", "cpu")
    with al.record(path):
        account.deallocate(account.allocate(8), 8)
        child = multiprocessing.get_context("fork").Process(target=lambda: account.allocate(16))
        child.start()
        child.join(60)
        account.deallocate(account.allocate(8), 8)

    assert child.exitcode is not None
    assert kinds(path) == "afaf"


def test_a_program_that_dies_leaves_all_but_the_last_few_thousand_events(path):
    program = f"""
import allotment as al, os
al.record({str(path)!r}).start()
account = al.get_allocator("host", "cpu")
for _ in range(5000):
    account.deallocate(account.allocate(8), 8)
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    problems = []
    found = list(trace.read(path, on_problem=problems.append))

    assert ["cut off" in problem.problem for problem in problems] == [True]
    assert 5_000 < len(found) < 10_000
