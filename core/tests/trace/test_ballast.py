import pytest

import allotment as al
from allotment.trace import leave_free

GIB, MIB = 2**30, 2**20


@pytest.fixture
def gpu():
    with al.simulate("2xh200"):
        yield al.get_device("cuda:1")


def test_the_device_has_no_more_memory_than_was_left(gpu):
    before = gpu.free_memory
    with leave_free("8 GiB", gpu) as left:
        assert left == gpu.free_memory
        assert 8 * GIB <= left < 8 * GIB + 2 * MIB
    assert gpu.free_memory == before


def test_an_allocator_runs_out_of_memory_where_a_smaller_device_would(gpu):
    with leave_free(GIB, gpu):
        al.empty(GIB, "uint8", gpu)
        with pytest.raises(al.OutOfMemoryError):
            al.empty(GIB + 2 * MIB, "uint8", gpu)


def test_idle_memory_of_an_allocator_is_no_reserve_for_others(gpu):
    pool = al.get_allocator("mempool", gpu)
    pool.deallocate(pool.allocate(4 * GIB), 4 * GIB)
    with leave_free(GIB, gpu), pytest.raises(al.OutOfMemoryError):
        al.get_allocator("default", gpu).allocate(2 * GIB)


def test_a_fraction_is_that_of_the_whole_memory(gpu):
    with leave_free("50%", gpu) as left:
        assert 0 <= left - gpu.total_memory // 2 < 2 * MIB


def test_all_that_is_free_can_be_left(gpu):
    with leave_free(gpu.free_memory, gpu) as left:
        assert left == gpu.free_memory


def test_the_memory_is_given_back_after_an_exception(gpu):
    before = gpu.free_memory
    with pytest.raises(KeyError), leave_free("8 GiB", gpu):
        raise KeyError

    assert gpu.free_memory == before


def test_the_current_device_stays_what_it_was(gpu):
    before = gpu.platform.current_device()
    with leave_free("8 GiB", gpu):
        assert gpu.platform.current_device() == before


def test_more_than_there_is_cannot_be_left(gpu):
    with (
        pytest.raises(ValueError, match=r"1 TiB cannot be left free on 'cuda:1': it has .* free"),
        leave_free(2**40, gpu),
    ):
        pass


def test_the_host_cannot_be_made_smaller():
    with pytest.raises(al.UnsupportedError, match="only that of a CUDA device"), leave_free("1 GiB", "cpu"):
        pass
