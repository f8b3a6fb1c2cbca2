"""Contents read and written through the platform."""

import numpy as np
import pytest

import allotment as al
from allotment.errors import PlatformError
from allotment.testing._memory import Memory, pattern


def test_a_pattern_is_the_same_for_a_seed_and_differs_from_that_of_another():
    assert (pattern(1000, 1) == pattern(1000, 1)).all()
    assert (pattern(1000, 1) != pattern(1000, 2)).mean() > 0.9


@pytest.mark.parametrize("take", ["malloc", "malloc_managed", "host_alloc"])
def test_what_is_written_is_read(simulated, take):
    memory, ptr = Memory(al.get_device("cuda:0")), getattr(simulated, take)(1000)

    memory.write(ptr, pattern(1000, 1))

    assert (memory.read(ptr, 1000) == pattern(1000, 1)).all()


def test_memory_of_the_host_is_reached_with_and_without_devices(isolated):
    al.init(platform="host", quiet=True)
    memory, data = Memory(al.get_device("cpu")), np.zeros(10, np.uint8)

    memory.write(data.ctypes.data, pattern(10, 1))

    assert (data == pattern(10, 1)).all()
    assert (memory.read(data.ctypes.data, 10) == data).all()


def test_a_kernel_writes_where_its_device_reaches(simulated):
    memory, ptr = Memory(al.get_device("cuda:1")), simulated.host_alloc(100)

    memory.fill_by_kernel(ptr, 100, 7, ordinal=1)

    assert (memory.read(ptr, 100) == 7).all()


def test_a_kernel_that_cannot_reach_the_memory_faults(simulated):
    ptr = simulated.malloc(100)  # of device 0

    with pytest.raises(PlatformError, match="IllegalAddress"):
        Memory(al.get_device("cuda:1")).fill_by_kernel(ptr, 100, 7, ordinal=1)
