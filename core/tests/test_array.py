"""The life of an array: who owns its memory, when it goes back, and to whom."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest

import allotment as al


class Recorder:
    """An allocator with the two methods alone, over cudaMalloc, that notes what it is asked for."""

    def __init__(self, sim, name="recorder"):
        self.sim, self.name = sim, name
        self.live = {}
        self.freed = []

    def allocate(self, size_in_bytes):
        ptr = self.sim.malloc(size_in_bytes)
        self.live[ptr] = size_in_bytes
        return ptr

    def deallocate(self, ptr, size_in_bytes):
        assert self.live.pop(ptr) == size_in_bytes
        self.freed.append((ptr, size_in_bytes))
        self.sim.free(ptr)


@pytest.fixture
def sim():
    with al.simulate("2xh200") as platform:
        yield platform


@pytest.fixture
def recorder(sim):
    allocator = Recorder(sim)
    al.set_device_allocator("cuda:0", allocator)
    return allocator


# Freeing


def test_memory_goes_back_once_with_the_size_that_was_asked_for(recorder):
    array = al.empty(100, "f4", "cuda:0")
    ptr = array.ptr
    assert recorder.live == {ptr: 400}
    del array
    gc.collect()
    assert recorder.freed == [(ptr, 400)]


@pytest.mark.parametrize("then", ["default", "mempool", None])
def test_memory_goes_back_to_the_allocator_that_made_it_whatever_is_selected_by_then(recorder, then):
    array = al.empty(100, "f4", "cuda:0")
    al.set_device_allocator("cuda:0", then)
    assert array.allocator is recorder
    del array
    assert len(recorder.freed) == 1


def test_an_array_of_a_scope_goes_back_to_the_allocator_of_the_scope(sim):
    inner, outer = Recorder(sim, "inner"), Recorder(sim, "outer")
    with al.ScopedAllocator("cuda:0", inner):
        array = al.empty(8)
    with al.ScopedAllocator("cuda:0", outer):
        del array
    assert (len(inner.freed), len(outer.freed)) == (1, 0)


def test_an_allocator_lives_as_long_as_its_arrays(sim):
    allocator = Recorder(sim)
    with al.ScopedAllocator("cuda:0", allocator):
        array = al.empty(8)
    gone = weakref.ref(allocator)
    del allocator
    gc.collect()
    assert gone() is array.allocator
    del array
    gc.collect()
    assert gone() is None


def test_an_array_is_freed_with_its_device_current(sim):
    seen = []

    class Seeing(Recorder):
        def deallocate(self, ptr, size_in_bytes):
            seen.append(self.sim.current_device())
            super().deallocate(ptr, size_in_bytes)

    al.set_device_allocator("cuda:1", Seeing(sim))
    al.set_device("cuda:0")
    array = al.empty(4, device="cuda:1")
    del array
    assert seen == [1]
    assert sim.current_device() == 0


def test_an_array_in_a_cycle_goes_back_when_the_cycle_is_collected(recorder):
    cycle = {"array": al.empty(8, device="cuda:0")}
    cycle["view"], cycle["self"] = cycle["array"][2:], cycle
    del cycle
    assert not recorder.freed
    gc.collect()
    assert len(recorder.freed) == 1


def test_an_array_that_outlives_its_simulation_is_freed_in_it():
    with al.simulate("2xh200") as sim:
        array = al.ones(4, device="cuda:0")
    np.testing.assert_array_equal(array.numpy(), np.ones(4))
    del array
    assert len(sim.calls.named("free_async")) == 1


@pytest.mark.parametrize(
    "error", [RuntimeError("broken"), TypeError("broken"), AttributeError("broken"), KeyboardInterrupt()]
)
def test_a_free_that_fails_in_the_finaliser_is_a_warning_and_stays_on_the_books(sim, error):
    class Failing(Recorder):
        def deallocate(self, ptr, size_in_bytes):
            raise error

    al.set_device_allocator("cuda:0", Failing(sim, "failing"))
    array = al.empty(100, "u1", "cuda:0")
    with pytest.warns(al.FreeFailedWarning, match=f"100 bytes at .* allocator 'failing' .* {type(error).__name__}"):
        del array
    statistics = al.get_allocator(device="cuda:0").statistics()
    assert (statistics.current, statistics.failed_frees, statistics.frees) == (100, 1, 0)


def test_a_platform_error_in_the_finaliser_is_named(sim):
    al.set_device_allocator("cuda:0", "default")
    array = al.empty(100, "u1", "cuda:0")
    sim.fail("free", code="cudaErrorInvalidValue")
    with pytest.warns(al.FreeFailedWarning, match="cudaFree failed: cudaErrorInvalidValue"):
        del array


def test_an_array_that_was_never_made_leaves_nothing_to_finalise():
    with pytest.raises(TypeError):
        al.Array()


# Views


@pytest.mark.parametrize(
    "view_of",
    [
        lambda a: a[1:],
        lambda a: a[0],
        lambda a: a[1][2],
        lambda a: a.reshape(-1),
        lambda a: a.T,
        lambda a: a[::-1, None],
        lambda a: a.view("i4"),
        lambda a: a.flatten()[3:][1:],
        lambda a: a.broadcast_to((2, 3, 4)),
    ],
)
def test_a_view_keeps_its_owner_alive_and_says_what_it_says(recorder, view_of):
    array = al.empty((3, 4), "f4", "cuda:0")
    view = view_of(array)
    owner = weakref.ref(array)
    assert view.owner is array
    assert (view.allocator, view.memory_kind, view.device) == (recorder, array.memory_kind, array.device)
    del array
    gc.collect()
    assert not recorder.freed
    assert owner() is not None
    del view
    assert len(recorder.freed) == 1


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize(
    "key",
    [
        0,
        -1,
        (1, 2),
        slice(1, None),
        slice(None, None, -1),
        (slice(None), 1),
        (..., None, 2),
        (None, 1, slice(3, 0, -2)),
    ],
    ids=str,
)
def test_a_slice_holds_what_numpys_slice_holds(sim, device, key):
    expected = np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(al.array(expected, device=device)[key].numpy(), expected[key])


@pytest.mark.parametrize("key", [slice(2, 2), slice(5, None), (slice(None), slice(4, 0)), (slice(0, 0), 3)])
def test_an_empty_slice_of_a_full_array_has_no_address_but_a_kind(sim, key):
    view = al.zeros((3, 4), device="cuda:0")[key]
    assert (view.ptr, view.size) == (0, 0)
    assert view.memory_kind is al.MemoryKind.CUDA_MEMPOOL
    assert view.numpy().shape == view.shape


def test_reshape_takes_extents_apart_together_and_from_numpy(sim):
    array = al.zeros((3, 4))
    for shape in ((2, 6), [2, 6], np.array([2, -1], np.int32)):
        assert array.reshape(shape).shape == (2, 6)
    assert array.reshape(2, -1).shape == (2, 6)
    assert array.reshape(12).flatten().shape == (12,)


@pytest.mark.parametrize("shape", [(5, 2), (-1, -1), (-2, 6), (0, -1)])
def test_a_reshape_to_another_number_of_elements_is_refused(sim, shape):
    with pytest.raises(ValueError, match="shape"):
        al.zeros((3, 4)).reshape(shape)


def test_a_reshape_to_a_part_of_an_element_is_a_type_error(sim):
    with pytest.raises(TypeError):
        al.zeros((3, 4)).reshape(2.0, 6)


def test_a_strided_array_is_not_reshaped_in_place(sim):
    array = al.array(np.arange(12).reshape(3, 4))
    with pytest.raises(ValueError, match=r"use .contiguous\(\).reshape"):
        array.T.reshape(-1)
    np.testing.assert_array_equal(array.T.contiguous().reshape(-1).numpy(), np.arange(12).reshape(3, 4).T.ravel())


def test_a_contiguous_array_is_its_own_contiguous_form(sim):
    array = al.zeros((3, 4))
    assert array.contiguous() is array
    assert array.T.contiguous().is_contiguous


def test_a_transposition_that_is_no_order_of_the_dimensions_is_refused(sim):
    assert al.zeros((2, 3, 4)).transpose((1, 2, 0)).shape == (3, 4, 2)
    with pytest.raises(ValueError, match="not an order of 3 dimensions"):
        al.zeros((2, 3, 4)).transpose((0, 0, 1))


def test_a_view_as_another_type_of_the_same_size_reads_the_same_bytes(sim):
    array = al.array(np.array([1.0, -2.0], "f4"))
    np.testing.assert_array_equal(array.view("u4").numpy(), array.numpy().view("u4"))
    with pytest.raises(ValueError, match="do not have the size"):
        array.view("u8")


def test_a_view_of_a_readonly_array_is_readonly(sim):
    source = np.arange(4)
    source.flags.writeable = False
    assert al.from_numpy(source)[1:].readonly


def test_length_and_iteration_are_those_of_the_first_dimension(sim):
    array = al.array(np.arange(6).reshape(3, 2))
    assert len(array) == 3
    assert [row.numpy().tolist() for row in array] == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(TypeError, match="no length"):
        len(al.zeros(()))


def test_an_array_says_what_it_is_and_prints_what_it_holds(sim):
    array = al.array([1.0, 2.0], "f4", "cuda:1")
    assert repr(array) == "<Array float32[2] on 'cuda:1', CUDA_MEMPOOL>"
    assert str(array) == "[1. 2.]"


# Kinds


@pytest.mark.parametrize(
    ("allocator", "kind"),
    [("default", "CUDA_DEVICE"), ("mempool", "CUDA_MEMPOOL"), ("managed", "CUDA_MANAGED")],
)
def test_the_memory_kind_is_what_the_allocator_declares(sim, allocator, kind):
    al.set_device_allocator("cuda:1", allocator)
    sim.calls.clear()
    assert al.empty(4, device="cuda:1").memory_kind.name == kind
    assert not sim.calls.named("pointer_attributes")


def test_the_memory_kind_of_an_allocator_that_declares_none_is_asked_of_the_platform_once(sim, recorder):
    array = al.empty(4, device="cuda:0")
    assert array[1:].memory_kind is array.memory_kind is al.MemoryKind.CUDA_DEVICE
    assert len(sim.calls.named("pointer_attributes")) == 1


# Copies of the object


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda array: pickle.loads(pickle.dumps(array))])
@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_a_copy_of_the_object_has_memory_of_its_own(sim, duplicate, device):
    array = al.array(np.arange(6).reshape(2, 3), device=device)
    again = duplicate(array)
    assert again.ptr != array.ptr
    assert (again.device, again.dtype, again.shape) == (array.device, array.dtype, array.shape)
    array.fill_(9)
    np.testing.assert_array_equal(again.numpy(), np.arange(6).reshape(2, 3))
    del array, again
    statistics = al.get_allocator(device=device).statistics()
    assert statistics.current == 0
    assert statistics.allocations == statistics.frees


def test_every_copy_belongs_to_the_allocator_in_force_when_it_was_made(sim):
    first, second = Recorder(sim, "first"), Recorder(sim, "second")
    al.set_device_allocator("cuda:0", first)
    x = al.ones(8, device="cuda:0")
    al.set_device_allocator("cuda:0", second)
    copies = [x.copy(), x[1:3].copy(), pickle.loads(pickle.dumps(x)), copy.copy(x), x[::2].contiguous()]
    assert x.allocator is first
    assert all(made.allocator is second for made in copies)
    del x, copies
    assert not first.live
    assert not second.live
    assert (len(first.freed), len(second.freed)) == (1, 5)


def test_a_pickled_array_of_a_device_comes_back_on_the_default_device_of_its_reader(sim):
    on_device, on_host = (pickle.dumps(al.full(3, 7, "i4", device)) for device in ("cuda:0", "cpu"))
    with al.ScopedDevice("cuda:1"):
        assert pickle.loads(on_device).device.alias == "cuda:1"
        assert pickle.loads(on_host).device.alias == "cpu"


def test_a_pickled_view_holds_no_more_than_it_shows(sim):
    array = al.array(np.arange(100_000, dtype="u1"), device="cuda:0")
    assert len(pickle.dumps(array[::1000])) < 1000
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(array[::1000])).numpy(), array.numpy()[::1000])


def test_a_structure_with_gaps_survives_pickling_and_copying(sim):
    structure = np.dtype([("a", "u1"), ("b", "f8")], align=True)
    values = np.array([(1, 2.5), (3, 4.5)], structure)
    for array in (al.array(values, device="cpu"), al.array(values, device="cuda:0")):
        for again in (array, array.copy(), pickle.loads(pickle.dumps(array))):
            assert again.numpy().dtype == structure
            np.testing.assert_array_equal(again.numpy(), values)
