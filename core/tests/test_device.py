"""Devices: what they are, which one is meant, which is current, and that asking wakes none."""

from __future__ import annotations

import dataclasses
import gc
import threading

import pytest

import allotment as al
from allotment.device import device_registry, forget_devices
from allotment.platform.simulated._profile import load_profile, profile_names

FLAGS = {
    "is_uva": "unified_addressing",
    "is_cpu_memory_access_from_gpu_supported": "pageable_memory_access",
    "is_gpu_memory_access_from_cpu_supported": "direct_managed_access_from_host",
    "is_cpu_gpu_atomic_supported": "host_native_atomic",
    "is_managed_memory_supported": "managed_memory",
    "is_concurrent_managed_access_supported": "concurrent_managed_access",
    "is_mempool_supported": "memory_pools",
    "is_virtual_memory_supported": "virtual_memory",
}
"""Each capability of a device, and the attribute of the driver that it reads."""


@pytest.fixture(params=profile_names())
def profile(request):
    with al.simulate(request.param):
        yield load_profile(request.param)


# ---------------------------------------------------------------------------------------------------------------------
# What a device is


@pytest.mark.parametrize(("flag", "attribute"), FLAGS.items())
def test_a_capability_is_what_the_driver_says(profile, flag, attribute):
    for device, properties in zip(al.get_cuda_devices(), profile.devices, strict=True):
        assert getattr(device, flag) is getattr(properties, attribute)


def test_a_device_is_what_the_driver_says(profile):
    for device, properties in zip(al.get_cuda_devices(), profile.devices, strict=True):
        assert device.name == properties.name
        assert device.total_memory == properties.total_memory
        assert device.sm_count == properties.sm_count
        assert device.max_shared_memory_per_block == properties.max_shared_memory_per_block
        assert device.uuid == properties.uuid
        assert device.pci_bus_id == properties.pci_bus_id
        assert divmod(device.arch, 10) == properties.compute_capability


def test_ipc_is_unknown_where_the_driver_cannot_say_and_absent_on_integrated_devices(profile):
    for device, properties in zip(al.get_cuda_devices(), profile.devices, strict=True):
        assert device.is_ipc_supported is (False if properties.integrated else properties.ipc)


def test_one_capability_implies_no_other(profile, tmp_path):
    """A device that has exactly one capability reports exactly that one."""
    for flag, attribute in FLAGS.items():
        only = dict.fromkeys(FLAGS.values(), False) | {attribute: True}
        properties = dataclasses.replace(profile.devices[0], **only)
        platform = al.get_device("cuda:0").platform.__class__(
            dataclasses.replace(profile, devices=(properties,), peers=((False,),))
        )
        device = type(device_registry())(platform).cuda[0]
        assert {name for name in FLAGS if getattr(device, name)} == {flag}


def test_the_host_has_none_of_the_capabilities():
    cpu = al.get_device("cpu")

    assert [getattr(cpu, flag) for flag in FLAGS] == [False] * len(FLAGS)
    assert cpu.is_ipc_supported is False
    assert (cpu.arch, cpu.sm_count, cpu.max_shared_memory_per_block, cpu.total_memory, cpu.free_memory) == (0,) * 5
    assert (cpu.uuid, cpu.pci_bus_id, cpu.has_context, cpu.ordinal) == (None, None, False, -1)
    assert cpu.name


def test_memory_info_of_the_host_is_refused():
    with pytest.raises(al.UnsupportedError, match="operating system"):
        _ = al.get_device("cpu").memory_info


def test_free_memory_falls_by_what_is_allocated(sim):
    device = al.get_device("cuda:1")
    before = device.free_memory
    kept = al.get_allocator("default", device)
    ptr = kept.allocate(2**30)

    assert device.memory_info.total == device.total_memory
    assert device.free_memory == before - 2**30
    kept.deallocate(ptr, 2**30)
    assert device.free_memory == before


def test_a_device_reads_as_what_it_is(sim):
    device = al.get_device("cuda:1")

    assert (str(device), repr(device)) == ("cuda:1", "<Device 'cuda:1': NVIDIA H200>")
    assert (device.is_cuda, device.is_cpu) == (True, False)


# ---------------------------------------------------------------------------------------------------------------------
# Which one is meant


@pytest.mark.parametrize("ident", ["cuda:1", 1])
def test_an_alias_and_an_ordinal_mean_the_same_device(sim, ident):
    assert al.get_device(ident) is al.get_cuda_device(1)


def test_a_device_means_itself_and_can_key_a_dictionary(sim):
    device = al.get_device("cuda:0")

    assert al.get_device(device) is device
    assert {device: "here"}[al.get_device(0)] == "here"


