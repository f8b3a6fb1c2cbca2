"""The way out of a shortage: each rung, both triggers alike, and that it always ends."""

from __future__ import annotations

import gc
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

import allotment as al
from allotment import registry
from allotment.layers.ladder import Ladder, LadderOptions, Rung
from allotment.layers.layer import Calls, MemoryShortageError

GIB = 2**30
MANY = 100 * GIB
"""More than half of a simulated H200, so that a second array of this size does not fit."""

TRIGGERS = {"limit": ["ladder", {"limit": "120 GiB"}], "driver": ["ladder"]}


@pytest.fixture(params=TRIGGERS)
def pool(sim, request):
    """A memory pool whose second block of `MANY` bytes is refused, by a limit or by the driver."""
    with al.ScopedAllocator("cuda:0", al.get_allocator("mempool", "cuda:0", layers=TRIGGERS[request.param])) as _:
        yield al.get_allocator("mempool", "cuda:0", layers=TRIGGERS[request.param])


def helped(account):
    """Return the rungs that helped, with how often, and the requests that could not be met."""
    figures = account.layers[0].figures
    return {rung.name: times for rung, times in figures.helped.items() if times}, figures.in_vain


def observe(observer):
    registry.current().hooks.register(observer)


def large():
    return al.empty(MANY, "uint8", "cuda:0")


class Dropping:
    """An observer that lets go of what it holds when memory runs out."""

    def __init__(self, held):
        self.held, self.errors = [held], []

    def allotment_on_out_of_memory(self, error):
        self.errors.append(error)
        self.held.clear()


class Hoarder:
    """An allocator of imaginary memory, that keeps what is freed until it is told to give it back."""

    def __init__(self, capacity, *, is_idle_at_once=True, simulated=None):
        self.capacity, self.held, self.idle, self.pending = capacity, 0, 0, 0
        self.is_idle_at_once, self.simulated, self.next = is_idle_at_once, simulated, 4096

    def allocate(self, size_in_bytes):
        if self.held + size_in_bytes > self.capacity:
            raise MemoryError("the hoard is full")
        self.held += size_in_bytes
        self.next += size_in_bytes
        return self.next

    def deallocate(self, ptr, size_in_bytes):
        self.pending += size_in_bytes
        self.waits = self.waited()

    def waited(self):
        return 0 if self.is_idle_at_once else sum(call.name == "synchronize_device" for call in self.simulated.calls)

    def trim(self, keep_bytes=0):
        if not self.is_idle_at_once and self.waited() == self.waits:
            return 0
        given, self.pending = self.pending, 0
        self.held -= given
        return given


def hoarding(hoarder, size=60):
    """Let a hoarder keep a block of `size`; return its account."""
    al.configure(layers=["ladder"])
    al.set_device_allocator("cuda:0", hoarder)
    account = al.get_allocator(None, "cuda:0")
    account.deallocate(account.allocate(size), size)
    return account


# ---------------------------------------------------------------------------------------------------------------------
# Each rung


def test_observers_are_told_and_may_drop_what_they_hold(pool):
    observer = Dropping(large())
    observe(observer)

    assert large().nbytes == MANY
    assert helped(pool) == ({"OBSERVERS": 1}, 0)
    assert [error.requested for error in observer.errors] == [MANY]


def test_garbage_is_collected(pool):
    cycle = [large()]
    cycle.append(cycle)
    gc.disable()
    try:
        del cycle
        assert large().nbytes == MANY
    finally:
        gc.enable()

    assert helped(pool) == ({"GARBAGE": 1}, 0)


def test_the_allocator_gives_idle_memory_back(sim):
    account = hoarding(Hoarder(100))

    assert account.allocate(60) > 0
    assert helped(account) == ({"TRIM": 1}, 0)


def test_the_other_allocators_of_the_device_give_idle_memory_back(sim):
    class Keeping:
        """It keeps what is freed until it is told to give it back."""

        def __init__(self):
            self.allocate, self.kept = sim.malloc, []

        def deallocate(self, ptr, size_in_bytes):
            self.kept.append(ptr)

        def trim(self, keep_bytes=0):
            while self.kept:
                sim.free(self.kept.pop())
            return MANY

    al.set_device_allocator("cuda:0", Keeping())
    large()
    account = al.get_allocator("default", "cuda:0", layers=["ladder"])

    assert account.allocate(MANY) > 0
    assert helped(account) == ({"NEIGHBOURS": 1}, 0)


def test_the_work_of_the_device_is_waited_for(sim):
    account = hoarding(Hoarder(100, is_idle_at_once=False, simulated=sim))

    assert account.allocate(60) > 0
    assert helped(account) == ({"STREAMS": 1}, 0)


def test_the_rungs_and_their_order_can_be_chosen(sim):
    account = al.get_allocator("mempool", "cuda:0", layers=[{"ladder": ["garbage", "trim"]}])
    with pytest.raises(al.OutOfMemoryError) as caught:
        account.allocate(account.device.total_memory)

    assert caught.value.tried == ("garbage", "trim")


def test_a_rung_twice_is_refused(sim):
    with pytest.raises(al.ConfigError, match="a rung is there twice"):
        al.get_allocator("mempool", "cuda:0", layers=[{"ladder": ["trim", "trim"]}])


# ---------------------------------------------------------------------------------------------------------------------
# When nothing helps


