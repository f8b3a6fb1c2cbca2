"""Sharing memory with CuPy and PyTorch on a real GPU: nothing is copied or freed early, and streams are in order."""

from __future__ import annotations

import gc
import weakref
from contextlib import suppress

import numpy as np
import pytest

import allotment as al

pytestmark = pytest.mark.gpu

ALLOCATORS = ["default", "mempool", "managed"]
PLAIN = ["default", "mempool"]
DTYPES = ["?", "i1", "u1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16"]
ENOUGH_WORK = 2**26
"""Elements for a piece of work that is still running when the next one is queued."""


@pytest.fixture
def cupy():
    return pytest.importorskip("cupy", reason="CuPy is not installed")


@pytest.fixture
def torch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    return torch


def make(values, allocator="default"):
    with al.ScopedAllocator("cuda:0", allocator):
        array = al.array(values, device="cuda:0")
    al.synchronize()
    return array


# Contents


@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize("dtype", [*DTYPES, "u2", "u8", "M8[us]", "U3", ">i4", [("a", "u1"), ("b", "f4")]], ids=str)
def test_contents_of_every_type_come_back_from_the_device(allocator, dtype):
    values = np.arange(2).repeat(6).astype(dtype if not isinstance(dtype, list) else "u1").astype(dtype).reshape(3, 4)
    array = make(values, allocator)
    np.testing.assert_array_equal(array.numpy(), values)
    np.testing.assert_array_equal(array[::-1, 1::2].numpy(), values[::-1, 1::2])


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_a_copy_within_an_array_is_as_if_its_source_was_read_first(allocator):
    values = np.arange(2**20)
    array = make(values, allocator)
    array[1:] = array[:-1]
    array[::-1] = array
    values[1:] = values[:-1].copy()
    np.testing.assert_array_equal(array.numpy(), values[::-1])


# CuPy


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_cupy_shares_our_memory_by_the_array_interface(cupy, allocator):
    array = make(np.arange(12.0).reshape(3, 4), allocator)
    theirs = cupy.asarray(array)
    assert theirs.data.ptr == array.ptr
    theirs *= 2
    cupy.cuda.get_current_stream().synchronize()
    np.testing.assert_array_equal(array.numpy(), 2 * np.arange(12.0).reshape(3, 4))


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_cupy_shares_our_memory_by_dlpack(cupy, allocator):
    array = make(np.arange(12.0).reshape(3, 4), allocator)
    theirs = cupy.from_dlpack(array)
    assert theirs.data.ptr == array.ptr
    assert cupy.asnumpy(theirs).tolist() == array.numpy().tolist()


@pytest.mark.parametrize("view", [lambda a: a.T, lambda a: a[::2, 1:], lambda a: a[:, ::-1]])
def test_cupy_sees_a_strided_view_as_numpy_does(cupy, view):
    values = np.arange(24.0).reshape(4, 6)
    array = view(make(values))
    for theirs in (cupy.asarray(array), cupy.from_dlpack(array)):
        assert (theirs.data.ptr, theirs.strides) == (array.ptr, array.strides)
        np.testing.assert_array_equal(cupy.asnumpy(theirs), view(values))


@pytest.mark.parametrize("view", [lambda a: a.T, lambda a: a[::2, 1:], lambda a: a[:, ::-1], lambda a: a[:0]])
def test_a_strided_view_of_cupy_is_shared_as_it_is(cupy, view):
    theirs = view(cupy.arange(24.0).reshape(4, 6))
    for array in (al.asarray(theirs), al.from_dlpack(theirs)):
        assert array.shape == theirs.shape
        assert not array.size or (array.ptr, array.strides) == (theirs.data.ptr, theirs.strides)
        np.testing.assert_array_equal(array.numpy(), cupy.asnumpy(theirs))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_goes_to_cupy_and_back(cupy, dtype):
    array = make(np.array([0, 1, 1]).astype(dtype))
    theirs = cupy.asarray(array)
    assert theirs.dtype == array.dtype
    assert al.asarray(theirs).dtype == al.from_dlpack(theirs).dtype == array.dtype


def test_a_kernel_of_cupy_writes_into_our_memory(cupy):
    source = """extern "C" __global__ void ramp(float* out, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) out[i] = i;
    }"""
    kernel = cupy.RawKernel(source, "ramp")
    array = make(np.zeros(1000, "f4"))
    kernel((8,), (128,), (cupy.asarray(array), np.int32(1000)))
    cupy.cuda.get_current_stream().synchronize()
    np.testing.assert_array_equal(array.numpy(), np.arange(1000, dtype="f4"))


