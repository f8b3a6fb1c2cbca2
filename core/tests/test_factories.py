"""Making arrays: what is asked for is what is allocated, or nothing is."""

from __future__ import annotations

import numpy as np
import pytest

import allotment as al
from allotment import factories

DTYPES = [
    "?",
    "i1",
    "u2",
    "i4",
    "u8",
    "f2",
    "f4",
    "f8",
    "c8",
    "c16",
    "M8[s]",
    "m8[ns]",
    ">i4",
    [("a", "u1"), ("b", "f4")],
]


@pytest.fixture(autouse=True)
def sim():
    with al.simulate("2xh200") as platform:
        yield platform


@pytest.fixture
def books():
    """The accounts of the allocator in force on cuda:0."""
    return lambda: al.get_allocator(device="cuda:0").statistics()


@pytest.mark.parametrize("device", ["cpu", "cuda:0", "cuda:1"])
@pytest.mark.parametrize("shape", [4, (), (2, 3), [2, 3], np.int64(4), (np.int32(2), np.uint8(3))])
def test_an_empty_array_has_the_shape_type_and_device_that_were_asked_for(shape, device):
    array = al.empty(shape, "f4", device)
    assert array.shape == np.empty(shape).shape
    assert all(type(extent) is int for extent in array.shape)
    assert (array.dtype, array.device) == (np.dtype("f4"), al.get_device(device))
    assert al.get_allocator(device=device).statistics().current == array.nbytes == array.size * 4


def test_arrays_are_of_64_bit_floats_on_the_default_device_if_nothing_is_said():
    assert al.empty(1).dtype == np.float64
    assert al.empty(1).device.alias == "cuda:0"
    with al.ScopedDevice("cuda:1"):
        assert al.empty(1).device.alias == "cuda:1"


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_zeros_ones_and_full_set_every_element_as_numpy_does(dtype, device):
    np.testing.assert_array_equal(al.zeros(3, dtype, device).numpy(), np.zeros(3, dtype))
    np.testing.assert_array_equal(al.ones(3, dtype, device).numpy(), np.array([1, 1, 1]).astype(dtype))
    np.testing.assert_array_equal(al.full(3, 0, dtype, device).numpy(), np.zeros(3, dtype))


@pytest.mark.parametrize("value", [7, 2.5, True, 1j, np.float32(3), np.datetime64("2020-01-01"), "abc", b"xy"])
def test_full_takes_the_type_of_its_value(value):
    assert al.full(2, value).dtype == np.asarray(value).dtype
    np.testing.assert_array_equal(al.full(2, value).numpy(), np.full(2, value))


def test_pinned_arrays_are_page_locked_host_memory():
    array = al.zeros(4, device="cpu", pinned=True)
    assert (array.pinned, array.memory_kind) == (True, al.MemoryKind.PINNED)
    assert al.zeros(4, device="cpu").memory_kind is al.MemoryKind.HOST


def test_pinned_on_a_cuda_device_is_refused(sim):
    sim.calls.clear()
    with pytest.raises(ValueError, match="page-locked host memory: use device='cpu', not 'cuda:0'"):
        al.empty(4, device="cuda:0", pinned=True)
    assert not sim.calls.named("host_alloc", "malloc_from_pool")


@pytest.mark.parametrize(
    "make", [al.empty_like, al.zeros_like, al.ones_like, lambda other, **k: al.full_like(other, 3, **k)]
)
def test_the_like_forms_take_shape_type_device_and_page_locking_of_another_array(make):
    pinned = al.empty((2, 3), "i2", "cpu", pinned=True)
    for other in (al.empty((2, 3), "i2", "cuda:1"), pinned):
        array = make(other)
        assert (array.shape, array.dtype, array.device, array.pinned) == ((2, 3), "i2", other.device, other.pinned)
    assert not make(pinned, pinned=False).pinned
    assert make(pinned, device="cuda:0", dtype="f4").dtype == np.float32
    assert make(np.empty((2, 3), "i2")).device.alias == "cuda:0"


# Zero


@pytest.mark.parametrize("shape", [0, (0,), (3, 0), (0, 5, 2)])
@pytest.mark.parametrize("allocator", ["default", "mempool", "managed"])
def test_an_array_without_elements_never_reaches_the_allocator(sim, allocator, shape):
    al.set_device_allocator("cuda:0", allocator)
    al.empty(1)
    sim.calls.clear()
    array = al.zeros(shape, device="cuda:0")
    assert (array.ptr, array.nbytes, array.shape) == (0, 0, al.empty(shape, device="cpu").shape)
    assert array.memory_kind is al.get_allocator(allocator, "cuda:0").memory_kind
    assert array.allocator is al.get_allocator(allocator, "cuda:0")
    array.fill_(3)
    assert array.numpy().shape == array.copy().shape == array.shape
    del array
    assert not sim.calls.named("malloc", "malloc_from_pool", "malloc_managed", "free", "free_async", "fill", "copy")
    assert al.get_allocator(allocator, "cuda:0").statistics().current == 0


# What is refused is refused before anything is called


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((-1,), ValueError),
        (((2, -1),), ValueError),
        ((1024.0,), TypeError),
        (("1024",), TypeError),
        ((None,), TypeError),
        ((2**63,), ValueError),
        (((2**32, 2**32),), ValueError),
        (((0, 2**63),), ValueError),
        ((4, "nonsense"), TypeError),
        ((4, object), TypeError),
        ((4, "U"), TypeError),
        ((4, (np.float32, (2,))), TypeError),
        ((4, float, "cuda:7"), al.DeviceNotFoundError),
        ((4, float, 1.5), TypeError),
    ],
)
def test_what_no_array_can_be_is_refused_before_anything_is_called(sim, arguments, error):
    sim.calls.clear()
    with pytest.raises(error):
        al.empty(*arguments)
    assert not sim.calls.named("malloc", "malloc_from_pool")


