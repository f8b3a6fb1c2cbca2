from __future__ import annotations

from itertools import islice

import pytest
from benchmarks.allocators import catalogue, sequence
from benchmarks.allocators.session import is_out_of_memory
from benchmarks.allocators.threads import Handover, Larson
from benchmarks.allocators.workload import Pairs, Replay
from tests.benchmarks.misbehaving import Small

from allotment.trace import EventKind, TraceEvent


class Watching(Small):
    """Notes the streams it is used on, and has room for all."""

    def __init__(self):
        super().__init__()
        self.room = 1 << 60
        self.streams = []
        self.allocations = 0

    def allocate(self, size):
        self.allocations += 1
        return super().allocate(size)

    def use(self, stream):
        self.streams.append(stream)


def two_passes(workload, session):
    return list(islice(workload.passes(session), 2))


def test_a_replay_frees_all_that_it_allocated():
    session = Watching()
    found = two_passes(Replay.of(sequence.live_set("shuffle", blocks=50)), session)

    assert [each.pairs for each in found] == [50, 50]
    assert session.allocations == 100
    assert session.sizes == {}


def test_a_replay_frees_what_its_trace_leaves_live():
    session = Watching()
    two_passes(Replay.of([TraceEvent(EventKind.ALLOCATE, number, 8) for number in range(3)]), session)

    assert session.allocations == 6
    assert session.sizes == {}


def test_a_replay_changes_the_stream_where_its_trace_does():
    session = Watching()
    next(Replay.of(sequence.multi_stream(streams=2, rounds=2)).passes(session))

    assert session.streams == [1, 2, 1, 2, 1, 2, 0]


def test_the_peak_requested_is_that_of_what_is_live():
    assert Replay.of(sequence.growth(steps=3, step=10, double=True)).peak_requested == 50


def test_a_cap_is_a_multiple_of_the_peak_in_whole_mebibytes():
    replay = Replay.of(sequence.growth(steps=3, step=10 << 20))

    assert replay.limited(1.0).limit == 30 << 20
    assert replay.limited(1.01).limit == 31 << 20


def test_requests_without_memory_are_counted_and_their_frees_left_out():
    session = Small()
    found = next(Replay.of(sequence.growth(steps=4, step=400 << 10)).passes(session))

    assert (found.pairs, found.failures) == (4, 2)
    assert session.room == 1 << 20


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("std::bad_alloc"),
        RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("cudaErrorMemoryAllocation: out of memory"),
        RuntimeError("CUDA_ERROR_OUT_OF_MEMORY: the call failed"),
    ],
)
def test_every_library_has_its_own_way_to_say_that_memory_ran_out(error):
    assert is_out_of_memory(error)


def test_another_error_is_none_of_memory():
    assert not is_out_of_memory(RuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered"))


def test_pairs_leave_just_their_other_blocks_live():
    session = Watching()
    passes = Pairs(size=256, live=100).passes(session)
    cold = next(passes)

    assert cold.pairs == 1
    assert len(session.sizes) == 100


def test_the_first_pair_of_a_warm_pass_is_not_the_only_one():
    assert two_passes(Pairs(size=8), Watching())[1].pairs > 1


def test_sets_of_larson_are_freed_after_each_pass():
    session = Watching()
    larson = Larson.make(threads=3, rounds=2, steps=50, blocks=5)
    found = two_passes(larson, session)

    assert [each.pairs for each in found] == [3 * 2 * 50] * 2
    assert session.allocations == 2 * 3 * 2 * 50
    assert session.sizes == {}


def test_larson_is_the_same_each_time():
    assert Larson.make() == Larson.make()


def test_what_is_handed_over_is_freed_by_the_other_thread():
    session = Watching()
    found = two_passes(Handover(size=64, batches=20, blocks=5), session)

    assert [each.pairs for each in found] == [100, 100]
    assert session.sizes == {}


@pytest.mark.parametrize("workload", [Larson.make(threads=2, rounds=2, steps=5), Handover(size=2 << 20, batches=3)])
def test_threads_count_what_there_was_no_memory_for(workload):
    assert next(workload.passes(Small())).failures > 0


@pytest.mark.parametrize("workload", [Larson.make(threads=2, rounds=2, steps=5), Handover(size=8, batches=3)])
def test_an_error_in_a_thread_comes_out(workload):
    class Broken(Small):
        def allocate(self, size):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        next(workload.passes(Broken()))


def test_a_pattern_selects_by_group_or_by_name():
    assert {entry.name for entry in catalogue.select(["live"])} == {"live/same", "live/reverse", "live/shuffle"}
    assert [entry.name for entry in catalogue.select(["trace/gpt2_t*"])] == ["trace/gpt2_train"]


def test_a_pattern_that_fits_nothing_is_refused():
    with pytest.raises(ValueError, match="churn/8 B"):
        catalogue.select(["chrun"])


def test_a_quick_run_has_fewer_workloads_of_nearly_every_group():
    quick, whole = catalogue.select([], quick=True), catalogue.select([])

    assert len(quick) < len(whole) / 2
    assert {entry.group for entry in quick} >= {"churn", "pairs", "mix", "trace", "minimalloc", "pressure"}


@pytest.mark.parametrize("name", ["resnet50_train", "gpt2_train", "two_stream_pipeline"])
def test_a_recorded_trace_is_replayed_whole(name):
    replay = catalogue.find(f"trace/{name}")

    assert replay.pairs == {"resnet50_train": 5965, "gpt2_train": 8963, "two_stream_pipeline": 800}[name]
    assert replay.peak_requested == pytest.approx(
        {"resnet50_train": 11_383_464_991, "gpt2_train": 20_994_956_008, "two_stream_pipeline": 1_592_579_156}[name],
        rel=0.01,
    )