@pytest.mark.parametrize("take", [al.asarray, al.from_dlpack])
def test_memory_of_cupy_lives_as_long_as_our_array(cupy, take):
    pool = cupy.cuda.MemoryPool()
    with cupy.cuda.using_allocator(pool.malloc):
        theirs = cupy.full(1000, 7.0)
    array = take(theirs)
    assert array.ptr == theirs.data.ptr
    assert array.allocator is None
    del theirs
    gc.collect()
    assert pool.used_bytes() > 0
    assert (array.numpy() == 7).all()
    del array
    gc.collect()
    assert pool.used_bytes() == 0


@pytest.mark.parametrize("give", ["asarray", "from_dlpack"])
def test_our_memory_lives_as_long_as_cupys_array(cupy, give):
    array = make(np.ones(1000))
    account, gone = array.account, weakref.ref(array)
    live = account.statistics().live
    theirs = getattr(cupy, give)(array)
    del array
    gc.collect()
    assert account.statistics().live == live
    assert float(theirs.sum()) == 1000
    del theirs
    gc.collect()
    assert gone() is None
    assert account.statistics().live == live - 1


@pytest.mark.parametrize("take", [al.asarray, al.from_dlpack])
def test_we_wait_for_a_stream_of_cupy(cupy, take):
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        theirs = cupy.zeros(ENOUGH_WORK)
        for _ in range(20):
            theirs += 1
        array = take(theirs)
    assert (array.numpy() == 20).all()


def test_cupy_waits_for_our_stream(cupy):
    array = make(np.zeros(ENOUGH_WORK))
    with al.ScopedStream(al.Stream("cuda:0", non_blocking=True)):
        for value in range(20):
            array.fill_(value)
        theirs = cupy.asarray(array)
    assert float(theirs[-1]) == 19


# PyTorch


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_torch_shares_our_memory_by_the_array_interface(torch, allocator):
    array = make(np.arange(12.0).reshape(3, 4), allocator)
    tensor = torch.as_tensor(array, device="cuda:0")
    assert tensor.data_ptr() == array.ptr
    tensor.mul_(2)
    torch.cuda.synchronize()
    np.testing.assert_array_equal(array.numpy(), 2 * np.arange(12.0).reshape(3, 4))


@pytest.mark.parametrize("allocator", PLAIN)
def test_torch_shares_our_memory_by_dlpack(torch, allocator):
    array = make(np.arange(12.0).reshape(3, 4), allocator)
    tensor = torch.from_dlpack(array)
    assert (tensor.data_ptr(), tensor.device.type) == (array.ptr, "cuda")
    tensor.mul_(2)
    torch.cuda.synchronize()
    np.testing.assert_array_equal(array.numpy(), 2 * np.arange(12.0).reshape(3, 4))


class AsDeviceMemory:
    """Managed memory, presented to a consumer as plain memory of its device."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return 2, self.array.device.ordinal

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**{**options, "dl_device": self.__dlpack_device__()})


def test_torch_takes_managed_memory_that_is_presented_as_device_memory(torch):
    array = make(np.arange(12.0), "managed")
    tensor = torch.from_dlpack(AsDeviceMemory(array))
    assert (tensor.data_ptr(), tensor.device.type) == (array.ptr, "cuda")
    assert tensor.sum().item() == 66


def test_torch_shares_managed_memory_under_its_own_name_or_refuses_the_name(torch):
    """DLPack's device type 13: versions of PyTorch that do not know it refuse the capsule, and nothing leaks."""
    array = make(np.arange(12.0), "managed")
    account, live = array.account, array.account.statistics().live
    with suppress(BufferError, RuntimeError, ValueError):
        assert torch.from_dlpack(array).data_ptr() == array.ptr
    del array
    gc.collect()
    assert account.statistics().live == live - 1


@pytest.mark.parametrize("view", [lambda a: a.T, lambda a: a[::2, 1:]])
def test_torch_sees_a_strided_view_as_numpy_does(torch, view):
    values = np.arange(24.0).reshape(4, 6)
    array = view(make(values))
    tensor = torch.from_dlpack(array)
    assert tensor.data_ptr() == array.ptr
    assert tuple(8 * step for step in tensor.stride()) == array.strides
    np.testing.assert_array_equal(tensor.cpu().numpy(), view(values))