def test_none_means_the_default_device_and_set_device_sets_it(sim):
    assert al.get_device() is al.get_device("cuda:0")
    al.set_device("cuda:1")
    assert al.get_device() is al.get_device("cuda:1")
    al.set_device("cpu")
    assert al.get_device() is al.get_device("cpu")


def test_set_device_makes_a_cuda_device_current(sim):
    al.set_device("cuda:1")

    assert sim.current_device() == 1


def test_cuda_means_the_device_that_is_current_in_the_thread(sim):
    al.set_device("cpu")
    sim.set_current_device(1)

    assert al.get_device("cuda") is al.get_device("cuda:1")
    assert al.get_cuda_device() is al.get_device("cuda:1")


@pytest.mark.parametrize("ident", ["cuda:2", "cuda:01", "CUDA:0", "gpu", "", " cuda:0", "cuda:-1", 2, -1])
def test_a_device_that_does_not_exist_is_refused_with_what_exists(sim, ident):
    with pytest.raises(al.DeviceNotFoundError, match="Devices here: cpu, cuda:0, cuda:1") as caught:
        al.get_device(ident)

    assert caught.value.existing == ("cpu", "cuda:0", "cuda:1")
    assert isinstance(caught.value, ValueError)
    assert not al.is_device_available(ident)


@pytest.mark.parametrize("ident", [True, 1.0, b"cuda:0", ("cuda", 0), object()])
def test_what_can_name_no_device_is_a_type_error(sim, ident):
    with pytest.raises(TypeError, match="a device is named by"):
        al.get_device(ident)


def test_on_the_host_alone_cuda_is_refused_with_the_reason_and_the_simulator_offered():
    al.init("host", quiet=True)

    for ident in ("cuda", "cuda:0", 0):
        with pytest.raises(al.DeviceNotFoundError, match=r"asked for by init\(\)") as caught:
            al.get_device(ident)
        assert "allotment.simulate" in str(caught.value)


def test_on_the_host_alone_everything_about_cuda_is_absent_and_nothing_raises():
    al.init("host", quiet=True)

    assert (al.is_cpu_available(), al.is_cuda_available(), al.get_cuda_device_count()) == (True, False, 0)
    assert al.get_cuda_devices() == []
    assert al.get_devices() == [al.get_device("cpu")]
    assert al.get_preferred_device() is al.get_device("cpu") is al.get_device()
    al.synchronize()


def test_the_preferred_device_is_the_first_cuda_device(sim):
    al.set_device("cpu")

    assert al.get_preferred_device() is al.get_device("cuda:0")


# ---------------------------------------------------------------------------------------------------------------------
# Scopes


def test_a_scope_makes_its_device_the_default_and_current_and_restores_both(sim):
    with al.ScopedDevice("cuda:1") as device:
        assert device is al.get_device("cuda:1") is al.get_device()
        assert sim.current_device() == 1
    assert al.get_device() is al.get_device("cuda:0")
    assert sim.current_device() == 0


def test_a_scope_restores_after_an_exception(sim):
    with pytest.raises(ZeroDivisionError), al.ScopedDevice("cuda:1"):
        _ = 1 / 0

    assert (str(al.get_device()), sim.current_device()) == ("cuda:0", 0)


def test_leaving_a_scope_opens_no_context_of_a_device_that_was_only_current_by_default(sim):
    with al.ScopedDevice("cuda:1"):
        al.zeros(4)

    assert sim.contexts() == {1}


def test_scopes_nest_and_can_be_entered_again(sim):
    scope = al.ScopedDevice("cuda:1")
    with scope, al.ScopedDevice("cuda:0"), scope:
        assert (str(al.get_device()), sim.current_device()) == ("cuda:1", 1)
    with scope:
        assert (str(al.get_device()), sim.current_device()) == ("cuda:1", 1)
    assert (str(al.get_device()), sim.current_device()) == ("cuda:0", 0)


def test_scopes_left_out_of_order_leave_nothing_behind(sim):
    first, second = al.ScopedDevice("cuda:1"), al.ScopedDevice("cuda:0")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert (str(al.get_device()), sim.current_device()) == ("cuda:0", 0)
    second.__exit__(None, None, None)

    assert (str(al.get_device()), sim.current_device()) == ("cuda:0", 0)
    assert device_registry().default is al.get_device("cuda:0")


def test_three_scopes_left_first_in_first_out_restore_what_was_current_before_them(sim):
    scopes = [al.ScopedDevice(ident) for ident in (1, 0, 1)]
    for scope in scopes:
        scope.__enter__()
    for scope in scopes:
        scope.__exit__(None, None, None)

    assert (str(al.get_device()), sim.current_device()) == ("cuda:0", 0)


