"""What is particular to the ``managed`` allocator: one for all devices, advice, and where it is refused."""

import numpy as np
import pytest

import allotment as al

HOST = -1
WITHOUT_CONCURRENT_ACCESS = ("wsl", "jetson-orin")
ADVICE = (
    {"read_mostly": True},
    {"accessed_by_host": True},
    {"preferred_location": "device"},
    {"preferred_location": "host"},
    {"prefetch": "device"},
    {"prefetch": "host"},
)


@pytest.fixture
def managed(simulated):
    """Return a function that gives the allocator of a device with the given options."""
    return lambda device="cuda:0", **options: al.get_allocator("managed", device, **options)


# One for all devices


def test_one_object_serves_all_devices(managed):
    assert managed("cuda:0").allocator is managed("cuda:1").allocator


def test_other_options_are_another_object(managed):
    assert managed("cuda:0").allocator is not managed("cuda:0", read_mostly=True).allocator


def test_a_block_belongs_to_the_device_it_was_asked_for_whatever_is_current(simulated, managed):
    for device in al.get_cuda_devices():
        account = managed(device)
        for current in range(2):
            simulated.set_current_device(current)
            ptr = account.allocate(1000)
            assert simulated.pointer_attributes(ptr).device == device.ordinal
            account.deallocate(ptr, 1000)


def test_each_device_has_accounts_of_its_own(managed):
    ptr = managed("cuda:1").allocate(1000)

    assert managed("cuda:0").statistics().current == 0
    assert managed("cuda:1").statistics().current == 1000
    managed("cuda:1").deallocate(ptr, 1000)


def test_a_block_goes_back_to_its_own_platform_when_another_is_in_force(isolated):
    with al.simulate("2xh200") as simulated, al.ScopedAllocator("cuda:0", "managed"):
        array = al.zeros(10, device="cuda:0")
        address = array.ptr
    with al.simulate("rtx4090") as other:
        del array

        assert [call.arguments["ptr"] for call in simulated.calls.named("free")] == [address]
        assert other.calls.named("free") == []


def test_host_and_devices_use_one_address(simulated, managed):
    with al.ScopedAllocator("cuda:0", "managed"):
        array = al.full(100, 3, "f4", device="cuda:0")

    assert array.memory_kind is al.MemoryKind.CUDA_MANAGED
    simulated.check_host_access(array.ptr, array.nbytes)
    simulated.check_kernel_access(1, array.ptr, array.nbytes)
    assert (array.numpy() == np.float32(3)).all()


def test_the_guides_class_can_be_made_before_any_device_is_used(simulated):
    allocator = al.CudaManagedAllocator()
    assert len(simulated.calls.named("malloc_managed", "set_current_device")) == 0

    al.set_cuda_allocator(allocator)

    assert al.empty(1, device="cuda:1").memory_kind is al.MemoryKind.CUDA_MANAGED


def test_memory_may_exceed_the_device_where_pages_migrate(managed):
    account, size = managed(), 2 * al.get_device("cuda:0").total_memory

    account.deallocate(account.allocate(size), size)


@pytest.mark.parametrize("simulated", WITHOUT_CONCURRENT_ACCESS, indirect=True)
def test_memory_is_bounded_by_the_device_where_pages_do_not_migrate(simulated, managed):
    with pytest.raises(al.OutOfMemoryError):
        managed().allocate(2 * al.get_device("cuda:0").total_memory)


# Advice


def calls_of(simulated, account):
    account.deallocate(account.allocate(1000), 1000)
    return [(call.name, call.arguments) for call in simulated.calls.named("advise", "prefetch")]


def test_by_default_nothing_is_said(simulated, managed):
    assert calls_of(simulated, managed()) == []


@pytest.mark.parametrize(
    ("options", "advice", "location"),
    [
        ({"read_mostly": True}, al.MemoryAdvice.SET_READ_MOSTLY, 1),
        ({"accessed_by_host": True}, al.MemoryAdvice.SET_ACCESSED_BY, HOST),
        ({"preferred_location": "device"}, al.MemoryAdvice.SET_PREFERRED_LOCATION, 1),
        ({"preferred_location": "host"}, al.MemoryAdvice.SET_PREFERRED_LOCATION, HOST),
    ],
)
def test_advice_is_given_when_a_block_is_allocated(simulated, managed, options, advice, location):
    ((name, arguments),) = calls_of(simulated, managed("cuda:1", **options))

    assert name == "advise"
    assert (arguments["nbytes"], arguments["advice"], arguments["location"]) == (1000, advice, location)


