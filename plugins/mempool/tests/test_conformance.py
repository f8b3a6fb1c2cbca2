"""The ``mempool`` allocator keeps the allocator contract."""

from allotment.testing import AllocatorConformance


class TestMempool(AllocatorConformance):
    allocator_name = "mempool"


class TestMempoolOfTheDevice(AllocatorConformance):
    allocator_name = "mempool"
    options = {"share_default_pool": True}
    expected_failures = {"test_closing_gives_everything_back": "the pool is everybody's, and stays when we go"}


class TestMempoolThatKeepsNothing(AllocatorConformance):
    allocator_name = "mempool"
    options = {"release_threshold": 0}


class TestMempoolBehindLayers(AllocatorConformance):
    allocator_name = "mempool"
    layers = ({"fallback": "managed"}, "ladder", {"limit": "100%"})
    expected_failures = {
        "test_the_drivers_refusal_is_out_of_memory": "the ladder gets the memory at the second attempt",
        "test_more_than_the_device_has_never_reaches_an_allocator_of_device_memory": "managed memory holds more",
    }
