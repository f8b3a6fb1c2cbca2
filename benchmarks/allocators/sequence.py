"""Sequences of allocations and frees that a program of a kind would make, from fixed seeds.

The numbers W1, W2, … are those of the list of fair workloads that the suite follows: Umpire's stress test (W2), RMM's
random allocations and multi-stream benchmarks (W4, W5), growth and key/value contexts as reported against caches that
do not split (W9, W10), a training step (W11) and a server (W13).
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import cycle, islice
from math import log
from random import Random

from allotment.trace import EventKind, TraceEvent

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


class Recorder:
    """Writes down what a program asks for."""

    def __init__(self) -> None:
        self.events: list[TraceEvent] = []
        self.live: dict[int, TraceEvent] = {}
        self.current = 0

    def allocate(self, size: int, stream: int = 0) -> int:
        """Note an allocation and return its number."""
        event = TraceEvent(EventKind.ALLOCATE, len(self.events), size, stream)
        self.events.append(event)
        self.live[event.id] = event
        self.current += size
        return event.id

    def free(self, number: int) -> None:
        """Note the free of an allocation, on its own stream."""
        made = self.live.pop(number)
        self.current -= made.size
        self.events.append(TraceEvent(EventKind.FREE, number, made.size, made.stream))

    def free_all(self, numbers: list[int]) -> None:
        """Note the frees of allocations, in this order."""
        for number in numbers:
            self.free(number)


def live_set(order: str, blocks: int = 5000) -> list[TraceEvent]:
    """Return W2: many small blocks at once, freed in the ``order`` ``same``, ``reverse`` or ``shuffle``."""
    random, recorder = Random(12345678), Recorder()
    numbers = [recorder.allocate(random.randint(4, 1024)) for _ in range(blocks)]
    orders = {"same": numbers, "reverse": numbers[::-1], "shuffle": random.sample(numbers, blocks)}
    recorder.free_all(orders[order])
    return recorder.events


def random_mix(largest: int, steps: int = 10_000, cap: int = 16_000 * MIB) -> list[TraceEvent]:
    """Return W4: sizes from 1 to ``largest``, 73 allocations in 100 steps while less than ``cap`` is live."""
    random, recorder, numbers = Random(1), Recorder(), list[int]()
    for _ in range(steps):
        size = random.randint(1, largest)
        if not numbers or (random.random() < 0.73 and recorder.current + size <= cap):
            numbers.append(recorder.allocate(size))
        else:
            chosen = random.randrange(len(numbers))
            numbers[chosen], numbers[-1] = numbers[-1], numbers[chosen]
            recorder.free(numbers.pop())
    recorder.free_all(numbers)
    return recorder.events


def multi_stream(streams: int = 4, rounds: int = 500, size: int = 4 * MIB) -> list[TraceEvent]:
    """Return W5: on each stream in turn the three arrays of a vector addition; results live for one more round."""
    recorder, results = Recorder(), dict[int, int]()
    for turn in range(streams * rounds):
        stream = 1 + turn % streams
        inputs = [recorder.allocate(size, stream) for _ in range(2)]
        result = recorder.allocate(size, stream)
        recorder.free_all(inputs)
        if stream in results:
            recorder.free(results.pop(stream))
        results[stream] = result
    recorder.free_all(list(results.values()))
    return recorder.events


def growth(steps: int = 200, step: int = 64 * MIB, *, double: bool = False) -> list[TraceEvent]:
    """Return W9: ever larger blocks, one at a time, or each while the one before is copied from."""
    recorder, before = Recorder(), list[int]()
    for k in range(1, steps + 1):
        made = recorder.allocate(k * step)
        recorder.free_all(before if double else [made])
        before = [made] if double else []
    recorder.free_all(before)
    return recorder.events


def contexts(buffers: int = 8, bytes_a_token: int = 4 * KIB) -> list[TraceEvent]:
    """Return W10: the key/value buffers of one context length after another."""
    recorder = Recorder()
    for tokens in (262_144, 393_216, 524_288, 786_432, 1_048_576):
        recorder.free_all([recorder.allocate(tokens * bytes_a_token) for _ in range(buffers)])
    return recorder.events


def training(steps: int = 6, layers: int = 12, width: int = 768, length: int = 512) -> list[TraceEvent]:
    """Return W11: a GPT-2 small in training; weights and optimiser stay, activations go backwards, batches change."""
    recorder, heads, vocabulary, item = Recorder(), 12, 50_257, 4
    weights = [vocabulary * width, *[12 * width * width] * layers]
    kept = [recorder.allocate(item * weight) for weight in weights for _ in ("weight", "moment", "variance")]
    for batch in islice(cycle((8, 16, 7)), steps):
        tokens = batch * length
        scores = batch * heads * length * length
        layer = [tokens * width * share for share in (1, 3)] + [scores, scores]
        layer += [tokens * width * share for share in (1, 1, 1, 4, 4, 1)]
        activations = [recorder.allocate(item * count) for _ in range(layers) for count in layer]
        logits = [recorder.allocate(item * tokens * vocabulary) for _ in range(2)]
        gradients = [recorder.allocate(item * weights[0])]
        recorder.free_all(logits)
        for depth in range(layers):
            gradients.append(recorder.allocate(item * weights[1]))
            for activation in activations[::-1][depth * len(layer) : (depth + 1) * len(layer)]:
                passing = recorder.allocate(recorder.live[activation].size)
                recorder.free(activation)
                recorder.free(passing)
        recorder.free_all(gradients)
    recorder.free_all(kept)
    return recorder.events


def serving(requests: int = 400, layers: int = 12, at_once: int = 64, bytes_a_token: int = 1536) -> list[TraceEvent]:
    """Return W13: requests that arrive by a Poisson process, of log-normal length (median 512, deviation 1)."""
    random, recorder = Random(2), Recorder()
    running: list[tuple[float, int, list[int]]] = []
    now = 0.0
    for request in range(requests):
        now += random.expovariate(1 / 12)
        while running and (running[0][0] <= now or len(running) >= at_once):
            end, _, buffers = heappop(running)
            now = max(now, end)
            recorder.free_all(buffers)
        tokens = max(1, round(random.lognormvariate(log(512), 1)))
        heappush(
            running, (now + tokens, request, [recorder.allocate(tokens * bytes_a_token) for _ in range(2 * layers)])
        )
    while running:
        recorder.free_all(heappop(running)[2])
    return recorder.events
