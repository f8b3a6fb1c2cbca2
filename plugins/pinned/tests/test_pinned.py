"""What is particular to the ``pinned`` allocator: the cache, and blocks that work in flight still uses."""

import numpy as np
import pytest

import allotment as al

MIB = 2**20
PAGE = 4096


@pytest.fixture
def pinned(simulated):
    """Return a function that gives the allocator with the given options."""
    return lambda **options: al.get_allocator("pinned", "cpu", **options)


@pytest.fixture
def stream(simulated):
    return al.Stream("cuda:0", non_blocking=True)


def locked(simulated):
    """Return how many blocks were page-locked so far, and how many unlocked."""
    return len(simulated.calls.named("host_alloc")), len(simulated.calls.named("host_free"))


def cycle(account, size):
    ptr = account.allocate(size)
    account.deallocate(ptr, size)
    return ptr


# The cache


def test_a_block_is_reused(simulated, pinned):
    account = pinned()

    assert cycle(account, 70_000) == cycle(account, 70_000)
    assert locked(simulated) == (1, 0)


def test_a_block_of_nearly_the_size_is_reused(simulated, pinned):
    account = pinned()
    ptr = cycle(account, 80 * PAGE)

    assert cycle(account, 72 * PAGE) == ptr
    assert cycle(account, 60 * PAGE) != ptr
    assert cycle(account, 81 * PAGE) != ptr


def test_the_smallest_block_that_fits_is_reused(simulated, pinned):
    account = pinned()
    larger, smaller = account.allocate(80 * PAGE), account.allocate(78 * PAGE)
    account.deallocate(larger, 80 * PAGE)
    account.deallocate(smaller, 78 * PAGE)

    assert cycle(account, 77 * PAGE) == smaller


@pytest.mark.parametrize("size", [1, PAGE, PAGE + 1, 130 * MIB, 130 * MIB + 1, 5 * 2**30 + 1])
def test_rounding_takes_less_than_a_page(pinned, size):
    account = pinned()
    ptr = account.allocate(size)

    assert 0 <= account.statistics().reserved - size < PAGE
    account.deallocate(ptr, size)


def test_idle_memory_beyond_the_limit_goes_back_the_longest_idle_first(simulated, pinned):
    account = pinned(cache_limit="3 MiB")
    blocks = [account.allocate(MIB) for _ in range(5)]

    for ptr in blocks:
        account.deallocate(ptr, MIB)

    assert [call.arguments["ptr"] for call in simulated.calls.named("host_free")] == blocks[:2]
    assert account.statistics().reserved == 3 * MIB


def test_a_block_above_the_limit_is_not_kept_and_does_not_empty_the_cache(simulated, pinned):
    account = pinned(cache_limit="3 MiB")
    small, large = account.allocate(MIB), account.allocate(4 * MIB)
    account.deallocate(small, MIB)

    account.deallocate(large, 4 * MIB)

    assert [call.arguments["ptr"] for call in simulated.calls.named("host_free")] == [large]


def test_a_limit_of_zero_keeps_nothing(simulated, pinned):
    account = pinned(cache_limit=0)

    cycle(account, MIB)

    assert locked(simulated) == (1, 1)
    assert account.statistics().reserved == 0


@pytest.mark.parametrize("said", [0.5, 1, "50%", "a lot"])
def test_a_limit_that_is_no_size_is_refused(pinned, said):
    with pytest.raises(al.ConfigError, match=r"allocators\.pinned\.cache_limit"):
        pinned(cache_limit=said)


def test_trim_gives_idle_blocks_back_and_keeps_what_it_is_told_to(simulated, pinned):
    account = pinned()
    kept = account.allocate(MIB)
    idle = [account.allocate(MIB) for _ in range(4)]
    for ptr in idle:
        account.deallocate(ptr, MIB)

    assert account.trim(3 * MIB) == 2 * MIB
    assert account.trim() == 2 * MIB
    assert account.statistics().reserved == MIB
    account.deallocate(kept, MIB)


