"""The ``your-pool`` allocator keeps the contract, with its defaults and with other options."""

from allotment.testing import AllocatorConformance


class TestYourPool(AllocatorConformance):
    allocator_name = "your-pool"


class TestYourPoolInLargeSteps(AllocatorConformance):
    allocator_name = "your-pool"
    options = {"granularity": "64 KiB"}
