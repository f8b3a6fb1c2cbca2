"""Workloads in which one thread frees what another allocated (W6 and W7, after larson and xmalloc)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from random import Random
from threading import Barrier, BrokenBarrierError
from time import perf_counter
from typing import TYPE_CHECKING, Any

from benchmarks.allocators.workload import Pass, play

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.allocators.session import Session
    from benchmarks.allocators.workload import Step

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Larson:
    """Threads replace random blocks of a set, and pass their sets on after each round.

    Parameters
    ----------
    rounds
        By round and set, the requests; each replaces a block of the set.
    """

    rounds: tuple[tuple[tuple[Step, ...], ...], ...]

    limit = None
    peak_requested = None
    warm_passes = 5

    @classmethod
    def make(cls, threads: int = 4, rounds: int = 4, steps: int = 1000, blocks: int = 100) -> Larson:
        """Draw the blocks that are replaced, and sizes from 64 KiB to 16 MiB."""
        random = Random(4141)
        return cls(
            rounds=tuple(tuple(_replacements(random, steps, blocks) for _ in range(threads)) for _ in range(rounds))
        )

    def passes(self, session: Session) -> Iterator[Pass]:
        """Run all rounds, each with as many threads as there are sets."""
        pairs = sum(len(steps) // 2 for sets in self.rounds for steps in sets)
        while True:
            sets: list[dict[int, tuple[Any, int]]] = [{} for _ in self.rounds[0]]
            seconds, failures = self._run(session, sets)
            for blocks in sets:
                while blocks:
                    session.free(*blocks.popitem()[1])
            yield Pass(seconds=seconds, pairs=pairs, failures=failures)

    def _run(self, session: Session, sets: list[dict[int, tuple[Any, int]]]) -> tuple[float, int]:
        count = len(sets)
        together = Barrier(count)

        def work(thread: int) -> tuple[float, int]:
            together.wait()
            start, failures = perf_counter(), 0
            for number, steps in enumerate(self.rounds):
                mine = (thread + number) % count
                try:
                    failures += play(steps[mine], session, sets[mine])
                except BaseException:
                    together.abort()
                    raise
                together.wait()
            return perf_counter() - start, failures

        with ThreadPoolExecutor(count) as pool:
            futures = [pool.submit(work, thread) for thread in range(count)]
        _raise_cause([future.exception() for future in futures])
        done = [future.result() for future in futures]
        return max(seconds for seconds, _ in done), sum(failures for _, failures in done)


def _raise_cause(errors: list[BaseException | None]) -> None:
    """Raise what went wrong in a thread, if anything did; that others waited in vain is only its consequence."""
    for error in errors:
        if error is not None and not isinstance(error, BrokenBarrierError):
            raise error


def _replacements(random: Random, steps: int, blocks: int) -> tuple[Step, ...]:
    found = list[tuple[bool, int, int]]()
    for _ in range(steps):
        number = random.randrange(blocks)
        found += [(False, number, 0), (True, number, random.randint(64 * KIB, 16 * MIB))]
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """One thread allocates, another one frees; blocks are handed over a few at a time.

    Parameters
    ----------
    size
        The size of a block.
    batches, blocks
        How often blocks are handed over, and how many.
    ahead
        How many batches the first thread may be ahead.
    """

    size: int
    batches: int = 200
    blocks: int = 50
    ahead: int = 4

    limit = None
    peak_requested = None
    warm_passes = 5

    def passes(self, session: Session) -> Iterator[Pass]:
        """Hand all batches over."""
        while True:
            start = perf_counter()
            failures = self._run(session)
            yield Pass(seconds=perf_counter() - start, pairs=self.batches * self.blocks, failures=failures)

    def _run(self, session: Session) -> int:
        allocation = tuple((True, number, self.size) for number in range(self.blocks))
        release = tuple((False, number, self.size) for number in range(self.blocks))
        full: SimpleQueue[dict[int, tuple[Any, int]] | None] = SimpleQueue()
        empty: SimpleQueue[dict[int, tuple[Any, int]]] = SimpleQueue()

        def consume() -> None:
            while (batch := full.get()) is not None:
                play(release, session, batch)
                empty.put(batch)

        for _ in range(self.ahead):
            empty.put({})
        with ThreadPoolExecutor(1) as pool:
            consumer = pool.submit(consume)
            failures = self._produce(session, allocation, full, empty)
            consumer.result()
        return failures

    def _produce(self, session: Session, allocation: tuple[Step, ...], full: Any, empty: Any) -> int:
        failures = 0
        try:
            for _ in range(self.batches):
                batch = empty.get(timeout=10)
                failures += play(allocation, session, batch)
                full.put(batch)
        finally:
            full.put(None)
        return failures