def test_a_block_whose_return_fails_stays_in_the_cache(simulated, pinned):
    account = pinned(cache_limit="1 MiB")
    first, second = account.allocate(MIB), account.allocate(MIB)
    account.deallocate(first, MIB)
    simulated.fail("host_free", code="cudaErrorUnknown")

    with pytest.raises(al.PlatformError, match="cudaErrorUnknown"):
        account.deallocate(second, MIB)

    assert account.is_live(second)
    assert account.statistics().reserved == 2 * MIB
    account.deallocate(second, MIB)
    assert account.trim() == MIB
    assert locked(simulated) == (2, 3)  # one of the three failed


# The system refuses


def test_the_cache_is_given_back_when_the_system_refuses_and_the_request_repeated(simulated, pinned):
    account = pinned()
    cycle(account, MIB)
    simulated.fail("host_alloc")

    ptr = account.allocate(20 * MIB)

    assert [call.name for call in simulated.calls.named("host_alloc", "host_free")] == [
        "host_alloc",
        "host_alloc",
        "host_free",
        "host_alloc",
    ]
    assert account.statistics().reserved == 20 * MIB
    account.deallocate(ptr, 20 * MIB)


def test_without_a_cache_the_request_is_not_repeated(simulated, pinned):
    simulated.fail("host_alloc")

    with pytest.raises(al.OutOfMemoryError):
        pinned().allocate(MIB)

    assert locked(simulated) == (1, 0)


def test_another_failure_gives_nothing_back(simulated, pinned):
    account = pinned()
    cycle(account, MIB)
    simulated.fail("host_alloc", code="cudaErrorUnknown")

    with pytest.raises(al.PlatformError, match="cudaErrorUnknown"):
        account.allocate(20 * MIB)

    assert account.statistics().reserved == MIB


# Work in flight


def test_the_source_of_a_copy_may_be_dropped_while_the_copy_is_queued(simulated, stream):
    target = al.empty(1000, "u1", device="cuda:0")
    source = al.full(1000, 7, "u1", device="cpu", pinned=True)
    ptr = source.ptr

    with simulated.delayed(stream.handle):
        with al.ScopedStream(stream, sync_enter=False):
            al.copy(target, source)
        del source
        other = al.full(1000, 9, "u1", device="cpu", pinned=True)
        assert other.ptr != ptr

    stream.synchronize()
    assert (target.numpy() == 7).all()


def test_a_block_freed_behind_queued_work_is_not_handed_out(simulated, pinned, stream):
    account = pinned()
    ptr = account.allocate(MIB)

    with simulated.delayed(stream.handle):
        simulated.launch(lambda: None, stream.handle, 0)
        account.record_use(ptr, stream)
        account.deallocate(ptr, MIB)
        assert cycle(account, MIB) != ptr

    assert ptr in {account.allocate(MIB), account.allocate(MIB)}


def test_uses_by_several_streams_are_all_waited_for(simulated, pinned, stream):
    account, other = pinned(), al.Stream("cuda:1", non_blocking=True)
    ptr = account.allocate(MIB)

    with simulated.delayed(other.handle):
        simulated.launch(lambda: None, other.handle, 1)
        for each in (stream, other, other):
            account.record_use(ptr, each)
        account.deallocate(ptr, MIB)
        assert cycle(account, MIB) != ptr

    assert len(simulated.calls.named("create_event")) == 2


def test_events_are_given_back(simulated, pinned, stream):
    account = pinned()
    for _ in range(3):
        ptr = account.allocate(MIB)
        account.record_use(ptr, stream)
        account.deallocate(ptr, MIB)
    account.trim()

    assert len(simulated.calls.named("create_event")) == len(simulated.calls.named("destroy_event")) == 3


