"""Handles by which one simulated platform opens memory of another."""

import gc
import os
from dataclasses import replace

import numpy as np
import pytest

from allotment.errors import PlatformError, UnsupportedError
from allotment.memory_kind import MemoryKind
from allotment.platform.simulated import SimulatedPlatform, load_profile

KIB = 2**10


@pytest.fixture
def other():
    """Another process's view of the same two GPUs."""
    platform = SimulatedPlatform.from_profile("2xh200")
    yield platform
    platform.close()


@pytest.fixture
def memory(platform):
    ptr = platform.malloc(KIB)
    platform.fill(ptr, 3, KIB, 0, 0)
    return ptr


def bytes_at(platform, ptr):
    data = np.empty(KIB, np.uint8)
    platform.copy(data.ctypes.data, ptr, KIB, 0, 0)
    return data


def test_both_sides_see_what_either_writes(platform, other, memory):
    opened = other.open_ipc_handle(platform.ipc_handle(memory))
    assert (bytes_at(other, opened) == 3).all()
    other.fill(opened, 4, KIB, 0, 0)
    assert (bytes_at(platform, memory) == 4).all()


def test_a_handle_has_64_bytes_and_is_the_same_for_all_addresses_of_a_block(platform, memory):
    handle = platform.ipc_handle(memory)
    assert len(handle) == 64
    assert handle == platform.ipc_handle(memory + 100)


def test_what_is_opened_is_the_whole_block_on_its_device(platform, other, memory):
    opened = other.open_ipc_handle(platform.ipc_handle(memory + 100))
    found = other.pointer_attributes(opened)
    assert (found.kind, found.device, found.base, found.nbytes) == (MemoryKind.CUDA_DEVICE, 0, opened, KIB)


def test_opening_twice_needs_closing_twice(platform, other, memory):
    handle = platform.ipc_handle(memory)
    opened = other.open_ipc_handle(handle)
    assert other.open_ipc_handle(handle) == opened
    other.close_ipc_handle(opened)
    assert other.pointer_attributes(opened).kind is MemoryKind.CUDA_DEVICE
    other.close_ipc_handle(opened)
    assert other.pointer_attributes(opened).kind is MemoryKind.UNKNOWN
    with pytest.raises(PlatformError, match="cudaErrorInvalidValue"):
        other.close_ipc_handle(opened)


def test_closing_leaves_the_owners_memory_alone(platform, other, memory):
    other.close_ipc_handle(other.open_ipc_handle(platform.ipc_handle(memory)))
    assert (bytes_at(platform, memory) == 3).all()


def test_memory_that_its_owner_freed_is_gone_for_all(platform, other, memory):
    opened = other.open_ipc_handle(platform.ipc_handle(memory))
    platform.free(memory)
    assert other.pointer_attributes(opened).kind is MemoryKind.UNKNOWN
    with pytest.raises(PlatformError, match="cudaErrorIllegalAddress"):
        other.check_kernel_access(0, opened, 4)


def test_a_handle_of_memory_that_is_gone_is_refused_even_where_the_address_lives_again(platform, other, memory):
    handle = platform.ipc_handle(memory)
    platform.free(memory)
    assert platform.malloc(KIB) == memory
    assert platform.ipc_handle(memory) != handle
    with pytest.raises(PlatformError, match="cudaErrorInvalidResourceHandle"):
        other.open_ipc_handle(handle)


def test_a_handle_outlives_its_platform_as_bytes_only(other):
    platform = SimulatedPlatform.from_profile("2xh200")
    handle = platform.ipc_handle(platform.malloc(KIB))
    platform.close()
    del platform
    gc.collect()
    with pytest.raises(PlatformError, match="cudaErrorInvalidResourceHandle"):
        other.open_ipc_handle(handle)


def test_opened_memory_is_not_handed_on(platform, other, memory):
    opened = other.open_ipc_handle(platform.ipc_handle(memory))
    with pytest.raises(PlatformError, match="cudaErrorInvalidValue"):
        other.ipc_handle(opened)


def test_opened_memory_is_not_freed_but_closed(platform, other, memory):
    opened = other.open_ipc_handle(platform.ipc_handle(memory))
    with pytest.raises(PlatformError, match="cudaErrorInvalidValue"):
        other.free(opened)


def test_the_device_that_opens_memory_gets_access_to_it(platform, other, memory):
    other.set_current_device(1)
    opened = other.open_ipc_handle(platform.ipc_handle(memory))
    assert other.pointer_attributes(opened).accessible
    other.check_kernel_access(1, opened, KIB)


def test_a_device_without_handles_for_other_processes_gives_none():
    profile = load_profile("2xh200")
    without = SimulatedPlatform(replace(profile, devices=tuple(replace(d, ipc=False) for d in profile.devices)))
    with pytest.raises(PlatformError, match="cudaErrorNotSupported"):
        without.ipc_handle(without.malloc(KIB))
    without.close()


def test_memory_of_a_device_that_is_not_simulated_is_refused(platform, memory):
    profile = load_profile("2xh200")
    devices = tuple(replace(device, uuid=f"GPU-{ordinal}") for ordinal, device in enumerate(profile.devices))
    elsewhere = SimulatedPlatform(replace(profile, devices=devices))
    with pytest.raises(PlatformError, match="cudaErrorInvalidDevice"):
        elsewhere.open_ipc_handle(platform.ipc_handle(memory))
    elsewhere.close()


@pytest.mark.parametrize("handle", [b"", b"x" * 64, b"x" * 63])
def test_bytes_that_are_no_handle_are_refused(platform, handle):
    with pytest.raises(PlatformError, match="cudaErrorInvalidResourceHandle"):
        platform.open_ipc_handle(handle)


def test_a_handle_of_another_process_is_refused_with_the_reason(platform, other, memory, monkeypatch):
    handle = platform.ipc_handle(memory)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with pytest.raises(UnsupportedError, match="cannot be shared between processes"):
        other.open_ipc_handle(handle)
