"""The memory pool of a device as the guides see it: enabled or not, its threshold, what is used of it."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import allotment as al
from allotment import configuration

GIB = 2**30


@pytest.fixture
def device(sim):
    return al.get_device("cuda:0")


@pytest.fixture
def without_pools():
    with al.simulate("no-pools"):
        yield al.get_device("cuda:0")


def built_in(device="cuda:0"):
    return al.get_device_allocator(device).name


# ---------------------------------------------------------------------------------------------------------------------
# Supported and enabled


def test_pools_are_enabled_where_they_are_supported(sim):
    assert [al.is_mempool_supported(each) for each in ("cuda:0", "cuda:1", "cpu", None)] == [True, True, False, True]
    assert [al.is_mempool_enabled(each) for each in ("cuda:0", "cuda:1", "cpu", None)] == [True, True, False, True]


def test_where_pools_are_not_supported_arrays_come_from_plain_memory(without_pools):
    assert (al.is_mempool_supported(without_pools), al.is_mempool_enabled(without_pools)) == (False, False)
    assert al.empty(4).memory_kind is al.MemoryKind.CUDA_DEVICE


def test_pools_can_be_left_disabled_at_the_start():
    with configuration.use(configuration.Configuration.isolated(enable_mempools_at_init=False)), al.simulate("2xh200"):
        assert (al.is_mempool_supported("cuda:0"), al.is_mempool_enabled("cuda:0")) == (True, False)
        assert built_in() == "default"


def test_the_flag_has_no_effect_after_the_start_and_says_so(device):
    with pytest.warns(al.ConfigWarning, match="has no effect"):
        al.config.enable_mempools_at_init = False

    assert al.is_mempool_enabled(device)


def test_the_switch_is_for_one_device_and_leaves_arrays_alone(sim):
    array = al.empty(4)
    al.set_mempool_enabled("cuda:0", False)

    assert (al.is_mempool_enabled("cuda:0"), al.is_mempool_enabled("cuda:1")) == (False, True)
    assert (built_in("cuda:0"), built_in("cuda:1")) == ("default", "mempool")
    assert (array.memory_kind, array.allocator.name) == (al.MemoryKind.CUDA_MEMPOOL, "mempool")


def test_switching_back_gives_the_identical_allocator(device):
    pool = al.get_device_allocator(device)
    al.set_mempool_enabled(device, False)
    al.set_mempool_enabled(device, True)

    assert al.get_device_allocator(device) is pool


def test_the_switch_under_a_custom_allocator_takes_effect_when_that_is_removed(device, recording):
    mine = recording()
    al.set_device_allocator(device, mine)
    al.set_mempool_enabled(device, False)
    assert al.get_device_allocator(device) is mine
    al.set_device_allocator(device, None)

    assert built_in() == "default"


def test_the_switch_leaves_a_configured_allocator_alone(device):
    al.configure(allocator="managed")
    al.set_mempool_enabled(device, False)

    assert built_in() == "managed"


@pytest.mark.parametrize(
    "enter", [lambda device, enable: al.ScopedMempool(device, enable).__enter__(), al.set_mempool_enabled]
)
def test_enabling_a_pool_that_cannot_be_is_refused_and_disabling_it_is_silent(without_pools, enter):
    with pytest.raises(al.UnsupportedError, match="'cuda:0' does not support memory pools"):
        enter("cuda:0", True)
    with pytest.raises(ValueError, match="'cpu' has none"):
        enter("cpu", True)
    al.set_mempool_enabled("cuda:0", False)
    al.set_mempool_enabled("cpu", False)
    with al.ScopedMempool("cpu", False), al.ScopedMempool("cuda:0", False):
        assert not al.is_mempool_enabled("cuda:0")


# ---------------------------------------------------------------------------------------------------------------------
# Scopes


def test_a_scope_switches_and_restores(device):
    with al.ScopedMempool(device, False) as entered:
        assert entered is None
        assert (al.is_mempool_enabled(device), built_in()) == (False, "default")
        array = al.empty(4)
    assert (al.is_mempool_enabled(device), built_in()) == (True, "mempool")
    assert array.memory_kind is al.MemoryKind.CUDA_DEVICE


def test_a_scope_restores_after_an_exception(device):
    with pytest.raises(ZeroDivisionError), al.ScopedMempool(device, False):
        _ = 1 / 0

    assert al.is_mempool_enabled(device)


def test_scopes_nest_are_entered_again_and_are_left_in_any_order(device):
    off, on = al.ScopedMempool(device, False), al.ScopedMempool(device, True)
    with off, on, off:
        assert built_in() == "default"
    off.__enter__()
    on.__enter__()
    off.__exit__(None, None, None)
    assert built_in() == "mempool"
    on.__exit__(None, None, None)

    assert built_in() == "mempool"


def test_a_scope_does_not_reach_other_threads(device):
    seen = []
    with al.ScopedMempool(device, False):
        thread = threading.Thread(target=lambda: seen.append((al.is_mempool_enabled(device), built_in())))
        thread.start()
        thread.join()

    assert seen == [(True, "mempool")]


def test_the_switch_inside_a_scope_counts_after_it(device):
    with al.ScopedMempool(device, True):
        al.set_mempool_enabled(device, False)
        assert built_in() == "mempool"
    assert built_in() == "default"


def test_a_scope_changes_nothing_under_a_custom_allocator(device, recording):
    mine = recording()
    al.set_device_allocator(device, mine)
    with al.ScopedMempool(device, False):
        assert al.get_device_allocator(device) is mine
        with al.ScopedAllocator(device, None):
            assert built_in() == "default"
    with al.ScopedMempool(device, False), al.ScopedAllocator(device, mine):
        assert al.get_device_allocator(device) is mine


def test_a_scope_leaves_a_configured_allocator_alone(device):
    al.configure(allocator="managed")
    with al.ScopedMempool(device, False):
        assert built_in() == "managed"


# ---------------------------------------------------------------------------------------------------------------------
# The release threshold


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        (42000, 42000),
        (GIB, GIB),
        (0, 0),
        (-5, 0),
        (-0.5, 0),
        ("2 GiB", 2 * GIB),
        (1e9, 10**9),
        (np.int64(4096), 4096),
        (np.float64(2.0), 2),
        (al.MemoryAmount(nbytes=7), 7),
    ],
)
def test_the_threshold_is_set_in_bytes(device, threshold, expected):
    al.set_mempool_release_threshold(device, threshold)

    assert al.get_mempool_release_threshold(device) == expected


@pytest.mark.parametrize(
    ("threshold", "fraction"), [(0.5, 0.5), (1.0, 1), (1, 1), ("50%", 0.5), (np.float32(0.25), 0.25)]
)
def test_up_to_one_the_threshold_is_a_fraction_of_the_total_memory(device, threshold, fraction):
    al.set_mempool_release_threshold(device, threshold)

    assert al.get_mempool_release_threshold(device) == int(fraction * device.total_memory)


@pytest.mark.parametrize("threshold", [1.5, float("nan"), float("inf"), 2**63, "lots", "2 QiB"])
def test_a_threshold_that_is_no_amount_is_a_value_error_and_changes_nothing(device, threshold):
    before = al.get_mempool_release_threshold(device)
    with pytest.raises(ValueError, match=r"finite|neither a fraction|above the largest|not a size"):
        al.set_mempool_release_threshold(device, threshold)

    assert al.get_mempool_release_threshold(device) == before


@pytest.mark.parametrize("threshold", [None, True, [1], object()])
def test_a_threshold_that_is_no_number_is_a_type_error(device, threshold):
    with pytest.raises(TypeError, match="an amount of memory"):
        al.set_mempool_release_threshold(device, threshold)


def test_a_threshold_is_for_one_device_and_leaves_the_pool_of_the_process_alone(sim):
    al.set_mempool_release_threshold("cuda:1", 4096)

    assert al.get_mempool_release_threshold("cuda:0") != 4096
    assert [sim.pool_attribute(sim.default_pool(each), al.PoolAttribute.RELEASE_THRESHOLD) for each in (0, 1)] == [0, 0]


def test_the_threshold_decides_what_is_kept_at_the_next_wait(device):
    al.set_mempool_release_threshold(device, 0)
    array = al.empty(GIB, np.uint8)
    del array
    al.synchronize_device(device)
    assert al.get_allocator("mempool", device).statistics().reserved == 0

    al.set_mempool_release_threshold(device, 1.0)
    array = al.empty(GIB, np.uint8)
    del array
    al.synchronize_device(device)

    assert al.get_allocator("mempool", device).statistics().reserved >= GIB


# ---------------------------------------------------------------------------------------------------------------------
# What is used


def test_used_memory_follows_what_lives_and_the_high_mark_stays(device):
    assert (al.get_mempool_used_mem_current(device), al.get_mempool_used_mem_high(device)) == (0, 0)
    first, second = al.empty(2**20, np.uint8), al.empty(2**20, np.uint8)
    assert al.get_mempool_used_mem_current(device) >= 2 * 2**20
    high = al.get_mempool_used_mem_high(device)
    del first, second

    assert al.get_mempool_used_mem_current() == 0
    assert al.get_mempool_used_mem_high() == high >= 2 * 2**20


def test_memory_of_another_allocator_is_not_counted(device):
    with al.ScopedAllocator(device, "default"):
        array = al.empty(2**20, np.uint8)
    assert al.get_mempool_used_mem_current(device) == 0
    del array


def test_trimming_gives_idle_memory_back_and_says_how_much(device):
    array = al.empty(GIB, np.uint8)
    assert al.trim_mempool(device) == 0
    del array
    al.synchronize()

    assert al.trim_mempool(device, GIB) == 0
    assert al.trim_mempool(device) == GIB
    assert al.get_allocator("mempool", device).statistics().reserved == 0


@pytest.mark.parametrize("keep_bytes", [-1, 2**63])
def test_trimming_to_an_impossible_size_is_a_value_error(device, keep_bytes):
    with pytest.raises(ValueError, match="size"):
        al.trim_mempool(device, keep_bytes)


QUESTIONS = [
    lambda device: al.set_mempool_release_threshold(device, 0),
    al.get_mempool_release_threshold,
    al.get_mempool_used_mem_current,
    al.get_mempool_used_mem_high,
    al.trim_mempool,
]


@pytest.mark.parametrize("ask", QUESTIONS)
def test_what_is_about_a_pool_is_refused_where_there_is_none(without_pools, ask):
    with pytest.raises(ValueError, match="'cpu' has none"):
        ask("cpu")
    with pytest.raises(al.UnsupportedError, match="'cuda:0' does not support memory pools"):
        ask("cuda:0")
    with pytest.raises(al.DeviceNotFoundError):
        ask("cuda:5")


@pytest.mark.parametrize("ask", QUESTIONS)
def test_asking_about_a_pool_opens_no_context_of_another_device(sim, ask):
    ask("cuda:1")

    assert sim.contexts() <= {1}


def test_a_driver_that_refuses_is_heard(device):
    al.get_mempool_release_threshold(device)
    device.platform.fail("set_pool_attribute", code="cudaErrorInvalidValue")
    with pytest.raises(al.PlatformError, match="cudaErrorInvalidValue"):
        al.set_mempool_release_threshold(device, 0)