def test_an_event_that_cannot_be_recorded_leaves_the_block_live(simulated, pinned, stream):
    account = pinned()
    ptr = account.allocate(MIB)
    account.record_use(ptr, stream)
    simulated.fail("record_event", code="cudaErrorUnknown")

    with pytest.raises(al.PlatformError, match="cudaErrorUnknown"):
        account.deallocate(ptr, MIB)

    assert account.is_live(ptr)
    assert len(simulated.calls.named("destroy_event")) == 1
    account.deallocate(ptr, MIB)


def test_a_stream_that_was_closed_needs_no_waiting(simulated, pinned, stream):
    account = pinned()
    ptr = account.allocate(MIB)
    account.record_use(ptr, stream)
    stream.close()

    account.deallocate(ptr, MIB)

    assert cycle(account, MIB) == ptr
    assert simulated.calls.named("create_event") == []


def test_trim_waits_for_the_work_and_gives_the_block_back(simulated, pinned, stream):
    account, done = pinned(), []
    ptr = account.allocate(MIB)
    with simulated.delayed(stream.handle):
        simulated.launch(lambda: done.append(True), stream.handle, 0)
        account.record_use(ptr, stream)
        account.deallocate(ptr, MIB)

        assert account.trim() == MIB
        assert done == [True]


def test_a_loop_of_uploads_stays_within_the_blocks_in_flight_and_the_cache(simulated, pinned, stream):
    account, size = pinned(cache_limit="8 MiB"), 4 * MIB

    for number in range(200):
        ptr = account.allocate(size)
        account.record_use(ptr, stream)
        account.deallocate(ptr, size)
        if number % 20 == 0:
            stream.synchronize()

    assert account.statistics().peak_reserved <= 8 * MIB + 20 * size
    assert account.trim() <= 8 * MIB + 20 * size
    assert account.statistics().reserved == 0


def test_finished_blocks_beyond_the_limit_go_back_with_the_next_allocation(simulated, pinned, stream):
    account = pinned(cache_limit="1 MiB")
    blocks = [account.allocate(MIB) for _ in range(4)]
    with simulated.delayed(stream.handle):
        simulated.launch(lambda: None, stream.handle, 0)
        for ptr in blocks:
            account.record_use(ptr, stream)
            account.deallocate(ptr, MIB)
        assert account.statistics().reserved == 4 * MIB

    cycle(account, MIB)

    assert account.statistics().reserved == MIB


# Arrays, devices


def test_pinned_arrays_of_the_host_draw_from_it(simulated):
    array = al.zeros(100, "f4", device="cpu", pinned=True)

    assert array.memory_kind is al.MemoryKind.PINNED
    assert simulated.pointer_attributes(array.ptr).kind is al.MemoryKind.PINNED
    assert (array.numpy() == np.float32(0)).all()


def test_one_cache_serves_copies_of_all_devices(simulated):
    array = al.full(100, 3, "f4", device="cpu", pinned=True)

    for device in al.get_cuda_devices():
        assert (array.to(device).numpy() == np.float32(3)).all()


def test_a_cuda_device_is_refused(simulated):
    with pytest.raises(al.PluginUnavailableError, match="it serves device 'cpu'"):
        al.get_allocator("pinned", "cuda:0")


def test_a_machine_without_a_cuda_device_is_refused_with_the_reason(isolated):
    al.init(platform="host", quiet=True)

    with pytest.raises(al.PluginUnavailableError, match="no CUDA device to lock pages for"):
        al.get_allocator("pinned", "cpu")


@pytest.mark.gpu
def test_a_real_copy_survives_the_drop_of_its_source(isolated):
    al.init(platform="cuda", quiet=True)
    target, stream = al.empty(2**22, "u1", device="cuda:0"), al.Stream("cuda:0", non_blocking=True)

    for value in range(20):
        source = al.full(2**22, value, "u1", device="cpu", pinned=True)
        with al.ScopedStream(stream, sync_enter=False):
            al.copy(target, source)
        del source
        al.full(2**22, 255, "u1", device="cpu", pinned=True)
        stream.synchronize()
        assert (target.numpy() == value).all()
