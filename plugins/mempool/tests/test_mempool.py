"""What is particular to the ``mempool`` allocator: its pool, the threshold, the marks, the stream."""

import gc
from weakref import ref

import pytest

import allotment as al
from allotment.platform import PoolAttribute

MIB = 2**20
BLOCK = 32 * MIB  # what a pool of the simulation is mapped in


@pytest.fixture
def mempool(simulated):
    """Return the allocator of the first device."""
    return al.get_allocator("mempool", "cuda:0")


def attribute(account, which):
    return account.device.platform.pool_attribute(account.allocator.pool_handle, which)


def threshold(**options):
    return attribute(al.get_allocator("mempool", "cuda:0", **options), PoolAttribute.RELEASE_THRESHOLD)


# The pool


def test_the_pool_is_its_own_and_the_default_pool_is_never_touched(simulated, mempool):
    mempool.deallocate(mempool.allocate(1000), 1000)
    mempool.trim()
    mempool.reset_peak()
    mempool.close()

    assert simulated.calls.named("default_pool") == []
    assert len(simulated.calls.named("create_pool")) == len(simulated.calls.named("destroy_pool")) == 1


def test_the_shared_pool_is_the_devices_default_pool(simulated):
    account = al.get_allocator("mempool", "cuda:0", share_default_pool=True)

    assert account.allocator.pool_handle == simulated.default_pool(0)
    assert simulated.calls.named("create_pool", "set_pool_attribute") == []


def test_closing_leaves_a_shared_pool_alone(simulated):
    account = al.get_allocator("mempool", "cuda:0", share_default_pool=True)
    account.deallocate(account.allocate(1000), 1000)

    account.close()

    assert simulated.calls.named("destroy_pool") == []


def test_each_device_has_a_pool_of_its_own(simulated):
    first, second = (al.get_allocator("mempool", device) for device in ("cuda:0", "cuda:1"))

    assert first.allocator.pool_handle != second.allocator.pool_handle


def test_a_pool_whose_settings_are_refused_is_given_back(simulated):
    simulated.fail("set_pool_attribute", code="cudaErrorInvalidValue")

    with pytest.raises(al.PlatformError, match="InvalidValue"):
        al.get_allocator("mempool", "cuda:0")

    assert len(simulated.calls.named("destroy_pool")) == 1


# The release threshold


def test_by_default_the_pool_keeps_all_idle_memory(simulated):
    assert threshold() == al.get_device("cuda:0").total_memory


@pytest.mark.parametrize(
    ("said", "nbytes"),
    [(0, 0), (0.5, 75_054_940_160), (1, 150_109_880_320), (4096, 4096), ("2 GiB", 2 * 2**30), ("25%", 37_527_470_080)],
)
def test_the_threshold_is_a_fraction_bytes_or_text(simulated, said, nbytes):
    assert threshold(release_threshold=said) == nbytes


def test_the_threshold_of_a_shared_pool_is_left_alone_unless_it_is_said(simulated):
    simulated.set_pool_attribute(simulated.default_pool(0), PoolAttribute.RELEASE_THRESHOLD, 64 * MIB)

    assert threshold(share_default_pool=True) == 64 * MIB
    assert threshold(share_default_pool=True, release_threshold="1 GiB") == 2**30


@pytest.mark.parametrize("said", ["a lot", 1.5, "-3 MB", float("nan"), [1], True])
def test_a_threshold_that_cannot_be_read_is_refused(simulated, said):
    with pytest.raises(al.ConfigError, match=r"allocators\.mempool\.release_threshold"):
        al.get_allocator("mempool", "cuda:0", release_threshold=said)

    assert simulated.calls.named("create_pool") == []


def test_memory_up_to_the_threshold_stays_when_the_device_is_synchronised(simulated):
    account = al.get_allocator("mempool", "cuda:0", release_threshold=2 * BLOCK)
    account.deallocate(account.allocate(4 * BLOCK), 4 * BLOCK)

    account.device.synchronize()

    assert account.statistics().reserved == 2 * BLOCK


def test_memory_that_is_kept_is_not_mapped_again(simulated, mempool):
    for _ in range(5):
        mempool.deallocate(mempool.allocate(BLOCK), BLOCK)
        mempool.device.synchronize()

    assert mempool.statistics().peak_reserved == BLOCK


# Used, reserved, and their marks


def test_used_and_reserved_are_told_apart(mempool):
    ptr = mempool.allocate(1000)

    assert mempool.statistics().current == 1000
    assert mempool.statistics().reserved == BLOCK
    assert attribute(mempool, PoolAttribute.USED_CURRENT) == 1000
    mempool.deallocate(ptr, 1000)
    assert attribute(mempool, PoolAttribute.USED_CURRENT) == 0
    assert mempool.statistics().reserved == BLOCK


def test_the_high_marks_stay_until_they_are_reset(mempool):
    mempool.deallocate(mempool.allocate(3 * BLOCK), 3 * BLOCK)
    mempool.trim()

    assert (mempool.statistics().peak, mempool.statistics().peak_reserved) == (3 * BLOCK, 3 * BLOCK)
    assert attribute(mempool, PoolAttribute.USED_HIGH) == 3 * BLOCK
    mempool.reset_peak()
    assert (mempool.statistics().peak, mempool.statistics().peak_reserved) == (0, 0)
    assert attribute(mempool, PoolAttribute.USED_HIGH) == 0