def test_a_scope_of_the_host_leaves_the_current_device_alone(sim):
    sim.set_current_device(1)
    with al.ScopedDevice("cpu"):
        assert (str(al.get_device()), sim.current_device()) == ("cpu", 1)
    assert sim.current_device() == 1


def test_a_scope_does_not_reach_other_threads(sim):
    seen = []
    with al.ScopedDevice("cuda:1"):
        thread = threading.Thread(target=lambda: seen.append((str(al.get_device()), sim.current_device())))
        thread.start()
        thread.join()

    assert seen == [("cuda:0", 0)]


def test_a_device_that_cannot_be_made_current_leaves_no_scope(sim):
    sim.fail("switch_device", code="cudaErrorDevicesUnavailable")
    with pytest.raises(al.PlatformError, match="cudaErrorDevicesUnavailable"), al.ScopedDevice("cuda:1"):
        pytest.fail("the block was entered")

    assert (str(al.get_device()), sim.current_device()) == ("cuda:0", 0)


def test_a_scope_of_a_device_that_does_not_exist_is_refused_when_it_is_made(sim):
    with pytest.raises(al.DeviceNotFoundError):
        al.ScopedDevice("cuda:7")


# ---------------------------------------------------------------------------------------------------------------------
# Contexts


def test_looking_around_opens_no_context(sim):
    for device in al.get_devices():
        repr(device)
        _ = device.total_memory, device.uuid, device.is_ipc_supported, device.has_context
        al.is_mempool_enabled(device)
    al.is_cuda_available()
    al.list_allocators()
    al.startup_report()
    al.memory_stats()
    al.get_device("cuda")
    al.synchronize()

    assert sim.contexts() == frozenset()


@pytest.mark.parametrize("name", ["default", "mempool", "managed"])
def test_housekeeping_of_one_device_wakes_no_other(sim, name):
    allocator = al.get_allocator(name, "cuda:1")
    array = al.empty(1000, device="cuda:1")
    ptr = allocator.allocate(4096)
    allocator.deallocate(ptr, 4096)
    allocator.trim()
    allocator.statistics()
    al.memory_stats()
    _ = al.get_device("cuda:1").memory_info
    al.get_mempool_used_mem_current("cuda:1")
    al.trim_mempool("cuda:1")
    del array
    al.synchronize()

    assert sim.contexts() == {1}


def test_synchronize_waits_for_devices_that_have_a_context(sim):
    al.empty(4, device="cuda:1")
    sim.calls.clear()
    al.synchronize()
    al.synchronize_device("cuda:1")
    al.synchronize_device("cpu")

    assert [call.arguments for call in sim.calls.named("synchronize_device")] == [{"ordinal": 1}] * 2


# ---------------------------------------------------------------------------------------------------------------------
# Simulating


def test_the_devices_of_a_simulation_are_gone_after_it():
    before = al.get_devices()
    with al.simulate("2xl40"):
        assert [str(device) for device in al.get_devices()] == ["cpu", "cuda:0", "cuda:1"]
        assert al.get_device("cpu") is not before[0]
    assert al.get_devices() == before


def test_simulations_nest_and_the_outer_devices_come_back(sim):
    outer = al.get_device("cuda:1")
    with al.simulate("rtx4090"):
        assert al.get_cuda_device_count() == 1
        assert al.get_device("cuda:0").name == "NVIDIA GeForce RTX 4090"
    assert al.get_device("cuda:1") is outer


def test_a_default_device_of_outside_does_not_reach_into_a_simulation(sim):
    with al.ScopedDevice("cuda:1"):
        with al.simulate("rtx4090"):
            assert al.get_device() is al.get_device("cuda:0")
            assert al.empty(4).device.name == "NVIDIA GeForce RTX 4090"
        assert al.get_device() is al.get_device("cuda:1")
        assert sim.current_device() == 1


def test_arrays_that_outlive_a_simulation_stay_usable_and_are_freed_there():
    with al.simulate("2xh200") as sim:
        array = al.full(8, 3.0, device="cuda:1")
    assert array.numpy().tolist() == [3.0] * 8
    del array

    assert len(sim.calls.named("free_async")) == 1
    assert sim.calls.named("free_async")[0].error is None


def test_a_platform_that_is_in_force_again_has_the_devices_whose_arrays_live():
    with al.simulate("2xh200") as sim:
        array = al.empty(4, device="cuda:1")
    gc.collect()
    token = al_platform().use(sim)
    try:
        assert al.get_device("cuda:1") is array.device
    finally:
        al_platform().reset(token)


def al_platform():
    from allotment import platform

    return platform


def test_devices_can_be_forgotten(sim):
    before = al.get_device("cuda:0")
    al.set_device("cuda:1")
    forget_devices()
    gc.collect()

    assert al.get_device().ordinal in (0, 1)
    del before
