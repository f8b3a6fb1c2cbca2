"""What is particular to the ``your-pool`` allocator."""

import allotment as al
import pytest

from allotment_your_pool import YourPoolOptions


def test_arrays_draw_from_it_by_its_name(isolated):
    with al.ScopedAllocator("cpu", "your-pool"):
        array = al.full(1000, 7.0, device="cpu")

    assert array.allocator.name == "your-pool"
    assert (array.numpy() == 7.0).all()


def test_sizes_are_rounded_up_to_the_granularity():
    options = YourPoolOptions(granularity=al.MemoryAmount(nbytes=65_536))

    assert [options.rounded(size) for size in (1, 65_536, 65_537)] == [65_536, 65_536, 131_072]


@pytest.mark.parametrize("granularity", [0, "50%"])
def test_a_granularity_that_cannot_be_is_refused(isolated, granularity):
    with pytest.raises(al.ConfigError, match="granularity"):
        al.get_allocator("your-pool", "cpu", granularity=granularity)


def test_it_serves_no_arrays_of_a_gpu(simulated):
    with pytest.raises(al.PluginUnavailableError, match="device 'cpu' only"):
        al.get_allocator("your-pool", "cuda:0")