@pytest.mark.parametrize("take", [al.asarray, al.from_dlpack])
@pytest.mark.parametrize("view", [lambda t: t, lambda t: t.T, lambda t: t[::2, 1:], lambda t: t[:0]])
def test_memory_of_torch_is_shared_as_it_is(torch, take, view):
    tensor = view(torch.arange(24.0, device="cuda:0").reshape(4, 6))
    array = take(tensor)
    assert array.shape == tuple(tensor.shape)
    assert not array.size or array.ptr == tensor.data_ptr()
    np.testing.assert_array_equal(array.numpy(), tensor.cpu().numpy())


@pytest.mark.parametrize(
    "dtype", ["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "bool"]
)
def test_every_type_goes_to_torch_and_back(torch, dtype):
    array = make(np.array([0, 1, 1]).astype(dtype))
    tensor = torch.from_dlpack(array)
    assert tensor.dtype is getattr(torch, dtype)
    assert al.from_dlpack(tensor).dtype == array.dtype


def test_a_type_that_numpy_does_not_have_is_refused_and_nothing_leaks(torch):
    before = torch.cuda.memory_allocated()
    tensor = torch.ones(4, dtype=torch.bfloat16, device="cuda:0")
    with pytest.raises(TypeError, match="DLPack elements of code 4"):
        al.from_dlpack(tensor)
    del tensor
    gc.collect()
    assert torch.cuda.memory_allocated() == before


def test_memory_of_torch_lives_as_long_as_our_array(torch):
    before = torch.cuda.memory_allocated()
    tensor = torch.full((1000,), 7.0, device="cuda:0")
    array = al.from_dlpack(tensor)
    del tensor
    gc.collect()
    assert torch.cuda.memory_allocated() > before
    assert (array.numpy() == 7).all()
    del array
    gc.collect()
    assert torch.cuda.memory_allocated() == before


def test_our_memory_lives_as_long_as_torchs_tensor(torch):
    array = make(np.ones(1000))
    account, live = array.account, array.account.statistics().live
    tensor = torch.from_dlpack(array)
    del array
    gc.collect()
    assert account.statistics().live == live
    assert tensor.sum().item() == 1000
    del tensor
    gc.collect()
    assert account.statistics().live == live - 1


@pytest.mark.parametrize("take", [al.asarray, al.from_dlpack])
def test_we_wait_for_a_stream_of_torch(torch, take):
    with torch.cuda.stream(torch.cuda.Stream()):
        tensor = torch.zeros(ENOUGH_WORK, device="cuda:0")
        for _ in range(20):
            tensor += 1
        array = take(tensor)
    assert (array.numpy() == 20).all()


def test_torch_waits_for_our_stream(torch):
    array = make(np.zeros(ENOUGH_WORK))
    with al.ScopedStream(al.Stream("cuda:0", non_blocking=True)):
        for value in range(20):
            array.fill_(value)
        with torch.cuda.stream(torch.cuda.Stream()):
            total = torch.from_dlpack(array).sum().item()
    assert total == 19 * ENOUGH_WORK


def test_page_locked_memory_of_torch_is_known_as_such(torch):
    tensor = torch.ones(1000).pin_memory()
    array = al.from_dlpack(tensor)
    assert (array.device.alias, array.ptr, array.pinned) == ("cpu", tensor.data_ptr(), True)


# NumPy


def test_numpy_reads_page_locked_and_managed_memory_where_it_is():
    pinned = al.full(1000, 3.0, device="cpu", pinned=True)
    assert np.from_dlpack(pinned).ctypes.data == pinned.ptr
    managed = make(np.zeros(1000), "managed").fill_(3)
    if not managed.device.is_concurrent_managed_access_supported:
        pytest.skip("host code may touch managed memory of this device only while it rests")
    assert (np.from_dlpack(managed) == 3).all()


def test_memory_of_a_device_does_not_become_a_numpy_array_unasked():
    with pytest.raises(TypeError, match=r"use .numpy\(\) to copy it"):
        np.asarray(make(np.zeros(4)))


@pytest.mark.multi_gpu
@pytest.mark.parametrize("allocators", [(a, b) for a in ALLOCATORS for b in ALLOCATORS], ids="-".join)
def test_contents_move_between_devices_from_any_memory_to_any_other(allocators):
    values = np.arange(48.0).reshape(6, 8)
    with al.ScopedAllocator("cuda:1", allocators[0]), al.ScopedAllocator("cuda:0", allocators[1]):
        source, dest = al.array(values, device="cuda:1"), al.zeros((6, 8), device="cuda:0")
        al.copy(dest, source)
        np.testing.assert_array_equal(dest.numpy(), values)
        dest[::2, ::-1] = source[1::2]
    expected = values.copy()
    expected[::2, ::-1] = values[1::2]
    np.testing.assert_array_equal(dest.numpy(), expected)
