from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
from benchmarks.allocators import sequence
from benchmarks.allocators.sequence import GIB, MIB

from allotment.trace import EventKind, summarize

GENERATORS = {
    "live_set, same": partial(sequence.live_set, "same"),
    "live_set, reverse": partial(sequence.live_set, "reverse"),
    "live_set, shuffle": partial(sequence.live_set, "shuffle"),
    "random_mix": partial(sequence.random_mix, MIB),
    "multi_stream": sequence.multi_stream,
    "growth": sequence.growth,
    "growth, double": partial(sequence.growth, double=True),
    "contexts": sequence.contexts,
    "training": sequence.training,
    "serving": sequence.serving,
}

each = pytest.mark.parametrize("generate", GENERATORS.values(), ids=GENERATORS)


def sizes(events):
    return [event.size for event in events if event.kind is EventKind.ALLOCATE]


def freed(events):
    return [event.id for event in events if event.kind is EventKind.FREE]


@each
def test_a_sequence_is_the_same_each_time(generate):
    assert generate() == generate()


@each
def test_a_sequence_allocates_something_frees_all_of_it_and_nothing_twice(generate):
    summary = summarize(generate())  # refuses a second free, and a free of another size

    assert summary.allocations > 0
    assert summary.live_at_end == 0


@each
def test_no_request_is_for_nothing(generate):
    assert min(sizes(generate())) > 0


@each
def test_a_block_is_freed_on_its_own_stream(generate):
    events = generate()
    streams = {event.id: event.stream for event in events if event.kind is EventKind.ALLOCATE}

    assert all(event.stream == streams[event.id] for event in events)


def test_the_orders_of_a_live_set_are_of_the_same_blocks():
    same, reverse, shuffle = (sequence.live_set(order) for order in ("same", "reverse", "shuffle"))

    assert sizes(same) == sizes(reverse) == sizes(shuffle)
    assert 4 <= min(sizes(same)) <= max(sizes(same)) <= 1024
    assert freed(same) == freed(reverse)[::-1] == sorted(freed(shuffle))
    assert freed(shuffle) not in (freed(same), freed(reverse))


def test_the_random_mix_stays_below_its_cap_and_comes_near_it():
    peak = summarize(sequence.random_mix(64 * MIB)).peak_requested

    assert 15_900 * MIB < peak <= 16_000 * MIB


def test_the_random_mix_allocates_in_73_of_100_steps():
    kinds = Counter(event.kind for event in sequence.random_mix(MIB)[:10_000])

    assert kinds[EventKind.ALLOCATE] == pytest.approx(7300, abs=150)


def test_streams_take_turns():
    events = sequence.multi_stream(streams=4)

    assert Counter(event.stream for event in events).keys() == {1, 2, 3, 4}
    assert len({Counter(event.stream for event in events)[stream] for stream in (1, 2, 3, 4)}) == 1


def test_growth_is_by_64_mib_with_one_or_two_blocks_live():
    steps = [k * 64 * MIB for k in range(1, 201)]

    assert sizes(sequence.growth()) == sizes(sequence.growth(double=True)) == steps
    assert summarize(sequence.growth()).peak_requested == steps[-1]
    assert summarize(sequence.growth(double=True)).peak_requested == steps[-1] + steps[-2]


def test_contexts_grow_from_8_to_32_gib():
    assert sum(sizes(sequence.contexts())[:8]) == 8 * GIB
    assert summarize(sequence.contexts()).peak_requested == 32 * GIB


def test_training_keeps_weights_and_varies_its_batches():
    events = sequence.training()
    kept = [event.id for event in events if event.kind is EventKind.ALLOCATE][: 3 * 13]
    tokens = Counter(size // (4 * 768 * 512) for size in sizes(events))

    assert set(freed(events)[-len(kept) :]) == set(kept)
    assert {8, 16, 7} <= tokens.keys()


def test_a_server_has_at_most_64_requests_at_once():
    live, most = 0, 0
    for event in sequence.serving():
        live += 1 if event.kind is EventKind.ALLOCATE else -1
        most = max(most, live)

    assert most == 64 * 24
    assert len(set(sizes(sequence.serving()))) > 200
