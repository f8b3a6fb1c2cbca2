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
