"""What is particular to the ``your-pool`` allocator."""

import allotment as al
import pytest

from allotment_your_pool import YourPoolAllocator


def test_arrays_draw_from_it_by_its_name(simulated):
    with al.ScopedAllocator("cuda:0", "your-pool"):
        array = al.full(1000, 7.0, device="cuda:0")

    assert isinstance(array.allocator.allocator, YourPoolAllocator)
    assert (array.numpy() == 7.0).all()


def test_sizes_are_rounded_up_to_the_granularity(simulated):
    account = al.get_allocator("your-pool", "cuda:0", granularity="64 KiB")
    account.deallocate(account.allocate(1000), 1000)

    assert [call.arguments["nbytes"] for call in simulated.calls.named("malloc")] == [65_536]


@pytest.mark.parametrize("granularity", [0, "50%"])
def test_a_granularity_that_cannot_be_is_refused(simulated, granularity):
    with pytest.raises(al.ConfigError, match="granularity"):
        al.get_allocator("your-pool", "cuda:0", granularity=granularity)


def test_it_serves_no_arrays_of_the_host(simulated):
    with pytest.raises(al.PluginUnavailableError, match="CUDA devices only"):
        al.get_allocator("your-pool", "cpu")
