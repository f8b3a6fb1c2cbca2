"""Aligned pageable memory of the host."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.errors import InvalidPointerError
from allotment.platform import HOST_ALIGNMENT, allocate_host, free_host

GIB = 1 << 30


def test_memory_can_be_written_and_read_to_its_last_byte():
    ptr = allocate_host(1000)
    ctypes.memset(ptr, 0xA5, 1000)
    assert ctypes.string_at(ptr, 1000) == b"\xa5" * 1000
    free_host(ptr)


@given(nbytes=st.integers(1, 1 << 16), power=st.integers(0, 12))
def test_memory_is_aligned_as_asked(nbytes: int, power: int):
    ptr = allocate_host(nbytes, 1 << power)
    assert ptr > 0
    assert ptr % (1 << power) == 0
    ctypes.memset(ptr, 1, nbytes)
    free_host(ptr)


def test_memory_is_aligned_to_a_cache_line_unless_asked_otherwise():
    ptr = allocate_host(1)
    assert ptr % HOST_ALIGNMENT == 0
    free_host(ptr)


@given(sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=50))
def test_live_blocks_never_overlap(sizes: list[int]):
    blocks = sorted((allocate_host(size), size) for size in sizes)
    assert all(ptr + size <= following for (ptr, size), (following, _) in pairwise(blocks))
    for ptr, _ in blocks:
        free_host(ptr)


@pytest.mark.parametrize("nbytes", [0, -1])
def test_a_size_that_is_not_positive_is_refused(nbytes: int):
    with pytest.raises(ValueError, match="positive size"):
        allocate_host(nbytes)


@pytest.mark.parametrize("alignment", [0, -8, 3, 48])
def test_an_alignment_that_is_no_power_of_two_is_refused(alignment: int):
    with pytest.raises(ValueError, match="power of two"):
        allocate_host(64, alignment)


def test_a_size_that_no_machine_has_is_a_memory_error():
    with pytest.raises(MemoryError):
        allocate_host(1 << 60)


def test_a_double_free_is_refused():
    ptr = allocate_host(64)
    free_host(ptr)
    with pytest.raises(InvalidPointerError) as refusal:
        free_host(ptr)
    assert (refusal.value.pointer, refusal.value.allocator) == (ptr, "host")


def test_the_free_of_an_interior_address_is_refused_and_the_block_stays_live():
    ptr = allocate_host(256)
    with pytest.raises(InvalidPointerError):
        free_host(ptr + 64)
    free_host(ptr)


@pytest.mark.parametrize("ptr", [0, 0xDEAD000])
def test_the_free_of_a_foreign_address_is_refused(ptr: int):
    with pytest.raises(InvalidPointerError):
        free_host(ptr)


def test_any_thread_may_free():
    ptr = allocate_host(1 << 20)
    thread = Thread(target=free_host, args=(ptr,))
    thread.start()
    thread.join()
    with pytest.raises(InvalidPointerError):
        free_host(ptr)


def test_threads_that_allocate_and_free_at_once_get_blocks_of_their_own():
    def work(mark: int) -> bool:
        intact = True
        for round_ in range(300):
            nbytes = 16 + (mark * 31 + round_ * 17) % 4000
            ptr = allocate_host(nbytes)
            ctypes.memset(ptr, mark, nbytes)
            intact &= ctypes.string_at(ptr, nbytes) == bytes([mark]) * nbytes
            free_host(ptr)
        return intact

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(1, 9)))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from Linux's /proc")
def test_a_large_block_costs_nothing_until_it_is_touched():
    before = resident_pages()
    ptr = allocate_host(2 * GIB)
    grown = (resident_pages() - before) * 4096
    free_host(ptr)
    assert grown < GIB // 4


def resident_pages() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1])


@pytest.mark.parametrize("nbytes", [2**63 - 1, 2**62])
def test_more_than_a_process_can_address_is_out_of_memory(nbytes):
    with pytest.raises(MemoryError):
        allocate_host(nbytes)