def test_the_error_says_what_was_tried(pool):
    held = large()
    with pytest.raises(al.OutOfMemoryError, match="Tried in vain: observers, trim, neighbours, garbage, streams"):
        large()

    assert helped(pool) == ({}, 1)
    assert pool.statistics().current == held.nbytes


def test_observers_are_told_once_of_a_request_that_cannot_be_met(pool):
    held, observer = large(), Dropping(None)
    observe(observer)
    with pytest.raises(al.OutOfMemoryError):
        large()

    assert len(observer.errors) == 1
    del held


def test_another_failure_is_no_shortage(sim):
    account = al.get_allocator("mempool", "cuda:0", layers=["ladder"])
    sim.fail("malloc_from_pool", code="cudaErrorUnknown")
    with pytest.raises(al.PlatformError, match="cudaErrorUnknown"):
        account.allocate(1000)

    assert helped(account) == ({}, 0)


def test_a_rung_that_fails_is_told_and_the_next_one_is_tried(sim):
    hoarder = Hoarder(100)
    hoarder.trim = lambda keep_bytes=0: 1 // 0
    account = hoarding(hoarder)
    with pytest.raises(al.OutOfMemoryError) as caught:
        account.allocate(60)

    assert caught.value.tried[1] == "trim (failed: integer division or modulo by zero)"
    assert len(caught.value.tried) == len(Rung)
    assert str(caught.value).endswith("the hoard is full")


def test_no_rung_is_climbed_while_a_graph_is_captured(pool):
    held, observer = large(), Dropping(None)
    observe(observer)
    with (
        al.ScopedStream(al.Stream("cuda:0", non_blocking=True)),
        al.ScopedCapture("cuda:0"),
        al.ScopedStream(al.Stream("cuda:0", non_blocking=True), sync_enter=False),
        pytest.raises(al.OutOfMemoryError) as caught,
    ):
        large()

    assert not caught.value.tried
    assert helped(pool) == ({}, 0)
    del held


def test_no_rung_is_climbed_while_another_library_captures_the_stream(sim):
    account = al.get_allocator("mempool", "cuda:0", layers=["ladder", {"fault": {"every": 1}}])
    stream = al.Stream("cuda:0", non_blocking=True)
    sim.begin_capture(stream.handle, 0, al.CaptureMode.GLOBAL)
    with al.ScopedStream(stream, sync_enter=False), pytest.raises(al.OutOfMemoryError) as caught:
        account.allocate(1000)
    with suppress(al.PlatformError):  # asking for the figures of the error may have ended it
        sim.destroy_graph(sim.end_capture(stream.handle, 0))

    assert not caught.value.tried


@pytest.mark.parametrize("is_met", [True, False])
def test_nothing_that_callers_hold_is_kept_by_the_errors_on_the_way(pool, is_met):
    def hold_and_ask():
        first, kept = large(), al.empty(8, "uint8", "cuda:0")
        if is_met:
            observe(Dropping(first))
            del first
        with suppress(al.OutOfMemoryError):
            large()
        assert kept.nbytes == 8

    gc.disable()
    try:
        hold_and_ask()
        live = pool.statistics().live
    finally:
        gc.enable()

    assert live == 0


# ---------------------------------------------------------------------------------------------------------------------
# It always ends


def test_what_a_rung_allocates_does_not_climb_again(sim):
    account = al.get_allocator("mempool", "cuda:0", layers=["ladder", {"fault": {"every": 1}}])
    errors = []

    class Greedy:
        def allotment_on_out_of_memory(self, error):
            errors.append(error)
            if len(errors) < 50:
                account.allocate(1000)

    observe(Greedy())
    with pytest.warns(al.ObserverWarning), pytest.raises(al.OutOfMemoryError):
        account.allocate(1000)

    assert helped(account)[1] == 1


SHORTAGES = (MemoryError(), MemoryShortageError(limit=5), al.PlatformError(call="c", code="cudaErrorMemoryAllocation"))


@given(
    rungs=st.lists(st.sampled_from(Rung), unique=True),
    fails=st.lists(st.sampled_from(SHORTAGES), max_size=10),
    other=st.none() | st.integers(0, 6),
)
def test_each_rung_is_tried_once_at_most_and_the_first_answer_counts(rungs, fails, other):
    attempts = []

    def allocate(size):
        attempts.append(size)
        if len(attempts) - 1 == other:
            raise KeyError("something else")
        if len(attempts) <= len(fails):
            raise fails[len(attempts) - 1]
        return 4096

    with al.simulate("h200"):
        device = al.get_device("cuda:0")
        ladder = Ladder(LadderOptions(rungs=tuple(rungs)), device)
        calls = ladder.wrap(Calls(allocate, print, print), al.get_allocator("default", "cuda:0"))
        try:
            outcome = calls.allocate(64)
        except Exception as error:
            outcome = error

    most = len(rungs) + 1
    needed = min(len(fails), other if other is not None else 99) + 1
    assert len(attempts) == min(needed, most)
    if needed > most:
        assert outcome.tried == tuple(rung.value for rung in rungs)
        assert ladder.figures.in_vain == 1
    elif other is not None and other <= len(fails):
        assert isinstance(outcome, KeyError)
    else:
        assert outcome == 4096
        assert sum(ladder.figures.helped.values()) == (1 if fails else 0)
