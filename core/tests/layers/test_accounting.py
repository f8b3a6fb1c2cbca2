"""The accounts and checks around every allocator: what is refused, what is counted, what stays true in a storm."""

from __future__ import annotations

import gc
import threading
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

import allotment as al
from allotment.layers.account import account
from allotment.stream import stream_scope_stack

MIB = 2**20


class Fake:
    """An allocator on imaginary addresses, whose next answers a test can choose."""

    def __init__(self):
        self.calls = []
        self.answers = []
        self.free_error = None
        self._next = 4096

    def allocate(self, size_in_bytes):
        self.calls.append(("allocate", size_in_bytes))
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, BaseException):
                raise answer
            return answer
        self._next += 4096 + size_in_bytes
        return self._next

    def deallocate(self, ptr, size_in_bytes):
        self.calls.append(("deallocate", ptr, size_in_bytes))
        if self.free_error is not None:
            raise self.free_error


class FakeWithStreams(Fake):
    """The same, told the stream with each call."""

    def allocate_on(self, size_in_bytes, stream):
        return self.allocate(size_in_bytes)

    def deallocate_on(self, ptr, size_in_bytes, stream):
        self.deallocate(ptr, size_in_bytes)


@pytest.fixture(params=[Fake, FakeWithStreams], ids=["two methods", "with streams"])
def fake(request):
    return request.param()


@pytest.fixture
def accounts(sim, fake):
    """Return accounts around the fake, on the first device."""
    return al.get_allocator(device=_set("cuda:0", fake))


def _set(device, allocator):
    al.set_device_allocator(device, allocator)
    return device


