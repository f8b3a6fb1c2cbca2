"""Memory of another owner: what is refused, who keeps it alive, and what becomes of it."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import allotment as al
from allotment.platform import allocate_host, free_host


@pytest.fixture
def sim():
    with al.simulate("2xh200") as platform:
        yield platform


@pytest.fixture
def block(sim):
    """A block of 4096 bytes of cuda:1 that the test owns."""
    sim.set_current_device(1)
    ptr = sim.malloc(4096)
    sim.set_current_device(0)
    yield ptr
    sim.free(ptr)


class Owner:
    """Something that can be watched."""


def test_the_array_is_over_the_memory(sim, block):
    array = al.from_pointer(block, (2, 3), "f4", "cuda:1")
    assert (array.ptr, array.shape, array.dtype, array.device.alias) == (block, (2, 3), np.float32, "cuda:1")
    assert (array.allocator, array.memory_kind) == (None, al.MemoryKind.CUDA_DEVICE)
    array.fill_(7)
    assert al.from_pointer(block, 6, "f4", "cuda:1").numpy().tolist() == [7] * 6


def test_the_default_device_and_64_bit_floats_are_meant_if_nothing_is_said(sim):
    ptr = sim.malloc(64)
    array = al.from_pointer(ptr, 8)
    assert (array.device.alias, array.dtype) == ("cuda:0", np.float64)


def test_it_can_be_memory_of_the_host():
    ptr = allocate_host(64)
    array = al.from_pointer(ptr, 8, device="cpu", deleter=lambda ptr, _: free_host(ptr))
    array.fill_(3)
    assert array.memory_kind is al.MemoryKind.HOST
    assert array.numpy().tolist() == [3] * 8


@pytest.mark.parametrize("narrow", [np.int32, np.int16])
def test_numpys_narrow_integers_do_not_wrap_in_addresses(sim, block, narrow):
    shape, strides = np.array([3, 5], narrow), np.array([-40, 8], narrow)
    array = al.from_pointer(np.uint64(block), shape, "f8", "cuda:1", strides=strides)
    assert block > 2**32
    assert all(type(number) is int for number in (array.ptr, *array.shape, *array.strides))
    assert array[2, 1].ptr == block - 2 * 40 + 8


def test_strides_above_32_bits_are_exact(sim):
    array = al.from_pointer(2**40, (2, 2**20), "f4", "cuda:0", strides=(5 * 2**30, 4))
    assert array[1, 3].ptr == 2**40 + 5 * 2**30 + 12


# Owners and deleters


def test_the_owner_lives_as_long_as_the_last_view(sim, block):
    owner = Owner()
    gone = weakref.ref(owner)
    array = al.from_pointer(block, 8, device="cuda:1", owner=owner)
    assert array.owner is owner
    view = array[2:][1:]
    del owner, array
    gc.collect()
    assert gone() is not None
    del view
    gc.collect()
    assert gone() is None


def test_an_owner_that_is_an_array_is_kept_and_says_nothing_about_the_memory(sim, block):
    owner = al.zeros(4, device="cpu")
    array = al.from_pointer(block, 8, device="cuda:1", owner=owner)
    assert array.owner is owner
    assert (array.allocator, array.memory_kind) == (None, al.MemoryKind.CUDA_DEVICE)


@pytest.mark.parametrize(("capacity", "told"), [(None, 64), (4096, 4096)])
def test_the_deleter_is_called_once_with_the_capacity_when_the_last_view_is_gone(sim, block, capacity, told):
    calls = []
    array = al.from_pointer(block, 8, device="cuda:1", capacity=capacity, deleter=lambda *call: calls.append(call))
    view = array[1:]
    del array
    gc.collect()
    assert not calls
    del view
    gc.collect()
    assert calls == [(block, told)]


def test_the_deleter_runs_with_the_device_current(sim, block):
    seen = []
    array = al.from_pointer(block, 8, device="cuda:1", deleter=lambda *_: seen.append(sim.current_device()))
    del array
    assert seen == [1]
    assert sim.current_device() == 0


def test_a_deleter_that_fails_is_a_warning(sim, block):
    def broken(ptr, nbytes):
        raise OSError("no")

    array = al.from_pointer(block, 8, device="cuda:1", deleter=broken)
    with pytest.warns(al.FreeFailedWarning, match="64 bytes at .* its owner and are lost: OSError: no"):
        del array


# Null and refused


@pytest.mark.parametrize("null", [0, None])
def test_null_is_an_empty_array(sim, null):
    array = al.from_pointer(null, (0, 3), device="cuda:1")
    assert (array.ptr, array.shape, array.nbytes) == (0, (0, 3), 0)
    assert array.numpy().shape == (0, 3)


def test_an_empty_array_has_no_address_though_its_memory_has(sim, block):
    calls = []
    array = al.from_pointer(block, 0, device="cuda:1", capacity=4096, deleter=lambda *call: calls.append(call))
    assert array.ptr == 0
    del array
    assert calls == [(block, 4096)]


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((0, 4), {}, ValueError, "32 bytes cannot be at address 0"),
        ((None, 4), {}, ValueError, "32 bytes cannot be at address 0"),
        ((-8, 4), {}, ValueError, "cannot be at address -8"),
        ((4096.0, 4), {}, TypeError, "float"),
        (("4096", 4), {}, TypeError, "str"),
        ((4096, -4), {}, ValueError, "negative"),
        ((4096, 4, "O"), {}, TypeError, "Python objects"),
        ((4096, (2, 2)), {"strides": (8,)}, ValueError, "1 strides do not fit 2 dimensions"),
        ((4096, 2), {"strides": (8.0,)}, TypeError, "float"),
        ((4096, 2), {"strides": (12,)}, ValueError, "not multiples of the 8 bytes"),
        ((4096, 5), {"capacity": 39}, ValueError, "reaches bytes 0 to 40 of 39"),
        ((4096, (3, 3), "f4"), {"strides": (16, 4), "capacity": 36}, ValueError, "reaches bytes 0 to 44 of 36"),
        ((4096, (3, 3), "f4"), {"strides": (-12, 4), "capacity": 36}, ValueError, "reaches bytes -24 to 12 of 36"),
        ((4096, 4, "f8", "cuda:9"), {}, al.DeviceNotFoundError, "cuda:9"),
    ],
)
def test_what_cannot_be_is_refused_and_the_memory_stays_the_callers(sim, arguments, options, error, message):
    calls = []
    with pytest.raises(error, match=message):
        al.from_pointer(*arguments, deleter=lambda *call: calls.append(call), **options)
    gc.collect()
    assert not calls


@pytest.mark.parametrize("strides", [(4, 12), (12, 4), (0, 4)])
def test_strides_within_the_capacity_touch_nothing_else(sim, block, strides):
    guarded = al.from_pointer(block, 1024, "u1", "cuda:1").fill_(0xAA)
    al.from_pointer(block + 512, (3, 3), "f4", "cuda:1", strides=strides, capacity=36).fill_(1.5)
    contents = guarded.numpy()
    assert (contents[:512] == 0xAA).all()
    assert (contents[512 + 36 :] == 0xAA).all()


def test_readonly_memory_is_not_written(sim, block):
    with pytest.raises(ValueError, match="read-only"):
        al.from_pointer(block, 8, device="cuda:1", readonly=True).zero_()


def test_strides_of_the_host_may_be_those_of_a_packed_record(sim):
    records = np.zeros(4, [("flag", "u1"), ("value", "f8")])
    field = al.from_pointer(records.ctypes.data + 1, 4, "f8", "cpu", strides=(9,), owner=records)
    field.fill_(2.5)
    assert records["value"].tolist() == [2.5] * 4
    assert al.array(field, device="cuda:0").numpy().tolist() == [2.5] * 4
