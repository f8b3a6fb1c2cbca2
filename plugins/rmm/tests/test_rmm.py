"""The ``rmm`` allocator: which resource of RMM it draws from, on which device and stream, and what it declares."""

import sys

import pytest

import allotment as al

GIB = 2**30


def get(device="cuda:0", **options):
    return al.get_allocator("rmm", device, **options)


# Which resource


def test_by_default_it_is_the_one_that_is_current_when_the_allocator_is_made(rmm):
    with al.ScopedDevice("cuda:1"):
        current = rmm.mr.ManagedMemoryResource()
    rmm.mr.set_per_device_resource(1, current)
    account = get("cuda:1")
    rmm.mr.set_per_device_resource(1, None)

    assert account.allocator.resource is current
    assert account.memory_kind is al.MemoryKind.CUDA_MANAGED


def test_what_is_current_is_judged_by_what_it_draws_from_in_the_end(rmm):
    with al.ScopedDevice("cuda:0"):
        pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource())
        rmm.mr.set_per_device_resource(0, rmm.mr.StatisticsResourceAdaptor(pool))

    assert get().memory_kind is al.MemoryKind.CUDA_DEVICE


@pytest.mark.parametrize(
    ("name", "kind", "memory"),
    [
        ("cuda", "CudaMemoryResource", "CUDA_DEVICE"),
        ("async", "CudaAsyncMemoryResource", "CUDA_MEMPOOL"),
        ("managed", "ManagedMemoryResource", "CUDA_MANAGED"),
        ("pool", "PoolMemoryResource", "CUDA_DEVICE"),
        ("arena", "ArenaMemoryResource", "CUDA_DEVICE"),
        ("binning", "BinningMemoryResource", "CUDA_DEVICE"),
    ],
)
def test_a_resource_of_its_own_is_chosen_by_name(rmm, name, kind, memory):
    account = get(resource=name)

    assert type(account.allocator.resource).__name__ == kind
    assert account.memory_kind is al.MemoryKind[memory]
    account.deallocate(account.allocate(1000), 1000)
    assert account.allocator.resource.calls == [("allocate", 1000, 0), ("deallocate", 1000, 0)]


@pytest.mark.parametrize("name", ["pool", "arena", "binning"])
def test_it_may_be_made_of_managed_memory(rmm, name):
    account = get(resource=name, upstream="managed")

    assert account.memory_kind is al.MemoryKind.CUDA_MANAGED


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"resource": "pool"}, (None, None)),
        ({"resource": "pool", "initial_size": "1 GiB", "maximum_size": "2 GiB"}, (GIB, 2 * GIB)),
        ({"resource": "pool", "initial_size": 1000}, (1024, None)),
        ({"resource": "arena", "initial_size": "25%"}, (37_527_470_080,)),
        ({"resource": "async", "release_threshold": "1 GiB"}, (None, GIB)),
    ],
)
def test_sizes_are_given_as_rmm_takes_them(rmm, options, sizes):
    assert get(**options).allocator.resource.sizes == sizes


@pytest.mark.parametrize(
    ("options", "exponents"),
    [
        ({}, (16, 20)),
        ({"smallest_bin": "256 KiB", "largest_bin": "4 MiB"}, (18, 22)),
        ({"smallest_bin": 1000}, (10, 20)),
    ],
)
def test_bins_are_powers_of_two_over_a_pool(rmm, options, exponents):
    resource = get(resource="binning", initial_size="1 GiB", **options).allocator.resource

    assert (resource.exponents, resource.get_upstream().sizes) == (exponents, (GIB, None))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"maximum_size": "1 GiB"}, "concerns the resources 'pool', 'binning', and the resource is 'current'"),
        ({"resource": "cuda", "initial_size": 1024}, "and the resource is 'cuda'"),
        ({"resource": "managed", "upstream": "cuda"}, "upstream concerns"),
        ({"resource": "pooled"}, "pool"),
        ({"resource": "pool", "initial_size": "much"}, "initial_size"),
    ],
)
def test_options_that_do_not_fit_are_refused(rmm, options, problem):
    with pytest.raises(al.ConfigError, match=rf"allocators\.rmm.*{problem}"):
        get(**options)


def test_a_pool_tells_what_it_holds_and_others_cannot(rmm):
    pool, arena = get(resource="pool", initial_size="1 GiB"), get(resource="arena")
    pool.deallocate(pool.allocate(1000), 1000)
    pool.reset_peak()

    assert (pool.statistics().reserved, pool.statistics().peak_reserved) == (GIB, GIB)
    assert not isinstance(arena.allocator, al.SupportsReservation)


def test_a_closed_allocator_lets_go_of_its_resource(rmm):
    account = get(resource="pool")
    account.close()

    assert account.allocator.resource is None


# Devices and streams


@pytest.mark.parametrize("name", ["current", "cuda", "async", "managed", "pool", "arena", "binning"])
def test_a_resource_is_made_and_used_with_its_device_current(rmm, sim, name):
    account = get("cuda:1", resource=name)
    with al.ScopedDevice("cuda:0"):
        ptr = account.allocate(1000)
    account.deallocate(ptr, 1000)

    assert account.allocator.resource.ordinal == 1
    assert sim.current_device() == 0


def test_the_stream_is_made_for_rmm_once(rmm):
    account, stream = get(), al.Stream("cuda:0")
    made = sys.modules["rmm.pylibrmm.stream"].Stream.made
    for _ in range(3):
        account.deallocate(account.allocate_on(1000, stream), 1000)

    assert {call[2] for call in account.allocator.resource.calls} == {stream.handle}
    assert sys.modules["rmm.pylibrmm.stream"].Stream.made == made + 1