def figures(accounts):
    """Return current, peak, allocations, frees and the two counts of failures."""
    stats = accounts.statistics()
    return (
        stats.current,
        stats.peak,
        stats.allocations,
        stats.frees,
        stats.failed_allocations,
        stats.failed_frees,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Sizes


@pytest.mark.parametrize("size", [-1, -(2**63), 2**63, 2**64, 2**100, np.int64(-1)])
def test_a_size_out_of_range_is_a_value_error_before_any_call(accounts, fake, size):
    with pytest.raises(ValueError, match="size"):
        accounts.allocate(size)

    assert fake.calls == []
    assert figures(accounts) == (0,) * 6


@pytest.mark.parametrize("size", [1.0, 64.5, "64", None, True, False, b"64", [64], np.float64(64), np.bool_(True), 1j])
def test_a_size_that_is_no_integer_is_a_type_error_before_any_call(accounts, fake, size):
    with pytest.raises(TypeError):
        accounts.allocate(size)

    assert fake.calls == []


@pytest.mark.parametrize("size", [np.int64(64), np.uint8(64), np.array(64)])
def test_an_integer_of_another_type_reaches_the_allocator_as_an_int(accounts, fake, size):
    ptr = accounts.allocate(size)
    assert [type(each[1]) for each in fake.calls] == [int]
    accounts.deallocate(ptr, size)

    assert fake.calls[-1] == ("deallocate", ptr, 64)
    assert type(fake.calls[-1][2]) is int


def test_the_largest_size_is_passed_on(accounts, fake):
    assert accounts.allocate(2**63 - 1) > 0
    assert fake.calls == [("allocate", 2**63 - 1)]


@pytest.mark.parametrize("zero", [0, np.int64(0)])
def test_nothing_asked_is_nothing_allocated_and_can_be_given_back(accounts, fake, zero):
    ptr = accounts.allocate(zero)
    accounts.deallocate(ptr, zero)

    assert (ptr, fake.calls) == (0, [])
    assert figures(accounts) == (0,) * 6


# ---------------------------------------------------------------------------------------------------------------------
# Giving back


def test_a_block_goes_back_with_the_size_that_was_asked(accounts, fake):
    ptr = accounts.allocate(100)
    accounts.deallocate(ptr, 100)

    assert fake.calls == [("allocate", 100), ("deallocate", ptr, 100)]
    assert figures(accounts) == (0, 100, 1, 1, 0, 0)


def test_a_double_free_is_refused(accounts, fake):
    ptr = accounts.allocate(100)
    accounts.deallocate(ptr, 100)
    with pytest.raises(al.InvalidPointerError, match="it is not live here") as caught:
        accounts.deallocate(ptr, 100)

    assert (caught.value.pointer, caught.value.owner) == (ptr, None)
    assert len(fake.calls) == 2
    assert figures(accounts) == (0, 100, 1, 1, 0, 0)


@pytest.mark.parametrize("given", [99, 101, 0, -100, 2**64])
def test_a_wrong_size_is_refused_and_the_block_stays_live(accounts, fake, given):
    ptr = accounts.allocate(100)
    with pytest.raises(al.SizeMismatchError, match="It stays live") as caught:
        accounts.deallocate(ptr, given)
    assert (caught.value.allocated, caught.value.given, accounts.is_live(ptr)) == (100, given, True)
    accounts.deallocate(ptr, 100)

    assert figures(accounts) == (0, 100, 1, 1, 0, 0)


@pytest.mark.parametrize("given", [None, "100", object()])
def test_a_size_that_is_none_is_refused_and_the_block_stays_live(accounts, fake, given):
    ptr = accounts.allocate(100)
    with pytest.raises(TypeError):
        accounts.deallocate(ptr, given)

    assert accounts.is_live(ptr)
    assert len(fake.calls) == 1


@pytest.mark.parametrize("size", [None, 0, 100, "100"])
@pytest.mark.parametrize("pointer", [1, 4097, -1, 2**64])
def test_a_pointer_that_nobody_handed_out_never_reaches_the_allocator(accounts, fake, pointer, size):
    with pytest.raises(al.InvalidPointerError, match="came from somewhere else"):
        accounts.deallocate(pointer, size)

    assert fake.calls == []
    assert figures(accounts) == (0,) * 6


@pytest.mark.parametrize("pointer", [None, "0x1000", 1.5])
def test_what_is_no_address_is_a_type_error(accounts, fake, pointer):
    with pytest.raises(TypeError):
        accounts.deallocate(pointer, 100)

    assert fake.calls == []


def test_the_inside_of_a_block_cannot_be_freed(accounts, fake):
    ptr = accounts.allocate(100)
    with pytest.raises(al.InvalidPointerError):
        accounts.deallocate(ptr + 50, 50)

    assert accounts.is_live(ptr)


def test_a_block_of_another_allocator_is_refused_with_its_owner(sim, accounts):
    owner = al.get_allocator("mempool", "cuda:0")
    ptr = owner.allocate(100)
    with pytest.raises(al.InvalidPointerError, match=r"live in allocator 'mempool'\. Free it there"):
        accounts.deallocate(ptr, 100)

    assert owner.is_live(ptr)
    assert len(sim.calls.named("free_async")) == 0


def test_a_block_of_another_device_is_refused_with_its_owner_and_device(sim):
    owner, other = al.get_allocator("mempool", "cuda:1"), al.get_allocator("mempool", "cuda:0")
    ptr = owner.allocate(100)
    with pytest.raises(al.InvalidPointerError, match="live in allocator 'mempool on cuda:1'"):
        other.deallocate(ptr, 100)

    assert owner.is_live(ptr)


# ---------------------------------------------------------------------------------------------------------------------
# What an allocator may not do


@pytest.mark.parametrize(
    ("answer", "rule", "problem"),
    [
        (None, "A2", "not a plain int"),
        (np.int64(4096), "A2", "not a plain int"),
        (4096.0, "A2", "not a plain int"),
        (True, "A2", "not a plain int"),
        ("4096", "A2", "not a plain int"),
        (0, "A2", "not above 0"),
        (-4096, "A2", "not above 0"),
    ],
)
def test_an_answer_that_is_no_address_is_a_broken_contract(accounts, fake, answer, rule, problem):
    fake.answers = [answer]
    with pytest.raises(al.AllocatorContractError, match=problem) as caught:
        accounts.allocate(100)

    assert caught.value.rule == rule
    assert figures(accounts) == (0, 0, 0, 0, 1, 0)


def test_an_address_that_is_live_already_is_a_broken_contract_and_the_first_block_stays(accounts, fake):
    ptr = accounts.allocate(100)
    fake.answers = [ptr]
    with pytest.raises(al.AllocatorContractError, match="a block is live already") as caught:
        accounts.allocate(200)
    assert caught.value.rule == "A3"
    accounts.deallocate(ptr, 100)

    assert figures(accounts) == (0, 100, 1, 1, 1, 0)


def test_an_address_may_be_handed_out_again_after_it_was_freed(accounts, fake):
    fake.answers = [8192, 8192]
    for size in (100, 200):
        accounts.deallocate(accounts.allocate(size), size)

    assert figures(accounts) == (0, 200, 2, 2, 0, 0)


class PluginError(Exception):
    pass


@pytest.mark.parametrize("error", [PluginError("no"), ValueError("no"), al.UnsupportedError("no")])
def test_an_error_of_the_allocator_comes_through_as_it_is_and_is_counted(accounts, fake, error):
    fake.answers = [error]
    with pytest.raises(type(error)) as caught:
        accounts.allocate(100)

    assert caught.value is error
    assert figures(accounts) == (0, 0, 0, 0, 1, 0)


@pytest.mark.parametrize("error", [PluginError("no"), KeyboardInterrupt(), al.UnsupportedError("no")])
def test_a_block_that_the_allocator_fails_to_take_back_stays_on_the_books(accounts, fake, error):
    ptr = accounts.allocate(100)
    fake.free_error = error
    with pytest.raises(type(error)):
        accounts.deallocate(ptr, 100)
    assert accounts.is_live(ptr)
    assert figures(accounts) == (100, 100, 1, 0, 0, 1)
    fake.free_error = None
    accounts.deallocate(ptr, 100)

    assert figures(accounts) == (0, 100, 1, 1, 0, 1)


def test_a_free_that_fails_in_the_finaliser_of_an_array_is_told_as_a_warning(accounts, fake):
    array = al.empty(100)
    fake.free_error = PluginError("no")
    with pytest.warns(al.FreeFailedWarning, match="800 bytes .*: PluginError: no"):
        del array

    assert figures(accounts)[0] == 800


def test_a_driver_error_comes_as_one_of_the_platform(sim):
    sim.fail("malloc", code="cudaErrorIllegalAddress")
    with pytest.raises(al.PlatformError, match="cudaErrorIllegalAddress"):
        al.get_allocator("default", "cuda:0").allocate(100)


# ---------------------------------------------------------------------------------------------------------------------
# Out of memory


@pytest.mark.parametrize("name", ["default", "mempool"])
def test_out_of_memory_says_what_was_asked_and_what_there_is(sim, name):
    allocator = al.get_allocator(name, "cuda:1")
    kept = allocator.allocate(MIB)
    total = al.get_device("cuda:1").total_memory
    with pytest.raises(al.OutOfMemoryError) as caught:
        allocator.allocate(total - MIB // 2)

    error = caught.value
    assert (error.requested, error.in_use, error.total, error.limit) == (total - MIB // 2, MIB, total, None)
    assert (error.device, error.allocator) == ("cuda:1", name)
    assert error.reserved >= MIB
    assert 0 < error.free <= total - MIB
    assert isinstance(error, MemoryError)
    text = str(error)
    for part in (f"{total - MIB // 2:,} bytes", f"'{name}'", "'cuda:1'", "In use 1,048,576 bytes", "limit none"):
        assert part in text
    allocator.deallocate(kept, MIB)
    assert allocator.statistics().failed_allocations == 1


@pytest.mark.parametrize("failing", ["memory_info", "pool_attribute"])
def test_a_figure_that_cannot_be_had_does_not_hide_that_memory_ran_out(sim, failing):
    allocator = al.get_allocator("mempool", "cuda:0")
    sim.fail("malloc_from_pool")
    sim.fail(failing, code="cudaErrorUnknown")
    with pytest.raises(al.OutOfMemoryError, match="unknown"):
        allocator.allocate(100)


def test_more_than_the_device_has_is_out_of_memory(sim):
    for name in ("default", "mempool"):
        with pytest.raises(al.OutOfMemoryError, match="the device"):
            al.get_allocator(name, "cuda:0").allocate(10**12)


def test_a_memory_error_of_an_allocator_is_out_of_memory_with_its_text_as_advice(accounts, fake):
    fake.answers = [MemoryError("Buy a larger one.")]
    with pytest.raises(al.OutOfMemoryError, match="Buy a larger one") as caught:
        accounts.allocate(100)

    assert isinstance(caught.value.__cause__, MemoryError)


def test_out_of_memory_of_an_allocator_of_ours_behind_another_comes_through_as_it_is(accounts, fake):
    inner = al.OutOfMemoryError(requested=1, in_use=2, reserved=3, free=4, total=5, limit=6, device="x", allocator="y")
    fake.answers = [inner]
    with pytest.raises(al.OutOfMemoryError) as caught:
        accounts.allocate(100)

    assert caught.value is inner


def test_after_memory_ran_out_all_goes_on_and_the_error_keeps_no_memory(sim):
    arrays, total = [], al.get_device("cuda:0").total_memory
    with pytest.raises(al.OutOfMemoryError) as caught:  # noqa: PT012 - the loop ends by the error
        while True:
            arrays.append(al.empty(total // 8, np.uint8))
    arrays.clear()

    assert al.get_allocator().statistics().current == 0
    assert al.zeros(4).numpy().tolist() == [0.0] * 4
    assert caught.value.in_use == 7 * (total // 8)


def test_memory_that_runs_out_in_a_thread_is_an_error_there_and_nothing_hangs(sim):
    errors = []

    def exhaust():
        arrays = []
        try:
            while True:
                arrays.append(al.empty(MIB * 1024 * 8, np.uint8))
        except al.OutOfMemoryError as error:
            errors.append(error.requested)

    run_all([exhaust] * 3)

    assert errors == [8 * 2**30] * 3
    assert al.get_allocator().statistics().current == 0


# ---------------------------------------------------------------------------------------------------------------------
# Counters


def test_resetting_the_peak_leaves_the_totals(accounts):
    x = accounts.allocate(30)
    accounts.reset_peak()
    assert figures(accounts)[:2] == (30, 30)
    y = accounts.allocate(7)
    assert figures(accounts)[:2] == (37, 37)
    accounts.deallocate(x, 30)
    accounts.deallocate(y, 7)
    assert figures(accounts) == (0, 37, 2, 2, 0, 0)
    accounts.reset_peak()

    assert figures(accounts) == (0, 0, 2, 2, 0, 0)


def test_a_block_counts_with_the_size_that_was_asked_and_the_pool_with_what_it_holds(sim):
    allocator = al.get_allocator("mempool", "cuda:0")
    ptr = allocator.allocate(100)
    stats = allocator.statistics()
    assert (stats.current, stats.live) == (100, 1)
    assert stats.reserved >= 512
    allocator.deallocate(ptr, 100)
    held = allocator.statistics()
    assert (held.current, held.live) == (0, 0)
    assert held.reserved == stats.reserved == held.peak_reserved
    allocator.trim()
    assert allocator.statistics().reserved == 0
    allocator.reset_peak()

    assert allocator.statistics().peak_reserved == 0


def test_without_figures_of_its_own_an_allocator_holds_what_it_handed_out(accounts):
    accounts.allocate(100)
    stats = accounts.statistics()

    assert (stats.reserved, stats.peak_reserved) == (100, 100)


def test_accounts_read_as_what_they_are(accounts, fake):
    accounts.allocate(1000)

    assert repr(accounts) == f"<allocator '{type(fake).__name__}' on 'cuda:0': 1,000 bytes in 1 blocks>"


# ---------------------------------------------------------------------------------------------------------------------
# What an allocator offers


def test_an_allocator_that_keeps_nothing_trims_nothing(accounts):
    assert accounts.trim() == 0
    with pytest.raises(ValueError, match="size"):
        accounts.trim(-1)


def test_closing_with_live_blocks_is_refused(sim):
    allocator = al.get_allocator("mempool", "cuda:0")
    ptr = allocator.allocate(100)
    with pytest.raises(al.UnsupportedError, match="1 blocks with 100 bytes are live"):
        allocator.close()
    allocator.deallocate(ptr, 100)
    allocator.close()

    assert len(sim.calls.named("destroy_pool")) == 1


def test_declared_traits_are_taken_and_a_kind_as_in_warp_too(sim):
    class AsInWarp(Fake):
        memory_kind = al.MemoryKind.CUDA_MANAGED

    class NotAKind(Fake):
        memory_kind = 5

    assert account(AsInWarp(), al.get_device("cuda:0"), "x").memory_kind is al.MemoryKind.CUDA_MANAGED
    assert account(NotAKind(), al.get_device("cuda:0"), "x").memory_kind is al.MemoryKind.UNKNOWN
    assert account(Fake(), al.get_device("cpu"), "x").memory_kind is al.MemoryKind.HOST
    assert al.get_allocator("mempool", "cuda:0").traits.stream_ordered


# ---------------------------------------------------------------------------------------------------------------------
# The right device


def test_calls_are_made_under_the_device_and_the_one_before_is_restored(sim):
    allocator = al.get_allocator("default", "cuda:1")
    ptr = allocator.allocate(100)
    assert sim.current_device() == 0
    allocator.deallocate(ptr, 100)

    assert [call.device for call in sim.calls.named("malloc", "free")] == [1, 1]
    assert (sim.current_device(), sim.contexts()) == (0, {1})


@pytest.mark.parametrize("name", ["default", "mempool", "managed"])
def test_dropping_an_array_under_another_device_frees_it_under_its_own(sim, name):
    al.set_cuda_allocator(name)
    array = al.empty(MIB, np.uint8, device="cuda:0")
    with al.ScopedDevice("cuda:1"):
        sim.calls.clear()
        del array
        assert sim.current_device() == 1
    frees = sim.calls.named("free", "free_async")

    assert [(call.device, call.error) for call in frees if name != "managed"] == [(0, None)] * (name != "managed")
    assert [call.error for call in frees] == [None]
    stats = al.memory_stats()
    assert stats["cuda:0"][name].current == 0


def test_a_device_is_restored_after_an_allocator_raised(sim):
    sim.fail("malloc", code="cudaErrorUnknown")
    with pytest.raises(al.PlatformError):
        al.get_allocator("default", "cuda:1").allocate(100)

    assert sim.current_device() == 0


@pytest.mark.parametrize("name", ["default", "mempool", "managed"])
def test_a_device_that_cannot_be_made_current_allocates_nothing_anywhere(sim, name):
    allocator = al.get_allocator(name, "cuda:1")
    sim.fail("switch_device", code="cudaErrorInvalidDevice")
    with pytest.raises(al.PlatformError, match="cudaErrorInvalidDevice"):
        allocator.allocate(1024)

    assert sim.calls.named("malloc", "malloc_managed", "malloc_from_pool") == []
    assert sim.current_device() == 0
    assert 0 not in sim.contexts()
    assert figures(allocator) == (0, 0, 0, 0, 1, 0)


def test_a_device_that_cannot_be_made_current_for_a_free_keeps_the_block(sim):
    allocator = al.get_allocator("default", "cuda:1")
    ptr = allocator.allocate(1024)
    sim.fail("switch_device", code="cudaErrorInvalidDevice")
    with pytest.raises(al.PlatformError, match="cudaErrorInvalidDevice"):
        allocator.deallocate(ptr, 1024)
    assert sim.calls.named("free") == []
    allocator.deallocate(ptr, 1024)

    assert figures(allocator) == (0, 1024, 1, 1, 0, 1)


def test_an_allocator_that_manages_the_device_itself_is_freed_as_it_is(sim, recording):
    mine = recording()
    mine.deallocate_requires_context_guard = False
    al.set_device_allocator("cuda:1", mine)
    al.empty(4, device="cuda:1")

    assert [call.device for call in sim.calls.named("malloc", "free")] == [1, 0]


def test_in_a_call_the_current_device_and_its_stream_are_those_of_the_array(sim):
    seen = []

    class Asking(Fake):
        def allocate(self, size_in_bytes):
            seen.append((al.get_cuda_device(), al.get_stream()))
            return super().allocate(size_in_bytes)

    al.set_device_allocator("cuda:1", Asking())
    stream = al.Stream("cuda:1")
    with al.ScopedStream(stream):
        al.empty(4, device="cuda:1")

    assert seen == [(al.get_device("cuda:1"), stream)]


# ---------------------------------------------------------------------------------------------------------------------
# Threads and garbage


def run_all(calls, timeout=60):
    """Run calls in threads; a hang is a failure and not a wait."""
    threads = [threading.Thread(target=call, daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"


@pytest.mark.parametrize("name", ["default", "mempool", None])
def test_counters_are_exact_at_rest_and_sane_in_every_snapshot_under_threads(sim, name):
    allocator = al.get_allocator(name, "cuda:0") if name else account(Fake(), al.get_device("cuda:0"), "fake")
    rounds, workers, finished, wrong = 400, 8, threading.Event(), []

    def work():
        for number in range(rounds):
            ptr = allocator.allocate(512)
            if number % 50 == 0:
                with pytest.raises(al.InvalidPointerError):
                    allocator.deallocate(ptr + 1, 512)
            allocator.deallocate(ptr, 512)

    def watch():
        while not finished.is_set():
            stats = allocator.statistics()
            if not 0 <= stats.current <= stats.peak or not stats.current <= stats.reserved <= stats.peak_reserved:
                wrong.append(stats)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        run_all([work] * workers)
    finally:
        finished.set()
        watcher.join()

    assert wrong == []
    total = rounds * workers
    assert figures(allocator)[0] == 0
    assert figures(allocator)[2:] == (total, total, 0, 0)
    assert 512 <= figures(allocator)[1] <= workers * 512


@pytest.fixture
def collected_all_the_time():
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    yield
    gc.set_threshold(*threshold)


class Node:
    """One end of a cycle that holds an array."""

    def __init__(self, array):
        self.array, self.itself = array, self


def test_arrays_in_cycles_are_freed_while_others_are_made(sim, collected_all_the_time):
    def work():
        for _ in range(200):
            Node(al.empty(64, device="cuda:0"))

    run_all([work] * 2)
    gc.collect()
    stats = al.get_allocator(device="cuda:0").statistics()

    assert (stats.current, stats.allocations, stats.frees) == (0, 400, 400)


def test_a_collection_inside_an_allocator_may_free_through_it(sim, recording):
    mine = recording()
    make = mine.allocate

    def collect_and_allocate(size_in_bytes):
        gc.collect()
        return make(size_in_bytes)

    mine.allocate = collect_and_allocate
    al.set_device_allocator("cuda:0", mine)

    def work():
        for _ in range(10):
            Node(al.empty(64, device="cuda:0"))

    run_all([work] * 3)
    gc.collect()
    stats = al.get_allocator(device="cuda:0").statistics()

    assert (stats.current, stats.allocations, stats.frees) == (0, 30, 30)


def test_statistics_may_be_read_in_a_finaliser(sim):
    seen = []

    class Telling:
        def __init__(self):
            self.array, self.itself = al.empty(64), self

        def __del__(self):
            seen.append(al.memory_stats()["cuda:0"]["mempool"].current)

    def work():
        for _ in range(20):
            Telling()
            gc.collect()

    run_all([work])

    assert len(seen) == 20
    assert al.get_allocator().statistics().current == 0


# ---------------------------------------------------------------------------------------------------------------------
# Any sequence of calls


class Model(RuleBasedStateMachine):
    """Accounts against a dictionary of what is live."""

    blocks = Bundle("blocks")
    kind: type[Fake] = Fake

    def __init__(self):
        super().__init__()
        self.simulation = al.simulate("h200")
        self.simulation.__enter__()
        self.fake = self.kind()
        self.accounts = account(self.fake, al.get_device("cuda:0"), "fake")
        self.live, self.peak = {}, 0
        self.allocations = self.frees = self.failed_allocations = self.failed_frees = 0

    def teardown(self):
        self.simulation.__exit__(None, None, None)

    @rule(target=blocks, size=st.integers(1, 10**6))
    def allocate(self, size):
        ptr = self.accounts.allocate(size)
        assert ptr not in self.live
        self.live[ptr] = size
        self.peak = max(self.peak, sum(self.live.values()))
        self.allocations += 1
        return ptr

    @rule(ptr=consumes(blocks))
    def free(self, ptr):
        self.accounts.deallocate(ptr, self.live.pop(ptr))
        self.frees += 1
        with pytest.raises(al.InvalidPointerError):
            self.accounts.deallocate(ptr, 1)

    @rule(ptr=blocks, difference=st.integers(-100, 100).filter(bool))
    def free_with_a_wrong_size(self, ptr, difference):
        with pytest.raises(al.SizeMismatchError):
            self.accounts.deallocate(ptr, self.live[ptr] + difference)

    @rule(ptr=blocks, offset=st.integers(1, 100))
    def free_the_inside(self, ptr, offset):
        with pytest.raises(al.InvalidPointerError):
            self.accounts.deallocate(ptr + offset, self.live[ptr])

    @rule(ptr=blocks)
    def fail_to_free(self, ptr):
        self.fake.free_error = PluginError()
        with pytest.raises(PluginError):
            self.accounts.deallocate(ptr, self.live[ptr])
        self.fake.free_error = None
        self.failed_frees += 1

    @rule(answer=st.sampled_from([None, 0, -1, 1.0, PluginError(), MemoryError()]))
    def fail_to_allocate(self, answer):
        self.fake.answers = [answer]
        with pytest.raises((al.AllocatorContractError, al.OutOfMemoryError, PluginError)):
            self.accounts.allocate(64)
        self.failed_allocations += 1

    @rule(ptr=blocks)
    def hand_out_twice(self, ptr):
        self.fake.answers = [ptr]
        with pytest.raises(al.AllocatorContractError):
            self.accounts.allocate(64)
        self.failed_allocations += 1

    @rule()
    def reset_the_peak(self):
        self.accounts.reset_peak()
        self.peak = sum(self.live.values())

    @rule(size=st.sampled_from([0, -1, 2**63, 1.5, None, True]))
    def ask_for_an_impossible_size(self, size):
        if type(size) is int and size == 0:
            assert self.accounts.allocate(size) == 0
        else:
            with pytest.raises((TypeError, ValueError)):
                self.accounts.allocate(size)

    @invariant()
    def the_books_are_those_of_the_model(self):
        assert figures(self.accounts) == (
            sum(self.live.values()),
            self.peak,
            self.allocations,
            self.frees,
            self.failed_allocations,
            self.failed_frees,
        )
        assert all(self.accounts.is_live(ptr) for ptr in self.live)


class ModelWithStreams(Model):
    kind = FakeWithStreams


limits = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestModel = Model.TestCase
TestModel.settings = limits
TestModelWithStreams = ModelWithStreams.TestCase
TestModelWithStreams.settings = limits


# Whether anything is in between


@pytest.fixture
def caching(sim):
    """Return the account of an allocator that keeps its own."""
    return al.get_allocator("caching", "cuda:0")


@pytest.mark.parametrize("between", [al.measure, lambda: al.ScopedCapture("cuda:0")])
def test_an_account_is_direct_while_nothing_is_in_between(caching, between):
    assert caching.is_direct
    with between():
        assert not caching.is_direct

    assert caching.is_direct


def test_an_account_of_another_s_books_is_never_direct(sim):
    for name in ("default", "mempool", "managed"):
        assert not al.get_allocator(name, "cuda:0").is_direct
    assert not al.get_allocator("caching", "cuda:0", layers=["track"]).is_direct


def test_an_account_that_is_retired_is_not_direct(caching):
    caching.retire(al.ShuttingDownError)

    assert not caching.is_direct


# Memory for a stream that is named


@pytest.mark.parametrize("in_force", [True, False])
def test_memory_for_a_stream_needs_no_scope(sim, in_force):
    mempool, stream, scopes = al.get_allocator("mempool", "cuda:0"), al.Stream("cuda:0"), []
    stream_scope_stack.clear()
    if in_force:
        al.set_stream(stream)
    mempool.interpose(lambda size, stream: scopes.append((stream, stream_scope_stack.get())) or 4096, lambda *_: None)
    mempool.allocate_on(100, stream)

    assert scopes == [(stream, ())]


def test_memory_for_a_stream_is_of_the_pool_in_its_order(sim):
    mempool, stream = al.get_allocator("mempool", "cuda:0"), al.Stream("cuda:0")
    mempool.deallocate(mempool.allocate_on(100, stream), 100)
    streams = [call.arguments["stream"] for call in sim.calls if call.name in ("malloc_from_pool", "free_async")]

    assert streams == [stream.handle, stream.handle]


@pytest.mark.parametrize("between", [nullcontext, al.measure])
@pytest.mark.parametrize("name", ["default", "mempool", "caching", "managed"])
def test_memory_for_a_stream_is_on_the_books(sim, name, between):
    account, stream = al.get_allocator(name, "cuda:0"), al.Stream("cuda:0")
    with between():
        ptr = account.allocate_on(100, stream)
        assert account.blocks() == [(ptr, 100)]
    account.deallocate(ptr, 100)

    assert account.statistics().current == 0


@pytest.mark.parametrize("name", ["default", "mempool", "caching"])
def test_odd_sizes_for_a_stream_mean_what_they_do_without_one(sim, name):
    account, stream = al.get_allocator(name, "cuda:0"), al.Stream("cuda:0")
    assert account.allocate_on(0, stream) == 0
    ptr = account.allocate_on(np.int64(100), stream)
    assert account.blocks() == [(ptr, 100)]
    account.deallocate(ptr, 100)
    for size, error in ((True, TypeError), (1.5, TypeError), (-1, ValueError), (2**62, al.OutOfMemoryError)):
        with pytest.raises(error):
            account.allocate_on(size, stream)

    assert account.statistics().failed_allocations == 1


def test_memory_for_a_stream_is_refused_after_shutdown_began(caching):
    stream = al.Stream("cuda:0")
    caching.retire(al.ShuttingDownError)
    with pytest.raises(al.ShuttingDownError):
        caching.allocate_on(100, stream)


def test_memory_for_a_stream_is_had_while_other_threads_change_what_is_in_between(caching):
    stream, is_over, problems = al.Stream("cuda:0"), threading.Event(), []

    def allocate():
        try:
            while not is_over.is_set():
                caching.deallocate(caching.allocate_on(100, stream), 100)
        except Exception as error:
            problems.append(error)

    thread = threading.Thread(target=allocate)
    thread.start()
    for _ in range(200):
        with al.measure():
            pass
    is_over.set()
    thread.join()

    assert problems == []