def test_trim_waits_and_gives_all_idle_memory_back(simulated, mempool):
    kept = mempool.allocate(1000)
    mempool.deallocate(mempool.allocate(4 * BLOCK), 4 * BLOCK)

    assert mempool.trim() == 4 * BLOCK
    assert mempool.statistics().reserved == BLOCK
    assert [call.name for call in simulated.calls.named("synchronize_device", "trim_pool")] == [
        "synchronize_device",
        "trim_pool",
    ]
    mempool.deallocate(kept, 1000)


def test_trim_keeps_what_it_is_told_to(mempool):
    mempool.deallocate(mempool.allocate(4 * BLOCK), 4 * BLOCK)

    assert mempool.trim(2 * BLOCK) == 2 * BLOCK
    assert mempool.statistics().reserved == 2 * BLOCK


def test_trim_does_not_wait_where_there_is_nothing_to_give_back(simulated, mempool):
    mempool.deallocate(mempool.allocate(BLOCK), BLOCK)

    assert mempool.trim(BLOCK) == 0
    assert simulated.calls.named("synchronize_device", "trim_pool") == []


def test_closing_gives_the_pools_memory_back_to_the_device(mempool):
    free = mempool.device.free_memory
    mempool.deallocate(mempool.allocate(4 * BLOCK), 4 * BLOCK)
    assert mempool.device.free_memory == free - 4 * BLOCK

    mempool.close()

    assert mempool.device.free_memory == free


# Requests that cannot be met


def test_more_than_the_device_has_is_refused_before_the_driver_is_asked(simulated, mempool):
    with pytest.raises(al.OutOfMemoryError, match="more than the device has"):
        mempool.allocate(mempool.device.total_memory + 1)

    assert simulated.calls.named("malloc_from_pool") == []


def test_idle_memory_of_another_pool_is_no_obstacle(simulated, mempool):
    other = al.get_allocator("mempool", "cuda:0", release_threshold="100%")
    size = 100 * 2**30
    other.deallocate(other.allocate(size), size)

    mempool.deallocate(mempool.allocate(size), size)


# Streams


def test_a_block_is_freed_on_the_stream_of_its_allocation(simulated, mempool):
    made_on, other = al.Stream("cuda:0"), al.Stream("cuda:0")
    with al.ScopedStream(made_on):
        ptr = mempool.allocate(1000)

    with al.ScopedStream(other):
        mempool.deallocate(ptr, 1000)

    assert [call.arguments["stream"] for call in simulated.calls.named("malloc_from_pool", "free_async")] == [
        made_on.handle,
        made_on.handle,
    ]


def test_an_array_keeps_its_stream_alive_until_it_is_freed(simulated, mempool):
    stream = al.Stream("cuda:0")
    watched, handle = ref(stream), stream.handle
    with al.ScopedStream(stream), al.ScopedAllocator("cuda:0", mempool):
        array = al.empty(1000, device="cuda:0")

    del stream
    gc.collect()
    assert watched() is not None
    del array
    gc.collect()

    assert watched() is None
    names = [(call.name, call.arguments["stream"]) for call in simulated.calls.named("free_async", "destroy_stream")]
    assert names == [("free_async", handle), ("destroy_stream", handle)]


def test_a_stream_that_was_closed_meanwhile_is_replaced_by_the_null_stream(simulated, mempool):
    stream = al.Stream("cuda:0")
    with al.ScopedStream(stream):
        ptr = mempool.allocate(1000)

    stream.close()
    mempool.deallocate(ptr, 1000)

    assert simulated.calls.named("free_async")[0].arguments["stream"] == 0


def test_a_block_is_not_given_to_another_stream_while_its_work_is_queued(simulated, mempool):
    first, second = (al.Stream("cuda:0", non_blocking=True) for _ in range(2))
    with al.ScopedStream(first, sync_enter=False):
        ptr = mempool.allocate(1000)

    with simulated.delayed(first.handle):
        simulated.fill(ptr, 1, 1000, first.handle, 0)
        mempool.deallocate(ptr, 1000)
        with al.ScopedStream(second, sync_enter=False):
            other = mempool.allocate(1000)

    assert other != ptr
    mempool.deallocate(other, 1000)


# Where it can be used


@pytest.mark.parametrize("simulated", ["no-pools"], indirect=True)
def test_a_device_without_pools_is_refused_with_the_way_out(simulated):
    with pytest.raises(al.PluginUnavailableError, match="does not support memory pools; use allocator 'default'"):
        al.get_allocator("mempool", "cuda:0")

    assert simulated.calls.named("create_pool", "default_pool") == []


def test_the_host_is_refused(simulated):
    with pytest.raises(al.PluginUnavailableError, match="feature of CUDA devices"):
        al.get_allocator("mempool", "cpu")


@pytest.mark.gpu
def test_a_real_device_keeps_what_the_threshold_says(isolated):
    al.init(platform="cuda", quiet=True)
    account = al.get_allocator("mempool", "cuda:0", release_threshold="64 MiB")
    account.deallocate(account.allocate(256 * MIB), 256 * MIB)

    account.device.synchronize()

    assert account.statistics().reserved <= 64 * MIB
    assert account.trim() >= 0
    assert account.statistics().reserved == 0
    account.close()