def test_a_block_is_freed_on_the_stream_that_it_was_allocated_on(rmm):
    account, stream = get(resource="async"), al.Stream("cuda:0")
    with al.ScopedStream(stream):
        ptr = account.allocate(1000)
    account.deallocate(ptr, 1000)

    assert account.allocator.resource.calls[-1] == ("deallocate", 1000, stream.handle)


def test_rmm_s_lack_of_memory_is_out_of_memory(rmm, sim):
    account = get(resource="cuda")
    sim.fail("malloc", code="cudaErrorMemoryAllocation")

    with pytest.raises(al.OutOfMemoryError, match=r"allocator 'rmm' on 'cuda:0'.*std::bad_alloc"):
        account.allocate(1000)


@pytest.mark.parametrize("chosen", [lambda: "rmm", al.utils.AllocatorRmm], ids=["by name", "as the guides do"])
def test_another_failure_of_the_driver_is_told_as_it_is(rmm, sim, chosen):
    with al.ScopedAllocator("cuda:0", chosen()):
        sim.fail("malloc", code="cudaErrorIllegalAddress")

        with pytest.raises(al.PlatformError, match="RMM failed: cudaErrorIllegalAddress"):
            al.empty(1000, device="cuda:0")


@pytest.mark.parametrize(("name", "is_capturable"), [("async", True), ("pool", False), ("cuda", False)])
def test_only_a_pool_of_the_driver_can_be_captured(rmm, name, is_capturable):
    account = get(resource=name)
    with al.ScopedCapture("cuda:0") as capture:
        if is_capturable:
            account.deallocate(ptr := account.allocate(1000), 1000)
            assert ptr
        else:
            with pytest.raises(al.CaptureError):
                account.allocate(1000)

    assert capture.graph is not None


# What the guides make


@pytest.fixture
def shared(rmm):
    return al.utils.AllocatorRmm()


def test_one_object_of_the_guides_serves_all_devices(rmm, shared):
    al.set_cuda_allocator(shared)
    arrays = [al.zeros(100, "uint8", device) for device in ("cuda:0", "cuda:1")]
    calls = [rmm.mr.get_per_device_resource(ordinal).calls for ordinal in (0, 1)]

    assert [len(each) for each in calls] == [1, 1]
    assert al.get_device_allocator("cuda:1") is shared
    assert "2 blocks" in repr(shared)
    arrays.clear()
    assert "0 blocks" in repr(shared)


def test_a_block_returns_to_the_resource_that_made_it(rmm, shared):
    al.set_device_allocator("cuda:0", shared)
    first = rmm.mr.get_per_device_resource(0)
    array = al.zeros(100, "uint8", "cuda:0")
    with al.ScopedDevice("cuda:0"):
        rmm.mr.set_per_device_resource(0, rmm.mr.ManagedMemoryResource())
    other = al.zeros(100, "uint8", "cuda:0")
    del array

    assert [call[0] for call in first.calls] == ["allocate", "deallocate"]
    assert [call[0] for call in rmm.mr.get_per_device_resource(0).calls] == ["allocate"]
    del other


def test_no_bytes_are_no_block_and_a_null_pointer_is_let_pass(shared):
    assert shared.allocate(0) == 0
    shared.deallocate(0, 0)


def test_called_by_itself_it_frees_once(rmm, shared):
    stream = al.Stream("cuda:0")
    with al.ScopedStream(stream):
        ptr = shared.allocate(100)
    shared.deallocate(ptr, 100)

    assert [call[2] for call in rmm.mr.get_per_device_resource(0).calls] == [stream.handle] * 2
    with pytest.raises(al.InvalidPointerError):
        shared.deallocate(ptr, 100)


def test_without_rmm_it_says_how_to_get_it(sim, monkeypatch):
    monkeypatch.setitem(sys.modules, "rmm", None)
    monkeypatch.setattr("allotment_rmm._resource.find_spec", lambda name: None)

    with pytest.raises(ImportError, match=r"pip install allotment-rmm\[cuda13\]"):
        al.utils.AllocatorRmm()


# Where it can be used


@pytest.mark.parametrize(
    ("is_installed", "device", "reason"),
    [
        (True, "cpu", "memory of CUDA devices"),
        (False, "cuda:0", r"not installed: pip install allotment-rmm\[cuda13\]"),
        (True, "cuda:0", "knows nothing of the platform 'sim:2xh200'"),
    ],
)
def test_it_says_why_it_cannot_be_used(sim, monkeypatch, is_installed, device, reason):
    monkeypatch.setattr("allotment_rmm._allocator.is_installed", lambda: is_installed)

    with pytest.raises(al.PluginUnavailableError, match=reason):
        get(device)


def test_listing_it_imports_no_rmm(output_of):
    lines = output_of("""
        import sys
        import allotment as al
        with al.simulate("h200"):
            print([record.name for record in al.list_allocators() if record.name == "rmm"])
            print(al.registry.current().get("rmm").name, "rmm" in sys.modules)
    """)

    assert lines == ["['rmm']", "rmm False"]


# It must not ask itself


class FromAllotment:
    """As the resource of the bridge to RMM says of itself."""

    draws_from_allotment = True


@pytest.mark.parametrize("is_covered", [False, True])
def test_a_resource_that_draws_from_allotment_is_refused(rmm, is_covered):
    resource = FromAllotment()
    if is_covered:
        covering = object.__new__(rmm.mr.StatisticsResourceAdaptor)
        covering.upstream = resource
        resource = covering
    rmm.mr.set_per_device_resource(0, resource)
    shared = al.utils.AllocatorRmm()

    for call in (get, lambda: al.empty(4, device="cuda:0")):
        al.set_device_allocator("cuda:0", shared)
        with pytest.raises(al.UnsupportedError, match=r"allocator 'rmm' cannot draw.*bridge to 'rmm'.*resource='pool'"):
            call()
