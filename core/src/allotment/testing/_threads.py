"""Rules T: threads, failures and finalisers."""

from __future__ import annotations

import sys
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from random import Random
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from allotment.allocator import SupportsClose, SupportsTrim
from allotment.device import ScopedDevice
from allotment.testing._allocation import BEYOND
from allotment.testing._fixtures import AllocatorFixtures
from allotment.testing._ledger import ALLOCATIONS, FREES
from allotment.testing._rule import concerning, rule
from allotment.testing._watchdog import finish

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from types import FrameType

    from allotment.layers.accounting import AccountedAllocator
    from allotment.testing._subject import BareCalls, Subject

_THREADS: Final = 4
_CALLS: Final = 200
_SIZES: Final = (64, 512, 4096, 70_000)
_SWITCH_INTERVAL: Final = 1e-5
_MOST_STEPS: Final = 400


class ThreadTests(AllocatorFixtures):
    """Rules T: threads, failures and finalisers."""

    @rule("T1", "A3")
    def test_threads_never_get_the_same_block(self, subject: Subject) -> None:
        allocator, claims = subject.bare().allocator, _Claims()
        with concerning("A3"):  # what one thread alone shows is no matter of threads
            _allocate_and_free(subject, subject.bare(allocator=allocator), claims, seed=0)
        works = [
            partial(_allocate_and_free, subject, subject.bare(allocator=allocator), claims, seed)
            for seed in range(_THREADS)
        ]

        with _eager_switching():
            finish(works, self.deadline)

    @rule("T1")
    def test_the_accounts_are_exact_after_all_threads(self, subject: Subject) -> None:
        account = subject.account()
        works = [partial(_allocate_and_free_account, subject, account, seed) for seed in range(_THREADS)]

        with _eager_switching():
            finish(works, self.deadline)

        statistics = account.statistics()
        assert (statistics.current, statistics.live) == (0, 0)
        assert statistics.allocations == statistics.frees == _THREADS * _CALLS

    @rule("T1")
    def test_a_block_may_be_freed_by_another_thread(self, subject: Subject) -> None:
        calls = subject.bare()
        blocks = [(calls.allocate(size), size) for size in _SIZES]

        def free() -> None:
            with _current(subject):
                for block in blocks:
                    calls.deallocate(*block)

        finish([free], self.deadline)

        assert calls.live == {}

    @rule("T1", "R3", on_cuda=False)
    def test_trimming_may_run_beside_other_threads(self, subject: Subject) -> None:
        subject.require(SupportsTrim, "there is nothing to trim")
        allocator, claims = subject.bare().allocator, _Claims()
        with concerning("R3"):  # what one thread alone shows is no matter of threads
            _trim_and_allocate(subject.bare(allocator=allocator))
        works = [
            partial(_allocate_and_free, subject, subject.bare(allocator=allocator), claims, seed)
            for seed in range(_THREADS)
        ]

        with _eager_switching():
            finish([*works, partial(_trim_often, subject, allocator)], self.deadline)

    @rule("T2", "E1", on_cuda=False)
    @pytest.mark.parametrize("code", ["cudaErrorMemoryAllocation", "cudaErrorUnknown"])
    def test_an_allocation_that_fails_keeps_no_lock(self, subject: Subject, code: str) -> None:
        calls = subject.bare()
        for name in ALLOCATIONS:
            subject.simulation.fail(name, code=code)

        self._try_pair_beside(subject, calls, lambda: calls.allocate(1000))

    @rule("T2", "E1")
    def test_a_request_beyond_the_machine_keeps_no_lock(self, subject: Subject) -> None:
        calls = subject.bare()

        self._try_pair_beside(subject, calls, lambda: calls.allocate(BEYOND))

    @rule("T2", on_cuda=False)
    def test_a_free_that_fails_keeps_no_lock(self, subject: Subject) -> None:
        calls = subject.bare()
        ptr = calls.allocate(1000)
        for name in FREES:
            subject.simulation.fail(name, code="cudaErrorUnknown")

        self._try_pair_beside(subject, calls, lambda: calls.deallocate(ptr, 1000))

    def _try_pair_beside(self, subject: Subject, calls: BareCalls, failing: Callable[[], object]) -> None:
        """Allocate and free in one thread, after a call has failed in another that still runs."""
        failed, tried = Event(), Event()

        def fail() -> None:
            with _current(subject), suppress(Exception):
                failing()
            failed.set()
            tried.wait(self.deadline)

        def pair() -> None:
            failed.wait(self.deadline)
            try:
                with _current(subject), concerning("E1"):  # it goes on, though it is not served
                    calls.deallocate(calls.allocate(2000), 2000)
            finally:
                tried.set()

        finish([fail, pair], self.deadline)

    @rule("T3", "A3", "L2")
    def test_a_finaliser_may_free_in_the_middle_of_a_call(self, subject: Subject) -> None:
        held = subject.outstanding()
        with concerning("A3"):  # what goes wrong without a finaliser is no matter of one
            _interrupted_sequence(subject, _MOST_STEPS)
        with concerning("L2"):
            assert subject.outstanding() == held

        def try_every_step() -> None:
            with _current(subject):
                step = 1
                while step < _MOST_STEPS and _interrupted_sequence(subject, step):
                    step += 1

        finish([try_every_step], self.deadline)

        assert subject.outstanding() == held