@pytest.mark.parametrize(
    ("shape", "dtype", "nbytes"),
    [(3 * 10**9, "u1", 3 * 10**9), (5 * 10**9, "u1", 5 * 10**9), ((70_000, 70_000), "f4", 19_600_000_000)],
)
def test_a_count_of_elements_above_32_bits_gives_the_right_bytes(books, shape, dtype, nbytes):
    array = al.empty(shape, dtype, "cuda:0")
    assert array.nbytes == books().current == nbytes
    last = array[-1] if array.ndim == 1 else array[-1, -1]
    assert last.ptr == array.ptr + nbytes - array.itemsize


@pytest.mark.parametrize("dtype", [(np.record, [("a", "i4")]), [("a", "i4")], {"names": ["a"], "formats": ["i4"]}])
def test_a_type_that_cannot_be_hashed_is_a_type_all_the_same(dtype):
    assert al.empty(2, dtype).dtype == al.empty(2, dtype).dtype == np.dtype(dtype)


# Out of memory


def test_out_of_memory_is_a_typed_error_and_leaves_the_books_as_they_were(books):
    held = al.empty(2**30, "u1", "cuda:0")
    before = books()
    with pytest.raises(al.OutOfMemoryError, match="asked of allocator 'mempool' on 'cuda:0'") as caught:
        al.empty(2**40, "u1", "cuda:0")
    assert caught.value.requested == 2**40
    assert caught.value.in_use == held.nbytes
    assert books().current == before.current
    assert al.empty(4, device="cuda:0").ptr


@pytest.mark.parametrize("allocator", ["default", "mempool"])
def test_a_kept_out_of_memory_error_keeps_no_array_that_the_user_dropped(allocator):
    al.set_device_allocator("cuda:0", allocator)
    arrays = []

    def fill_up():
        while True:
            arrays.append(al.empty(16 * 2**30, "u1", "cuda:0"))

    with pytest.raises(al.OutOfMemoryError) as kept:
        fill_up()
    assert kept.value.in_use == len(arrays) * 16 * 2**30
    arrays.clear()
    assert al.get_allocator(device="cuda:0").statistics().current == 0
    assert al.empty(16 * 2**30, "u1", "cuda:0").ptr
    assert all(isinstance(fact, int | str | None) for fact in vars(kept.value).values())


@pytest.mark.parametrize(
    "make", [lambda: al.zeros(5), lambda: al.ones(5), lambda: al.full(5, 2.5), lambda: al.ones_like(np.ones(5))]
)
def test_an_array_that_cannot_be_filled_is_given_back_though_its_error_is_kept(sim, books, make):
    for call in ("fill", "fill_elements"):
        sim.fail(call, code="cudaErrorInvalidValue", times=1)
    with pytest.raises(al.PlatformError) as kept:
        make()
    assert kept.value.code == "cudaErrorInvalidValue"
    assert books().current == 0
    assert books().allocations == books().frees == 1


def test_an_array_whose_value_does_not_fit_is_given_back(books):
    with pytest.raises(ValueError, match="300 is not an element of uint8") as kept:
        al.full(5, 300, "u1", "cuda:0")
    assert kept.value is not None
    assert books().current == 0


SHAPES = [0, 3, (), (3,), (2, 3), (2, 0), [2, 3], np.int64(3), (np.int32(2), 3), (True, 2), True, 2.5, "3", None]
SHAPES += [-1, (2, -1), (-2, -2), 2**45, 2**62, 2**63, 2**70, (2**40, 2**40), (0, 2**63), (2**31, 2**31, 2)]


@pytest.mark.parametrize("device", [None, "cpu", "cuda:1", 1, "cuda:9", True, 2.5], ids=repr)
@pytest.mark.parametrize("dtype", [float, "f4", np.int16, np.dtype("c16"), "O", "S0", "nonsense", {}], ids=repr)
@pytest.mark.parametrize("pinned", [False, True, 0, 1])
def test_arrays_and_errors_are_the_same_whether_python_or_c_makes_them(pinned, dtype, device):
    for shape in SHAPES:
        for _ in range(2):  # the type and the allocator are remembered from the first
            usual = _outcome(al.empty, shape, dtype, device, pinned)
            assert usual == _outcome(factories._any_empty, shape, dtype, device, pinned)


def test_the_allocator_of_a_scope_makes_arrays_also_where_one_was_remembered(recording):
    al.empty(4)
    allocator = recording()
    with al.ScopedAllocator("cuda:0", allocator):
        assert al.empty(4, "f4").allocator is allocator
    assert al.empty(4, "f4").allocator is not allocator
    assert [size for _, size in allocator.allocated] == [16]


def _outcome(empty, *given):
    try:
        array = empty(*given)
    except Exception as error:  # whatever it is, the other must raise it too
        return type(error), str(error)
    assert type(array) is al.Array
    assert all(type(extent) is int for extent in array.shape)
    nbytes, kind = array._capacity, array._kind
    return array.shape, array.dtype, array.device, array.allocator, array.memory_kind, nbytes, kind, array.readonly