@pytest.mark.parametrize(("place", "location"), [("device", 1), ("host", HOST)])
def test_pages_are_prefetched_on_the_stream_in_force(simulated, managed, place, location):
    stream = al.Stream("cuda:1")
    with al.ScopedStream(stream):
        ((name, arguments),) = calls_of(simulated, managed("cuda:1", prefetch=place))

    assert name == "prefetch"
    assert (arguments["nbytes"], arguments["location"]) == (1000, location)
    assert (arguments["stream"], arguments["ordinal"]) == (stream.handle, 1)


def test_advice_arrives(simulated, managed):
    account = managed("cuda:1", read_mostly=True, accessed_by_host=True, preferred_location="host", prefetch="device")
    ptr = account.allocate(1000)

    state = simulated.managed_state(ptr)

    assert (state.read_mostly, state.accessed_by) == (True, {HOST})
    assert (state.preferred_location, state.last_prefetch) == (HOST, 1)
    account.deallocate(ptr, 1000)


@pytest.mark.parametrize("options", ADVICE, ids=str)
def test_a_block_is_given_back_when_advice_fails(simulated, managed, options):
    account = managed(**options)
    simulated.fail("advise", code="cudaErrorInvalidDevice")
    simulated.fail("prefetch", code="cudaErrorInvalidDevice")

    with pytest.raises(al.PlatformError, match="cudaErrorInvalidDevice"):
        account.allocate(1000)

    (taken,), (given,) = simulated.calls.named("malloc_managed"), simulated.calls.named("free")
    assert given.arguments["ptr"] == taken.result
    assert account.statistics().current == 0


@pytest.mark.parametrize("options", [{"prefetch": "gpu"}, {"read_mostly": "maybe"}, {"prefetched": "host"}], ids=str)
def test_an_option_that_cannot_be_read_is_refused(managed, options):
    with pytest.raises(al.ConfigError, match=r"allocators\.managed\."):
        managed(**options)


# Where it is refused


@pytest.mark.parametrize("simulated", WITHOUT_CONCURRENT_ACCESS, indirect=True)
@pytest.mark.parametrize("options", ADVICE, ids=str)
def test_advice_is_refused_where_managed_access_is_not_concurrent(simulated, managed, options):
    account = managed(**options)

    with pytest.raises(al.UnsupportedError, match="no concurrent managed access, so it takes no advice"):
        account.allocate(1000)

    assert simulated.calls.named("malloc_managed", "advise", "prefetch") == []


@pytest.mark.parametrize("label", ["Linux", "Windows", "linux-tegra"])
@pytest.mark.parametrize("simulated", WITHOUT_CONCURRENT_ACCESS, indirect=True)
def test_the_answer_does_not_depend_on_the_name_of_the_system(simulated, managed, monkeypatch, label):
    monkeypatch.setattr("platform.system", lambda: label)
    monkeypatch.setattr("sys.platform", label.lower())
    account = managed(prefetch="device")

    with pytest.raises(al.UnsupportedError, match="concurrent managed access"):
        account.allocate(1000)
    plain = managed()
    plain.deallocate(plain.allocate(1000), 1000)


@pytest.fixture
def without_managed_memory(tmp_path):
    """Return a machine whose device has no managed memory."""
    from importlib.resources import files

    text = (files("allotment.platform.simulated") / "profiles" / "no-pools.toml").read_text()
    path = tmp_path / "no-managed.toml"
    path.write_text(text.replace("\nmanaged_memory = true", "\nmanaged_memory = false"))
    return path


def test_a_device_without_managed_memory_is_refused_with_the_way_out(isolated, without_managed_memory):
    with al.simulate(without_managed_memory) as simulated:
        with pytest.raises(al.PluginUnavailableError, match="does not support managed memory; use allocator 'default'"):
            al.get_allocator("managed", "cuda:0")
        assert simulated.calls.named("malloc_managed") == []


def test_an_object_is_refused_when_it_is_used_on_such_a_device(isolated, without_managed_memory):
    with al.simulate(without_managed_memory) as simulated:
        al.set_device_allocator("cuda:0", al.CudaManagedAllocator())
        with pytest.raises(al.UnsupportedError, match="'cuda:0' does not support managed memory"):
            al.empty(10, device="cuda:0")
        assert simulated.calls.named("malloc_managed") == []


def test_the_host_is_refused(managed):
    with pytest.raises(al.PluginUnavailableError, match="allocated under a CUDA device"):
        managed("cpu")


@pytest.mark.gpu
def test_a_real_device_takes_advice(isolated):
    al.init(platform="cuda", quiet=True)
    device = al.get_device("cuda:0")
    if not device.is_concurrent_managed_access_supported:
        pytest.skip("the device has no concurrent managed access")
    account = al.get_allocator("managed", device, read_mostly=True, preferred_location="device", prefetch="device")

    with al.ScopedAllocator(device, account):
        array = al.full(1000, 3, "f4", device=device)

    assert (array.numpy() == np.float32(3)).all()
