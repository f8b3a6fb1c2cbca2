"""Devices, on a GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from allotment.errors import ConfigWarning, PlatformError, UnsupportedError
from allotment.platform import Platform
from allotment.platform.cuda import availability

if TYPE_CHECKING:
    from allotment.platform.cuda import CudaPlatform

pytestmark = pytest.mark.gpu


def output_of(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_it_is_a_platform(cuda: CudaPlatform):
    assert isinstance(cuda, Platform)
    assert (cuda.name, cuda.why) == ("cuda", "the tests ask for it")
    assert re.fullmatch(r"CUDA \d+\.\d \(driver \d+\.\d\) through CuPy \d+\.\d.*", cuda.description)


def test_it_is_available(cuda: CudaPlatform):
    assert availability().ok
    assert availability().reason == ""


def test_properties_are_those_of_the_device(cuda: CudaPlatform):
    properties = cuda.device_properties(0)
    assert properties.name
    assert properties.total_memory > 1 << 30
    assert properties.compute_capability >= (5, 0)
    assert properties.sm_count > 0
    assert properties.max_shared_memory_per_block >= 48 << 10
    assert re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", properties.uuid)
    assert re.fullmatch(r"[0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}", properties.pci_bus_id)
    assert properties.unified_addressing


def test_the_identifier_is_the_drivers(cuda: CudaPlatform):
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("nvidia-smi does not answer here")
    assert cuda.device_properties(0).uuid in listed


@pytest.mark.multi_gpu
def test_two_devices_have_identifiers_of_their_own(cuda: CudaPlatform):
    assert cuda.device_properties(0).uuid != cuda.device_properties(1).uuid
    assert cuda.device_properties(0).pci_bus_id != cuda.device_properties(1).pci_bus_id


def test_versions_are_cudas(cuda: CudaPlatform):
    runtime, driver = cuda.versions()
    assert runtime >= 12000
    assert driver >= 12000


def test_no_more_memory_is_free_than_there_is(cuda: CudaPlatform, device: int):
    info = cuda.memory_info(device)
    assert 0 < info.free <= info.total


def test_a_device_that_does_not_exist_is_an_error_and_leaves_the_current_one(cuda: CudaPlatform, device: int):
    with pytest.raises(PlatformError, match="cudaErrorInvalidDevice"):
        cuda.memory_info(99)
    assert cuda.current_device() == device


def test_synchronising_leaves_nothing_to_do(cuda: CudaPlatform, device: int):
    cuda.synchronize_device(device)
    assert cuda.stream_is_done(0, device)


def test_a_device_is_no_peer_of_itself(cuda: CudaPlatform, device: int):
    assert not cuda.can_access_peer(device, device)


def test_peer_access_to_itself_is_refused_in_cudas_words(cuda: CudaPlatform, device: int):
    with pytest.raises(PlatformError, match="cudaDeviceEnablePeerAccess failed: cudaError"):
        cuda.enable_peer_access(device, device)


@pytest.mark.multi_gpu
def test_the_current_device_is_restored_after_a_call_and_after_an_exception(cuda: CudaPlatform, device: int):
    cuda.memory_info(1)
    assert cuda.current_device() == device
    with pytest.raises(PlatformError):
        cuda.enable_peer_access(1, 1)
    assert cuda.current_device() == device


@pytest.mark.multi_gpu
def test_peer_access_opens_and_closes_cudamalloc_memory(cuda: CudaPlatform, device: int):
    if not cuda.can_access_peer(device, 1):
        pytest.skip("devices 0 and 1 are no peers")
    cuda.set_current_device(1)
    ptr = cuda.malloc(4096)
    cuda.set_current_device(device)
    assert not cuda.pointer_attributes(ptr).accessible
    cuda.enable_peer_access(device, 1)
    assert cuda.pointer_attributes(ptr).accessible
    cuda.disable_peer_access(device, 1)
    assert not cuda.pointer_attributes(ptr).accessible
    cuda.free(ptr)


def test_a_changed_list_of_devices_is_pointed_out_once(cuda: CudaPlatform, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cuda, "_visible_at_first", os.environ.get("CUDA_VISIBLE_DEVICES"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    with pytest.warns(ConfigWarning, match="CUDA_VISIBLE_DEVICES was changed"):
        count = cuda.device_count()
    assert cuda.device_count() == count > 0


def test_without_the_bindings_only_what_needs_them_is_refused(cuda: CudaPlatform, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "cuda.bindings", None)
        bare = type(cuda)()
        assert bare.device_properties(0).name == cuda.device_properties(0).name
        with pytest.raises(UnsupportedError, match=r"allotment\[cuda13\]"):
            bare.has_context(0)


def test_queries_open_no_context():
    script = """
import numpy as np
from allotment.platform import PoolAttribute
from allotment.platform.cuda import CudaPlatform, availability
availability()
cuda = CudaPlatform()
ordinals = range(cuda.device_count())
page = np.zeros(64)
for ordinal in ordinals:
    cuda.device_properties(ordinal)
    cuda.can_access_peer(ordinal, 0)
    pool = cuda.default_pool(ordinal)
    cuda.pool_attribute(pool, PoolAttribute.RELEASE_THRESHOLD)
    cuda.pool_access(pool, ordinal)
cuda.versions(), cuda.pointer_attributes(page.ctypes.data)
print(any(cuda.has_context(ordinal) for ordinal in ordinals))
cuda.memory_info(0)
print(cuda.has_context(0))
"""
    assert output_of(script).split() == ["False", "True"]


@pytest.mark.multi_gpu
def test_work_on_device_1_wakes_no_other_and_memory_is_still_of_device_0():
    script = """
from allotment.platform.cuda import CudaPlatform
cuda = CudaPlatform()
cuda.memory_info(1)
stream = cuda.create_stream(1, non_blocking=True, priority=0)
cuda.synchronize_stream(stream, 1)
print([cuda.has_context(ordinal) for ordinal in (0, 1)], cuda.current_device())
print(cuda.pointer_attributes(cuda.malloc(64)).device)
"""
    assert output_of(script).splitlines() == ["[False, True] 0", "0"]


@pytest.mark.multi_gpu
def test_a_thread_without_a_context_has_none_after_another_device_was_current():
    script = """
from allotment.platform.cuda import CudaPlatform
cuda = CudaPlatform()
before = cuda.switch_device(1)
ptr = cuda.malloc(64)
print(cuda.current_device(), cuda.pointer_attributes(ptr).device)
cuda.restore_context(before)
print(cuda.current_device(), [cuda.has_context(ordinal) for ordinal in (0, 1)])
cuda.set_current_device(1)
cuda.restore_context(cuda.switch_device(0))
print(cuda.current_device())
"""
    assert output_of(script).splitlines() == ["1 1", "0 [False, True]", "1"]


@pytest.mark.multi_gpu
def test_accounts_and_scopes_of_device_1_wake_no_other():
    script = """
import allotment as al
class Plain:
    platform = al.get_device("cuda:1").platform
    def allocate(self, size_in_bytes): return self.platform.malloc(size_in_bytes)
    def deallocate(self, ptr, size_in_bytes): self.platform.free(ptr)
al.set_cuda_allocator(Plain())
array = al.empty(1000, device="cuda:1")
with al.ScopedDevice("cuda:1"):
    al.empty(1000)
del array
al.synchronize()
print([device.has_context for device in al.get_cuda_devices()], al.get_cuda_device())
"""
    assert output_of(script).splitlines() == ["[False, True] cuda:0"]
