"""A limit on what is handed out: of one device, shared over accounts and devices, and under threads."""

from __future__ import annotations

import threading

import pytest

import allotment as al
from allotment.layers.limit import Budget, LockedBudget

MIB = 2**20


def limited(name="mempool", device="cuda:0", **said):
    return al.get_allocator(name, device, layers=[{"limit": said}])


def test_what_would_be_above_the_limit_is_out_of_memory_and_says_the_limit(sim):
    account = limited(amount="100 MiB")
    first = account.allocate(60 * MIB)
    with pytest.raises(al.OutOfMemoryError, match="would be added to the 62,914,560 that are handed out") as caught:
        account.allocate(60 * MIB)

    assert (caught.value.limit, caught.value.in_use, caught.value.requested) == (100 * MIB, 60 * MIB, 60 * MIB)
    assert caught.value.free is not None
    account.deallocate(first, 60 * MIB)
    account.deallocate(account.allocate(100 * MIB), 100 * MIB)


def test_a_fraction_is_of_the_devices_memory(sim):
    device = al.get_device("cuda:0")

    assert limited(amount="50%").layers[0].limit == device.total_memory // 2


def test_a_fraction_of_the_host_is_refused(sim):
    with pytest.raises(al.ConfigError, match=r"layers.limit: a limit on the host is in bytes"):
        al.get_allocator("host", "cpu", layers=[{"limit": 0.5}])


def test_all_allocators_of_a_device_count_together_and_devices_apart(sim):
    pool, managed, elsewhere = limited(amount=100), limited("managed", amount=100), limited(device="cuda:1", amount=100)
    pool.allocate(60)
    elsewhere.allocate(100)

    with pytest.raises(al.OutOfMemoryError):
        managed.allocate(60)
    assert managed.allocate(40) > 0


def test_each_account_holds_what_all_use_to_its_own_limit(sim):
    strict, generous = limited(amount=100), limited("managed", amount=200)
    generous.allocate(100)

    with pytest.raises(al.OutOfMemoryError):
        strict.allocate(1)
    assert generous.allocate(100) > 0


def test_a_limit_is_shared_over_devices_under_a_name(sim):
    here, there = (limited(device=device, amount=100, shared="training") for device in ("cuda:0", "cuda:1"))
    ptr = here.allocate(60)
    with pytest.raises(al.OutOfMemoryError, match="by all that share the limit 'training'"):
        there.allocate(60)
    here.deallocate(ptr, 60)

    assert there.allocate(60) > 0


@pytest.mark.parametrize("code", ["cudaErrorMemoryAllocation", "cudaErrorUnknown"])
def test_a_failed_allocation_counts_nothing(sim, code):
    account = limited(amount=100)
    sim.fail("malloc_from_pool", code=code)
    with pytest.raises((al.OutOfMemoryError, al.PlatformError)):
        account.allocate(60)

    assert account.layers[0].budget.used == 0


def test_a_failed_free_goes_on_counting(sim):
    account = limited("default", amount=100)
    ptr = account.allocate(60)
    sim.fail("free", code="cudaErrorUnknown")
    with pytest.raises(al.PlatformError):
        account.deallocate(ptr, 60)
    assert account.layers[0].budget.used == 60
    account.deallocate(ptr, 60)

    assert account.layers[0].budget.used == 0


@pytest.mark.parametrize("kind", [Budget, LockedBudget])
def test_a_limit_shared_by_threads_on_two_devices_is_never_passed(sim, kind):
    al.get_device("cuda:0").registry.budgets["all"] = kind()
    accounts = [limited(device=device, amount=1000, shared="all") for device in ("cuda:0", "cuda:1")]
    budget, seen, failures = accounts[0].layers[0].budget, [], []

    def work(account, seed):
        held = []
        try:
            for step in range(300):
                size = 1 + (seed * 31 + step * 17) % 400
                try:
                    held.append((account.allocate(size), size))
                except al.OutOfMemoryError:
                    while held:
                        account.deallocate(*held.pop())
                seen.append(budget.used)
            while held:
                account.deallocate(*held.pop())
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(accounts[seed % 2], seed)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert 0 <= min(seen) <= max(seen) <= 1000
    assert budget.used == 0
