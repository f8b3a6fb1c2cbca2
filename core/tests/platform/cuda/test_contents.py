"""How elements are taken apart into words that any kernel may touch."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from allotment.platform import StridedMemory
from allotment.platform.cuda._contents import _is_contiguous, _word_size

ELEMENTS = st.builds(
    StridedMemory,
    ptr=st.integers(1, 1 << 40),
    shape=st.just((3, 2)),
    strides=st.tuples(st.integers(-64, 64), st.integers(-64, 64)),
    dtype=st.integers(1, 40).map(lambda size: np.dtype(f"V{size}")),
    device=st.just(0),
    owner=st.none(),
)


@given(memory=ELEMENTS)
def test_every_word_of_every_element_is_aligned(memory: StridedMemory):
    size = _word_size(memory)
    assert size in (1, 2, 4, 8)
    assert memory.dtype.itemsize % size == 0
    for row in range(memory.shape[0]):
        for column in range(memory.shape[1]):
            assert (memory.ptr + row * memory.strides[0] + column * memory.strides[1]) % size == 0


@given(memory=ELEMENTS, other=ELEMENTS)
def test_a_word_suits_both_ends_of_a_copy(memory: StridedMemory, other: StridedMemory):
    assert _word_size(memory) % _word_size(memory, other) == 0
    assert _word_size(other) % _word_size(memory, other) == 0


def test_aligned_doubles_are_copied_whole():
    assert _word_size(StridedMemory(256, (4,), (16,), np.dtype(np.float64), 0, None)) == 8


@given(shape=st.lists(st.integers(1, 4), max_size=4), flip=st.booleans(), swap=st.booleans())
def test_contiguous_is_what_numpy_calls_c_contiguous(shape: list[int], flip: bool, swap: bool):
    array = np.zeros(shape, np.int16)
    array = array[::-1] if flip and shape else array
    array = array.T if swap else array
    memory = StridedMemory(array.ctypes.data, array.shape, array.strides, array.dtype, 0, array)
    assert _is_contiguous(memory) == array.flags.c_contiguous
