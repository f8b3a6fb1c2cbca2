"""Shapes, strides and indices, with NumPy as the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, basic_indices, broadcastable_shapes

from allotment._layout import (
    as_integers,
    broadcast_strides,
    contiguous_strides,
    element_type,
    index_view,
    infer_extent,
    is_contiguous,
    normalise_shape,
    reach,
    size_in_bytes,
)
from allotment.units import MAX_BYTES

shapes = array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
steps = st.integers(-3, 3).filter(bool)


def address(array):
    return array.__array_interface__["data"][0]


@st.composite
def strided_arrays(draw):
    """NumPy arrays with steps of any sign, extents of 1 and 0, and axes in any order."""
    array = np.zeros(draw(array_shapes(min_dims=0, max_dims=4, min_side=1, max_side=6)), draw(st.sampled_from("bhiq")))
    array = array[(*(slice(None, None, draw(steps)) for _ in array.shape), ...)]
    return array.transpose(draw(st.permutations(range(array.ndim))))


# Shapes


@pytest.mark.parametrize("shape", [5, np.int32(5), np.array(5), [5], (5,), np.array([5]), range(5, 6)])
def test_a_shape_is_an_integer_or_several_of_any_kind(shape):
    normal = normalise_shape(shape)
    assert normal == (5,)
    assert type(normal[0]) is int


@pytest.mark.parametrize("shape", [2.0, "2", None, (2, 3.0), (2, "3"), (2, None), "ab"])
def test_an_extent_that_is_no_integer_is_a_type_error(shape):
    with pytest.raises(TypeError):
        normalise_shape(shape)


@pytest.mark.parametrize(("shape", "axis"), [(-1, 0), ((2, -3), 1), (np.int64(-5), 0)])
def test_a_negative_extent_is_refused_and_named(shape, axis):
    with pytest.raises(ValueError, match=f"dimension {axis} of shape .* is negative"):
        normalise_shape(shape)


@pytest.mark.parametrize(
    ("shape", "itemsize", "nbytes"),
    [((3 * 10**9,), 1, 3 * 10**9), ((5 * 10**9,), 8, 4 * 10**10), ((70_000, 70_000), 4, 19_600_000_000), ((), 8, 8)],
)
def test_the_bytes_of_a_huge_shape_are_exact(shape, itemsize, nbytes):
    assert size_in_bytes(shape, itemsize) == nbytes


def test_numpys_narrow_integers_do_not_wrap():
    shape = normalise_shape(np.array([70_000, 70_000], np.int32))
    assert size_in_bytes(shape, 4) == 19_600_000_000
    assert contiguous_strides(shape, 4) == (280_000, 4)


@pytest.mark.parametrize("shape", [(2**63,), (2**32, 2**32), (2**60, 8), (0, 2**63), (2**40, 0, 2**40)])
def test_a_shape_that_no_memory_can_have_is_refused(shape):
    with pytest.raises(ValueError, match=r"above 2\^63 - 1 bytes"):
        size_in_bytes(shape, 8)


def test_the_largest_size_is_accepted():
    assert size_in_bytes((MAX_BYTES,), 1) == MAX_BYTES


# Element types


@pytest.mark.parametrize(
    "dtype", ["f2", "c16", "?", "M8[ns]", "U3", ">f8", "V5", [("a", "u1"), ("b", "f4", (2,))], float]
)
def test_types_of_a_fixed_size_are_element_types(dtype):
    assert element_type(dtype) == np.dtype(dtype)


@pytest.mark.parametrize("dtype", ["O", [("a", "O")], "U", "S0", ("f4", (2,)), "V0"])
def test_types_whose_bytes_mean_nothing_elsewhere_are_refused(dtype):
    with pytest.raises(TypeError, match="dtype"):
        element_type(dtype)


# Strides


@given(shapes, st.sampled_from([1, 2, 4, 8, 12]))
def test_contiguous_strides_are_those_of_numpy(shape, itemsize):
    assume(0 not in shape)  # where NumPy's strides of empty arrays differ between versions
    assert contiguous_strides(shape, itemsize) == np.empty(shape, f"V{itemsize}").strides


@given(strided_arrays())
def test_contiguity_is_that_of_numpy(array):
    assert is_contiguous(array.shape, array.strides, array.itemsize) == array.flags.c_contiguous


@given(strided_arrays())
def test_the_reach_of_strides_is_that_of_numpy(array):
    low, high = np.lib.array_utils.byte_bounds(array)
    assert reach(array.shape, array.strides, array.itemsize) == (low - address(array), high - address(array))


def test_an_empty_array_reaches_nothing():
    assert reach((3, 0), (8, -8), 8) == (0, 0)


# Views


@given(st.data())
def test_basic_indexing_gives_the_view_that_numpy_gives(data):
    array = data.draw(strided_arrays())
    key = data.draw(basic_indices(array.shape, allow_newaxis=True, allow_ellipsis=True))
    items = key if isinstance(key, tuple) else (key,)
    expected = array[items if ... in items else (*items, ...)]  # with "..." NumPy gives a view and never a scalar
    offset, shape, strides = index_view(array.shape, array.strides, key)
    assert shape == expected.shape
    if expected.size:
        assert address(array) + offset == address(expected)
        assert all(ours == theirs for ours, theirs, n in zip(strides, expected.strides, shape, strict=True) if n > 1)


def test_an_index_of_narrow_numpy_integers_is_exact():
    offset, shape, strides = index_view((2**20, 2**20), (2**23, 8), (np.int16(-1), slice(np.int8(1), None, np.int8(2))))
    assert (offset, shape, strides) == ((2**20 - 1) * 2**23 + 8, (2**19,), (16,))


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (3, "index 3 is out of range for dimension 0 with 3 elements"),
        (-4, "index -4 is out of range"),
        ((0, 4), "index 4 is out of range for dimension 1 with 4 elements"),
        ((0, 0, 0), "too many indices: 3 for an array with 2 dimensions"),
        ((..., ...), "at most one"),
        (1.0, "not by float"),
        ("a", "not by str"),
        ([0, 1], "not by list"),
        (True, "truth values"),
        (np.True_, "not by bool"),
    ],
)
def test_an_index_that_cannot_be_is_an_index_error(key, message):
    with pytest.raises(IndexError, match=message):
        index_view((3, 4), (32, 8), key)


@given(shapes, st.data())
def test_a_reshape_has_the_shape_that_numpy_finds(shape, data):
    array = np.empty(shape)
    wanted = data.draw(st.permutations(shape).map(tuple) | st.lists(st.integers(-1, 6), max_size=4).map(tuple))
    try:
        expected = array.reshape(wanted).shape
    except ValueError:
        with pytest.raises(ValueError, match="shape"):
            infer_extent(wanted, array.size)
    else:
        assert infer_extent(wanted, array.size) == expected


@given(st.data())
def test_broadcasting_is_that_of_numpy(data):
    array = data.draw(strided_arrays())
    wanted = data.draw(broadcastable_shapes(array.shape, max_dims=5, max_side=6))
    try:
        expected = np.broadcast_to(array, wanted)
    except ValueError:
        with pytest.raises(ValueError, match="cannot be broadcast"):
            broadcast_strides(array.shape, array.strides, wanted)
    else:
        ours = broadcast_strides(array.shape, array.strides, wanted)
        assert all(a == b for a, b, n in zip(ours, expected.strides, wanted, strict=True) if n > 1)


def test_integers_become_plain_ones():
    assert [type(number) for number in as_integers(np.array([1, 2], np.int32))] == [int, int]