class _Claims:
    """The blocks that threads hold, each by one thread at a time."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._held: dict[int, int] = {}

    def take(self, ptr: int, size: int) -> None:
        with self._lock:
            assert ptr not in self._held, f"{ptr:#x} was handed out to two threads"
            self._held[ptr] = size

    def give(self, ptr: int) -> None:
        with self._lock:
            del self._held[ptr]


def _current(subject: Subject) -> AbstractContextManager[object]:
    """Make the device current in a new thread."""
    return ScopedDevice(subject.device) if subject.device.is_cuda else nullcontext()


@contextmanager
def _eager_switching() -> Iterator[None]:
    """Let threads take turns far more often than usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _allocate_and_free(subject: Subject, calls: BareCalls, claims: _Claims, seed: int) -> None:
    random, mine = Random(seed), list[tuple[int, int]]()
    with _current(subject):
        for _ in range(_CALLS):
            size = random.choice(_SIZES)
            ptr = calls.allocate(size)
            claims.take(ptr, size)
            mine.append((ptr, size))
            while len(mine) > random.randrange(6):
                ptr, size = mine.pop(random.randrange(len(mine)))
                claims.give(ptr)
                calls.deallocate(ptr, size)
        for ptr, size in mine:
            claims.give(ptr)
            calls.deallocate(ptr, size)


def _allocate_and_free_account(subject: Subject, account: AccountedAllocator, seed: int) -> None:
    random = Random(seed)
    with _current(subject):
        for _ in range(_CALLS):
            size = random.choice(_SIZES)
            account.deallocate(account.allocate(size), size)
            statistics = account.statistics()
            assert 0 <= statistics.current <= statistics.peak


def _trim_and_allocate(calls: BareCalls) -> None:
    """Check that trimming gives no block away that is live."""
    blocks = [(calls.allocate(size), size) for size in _SIZES]
    cast("SupportsTrim", calls.allocator).trim(0)
    blocks += [(calls.allocate(size), size) for size in _SIZES]
    assert len(calls.live) == len(blocks)
    for block in blocks:
        calls.deallocate(*block)


def _trim_often(subject: Subject, allocator: Any) -> None:
    with _current(subject):
        for _ in range(_CALLS // 4):
            allocator.trim(0)


def _interrupted_sequence(subject: Subject, step: int) -> bool:
    """Allocate, free and allocate with a free in the middle of a step; return whether there was such a step."""
    calls = subject.bare()
    victims = [(calls.allocate(size), size) for size in (4096, 4096, 9000)]
    assert len(calls.live) == len(victims)
    interruption = _Interruption(subject, step, lambda: calls.deallocate(*victims.pop()))
    with interruption:
        ptr = calls.allocate(4096)
        calls.deallocate(ptr, 4096)
        ptr = calls.allocate(4096)
    assert ptr not in {victim for victim, _ in victims}
    calls.free_all()
    if isinstance(calls.allocator, SupportsClose):
        calls.allocator.close()
    subject.forget(calls)
    return interruption.came


class _Interruption:
    """Do something once, at the n-th step of the plugin's code: where it calls, is called, or is returned to.

    The collector of garbage can run finalisers at each of them.
    """

    def __init__(self, subject: Subject, step: int, action: Callable[[], object]) -> None:
        self._package = subject.plugin.factory.__module__.partition(".")[0]
        self._left, self._action = step, action
        self.came = False

    def __enter__(self) -> None:
        self._before = sys.getprofile()
        sys.setprofile(self._at_event)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before)

    def _at_event(self, frame: FrameType, event: str, _: Any) -> None:
        if self._is_plugins(frame) or (event in ("call", "return") and self._is_plugins(frame.f_back)):
            self._left -= 1
            if self._left == 0:
                self.came = True
                self._action()

    def _is_plugins(self, frame: FrameType | None) -> bool:
        return frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == self._package
