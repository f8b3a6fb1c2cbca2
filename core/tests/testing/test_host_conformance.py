"""The allocator that core brings keeps the allocator contract."""

from allotment.testing import AllocatorConformance


class TestHost(AllocatorConformance):
    allocator_name = "host"
    profiles = ("2xh200",)


class TestHostWithoutCuda(AllocatorConformance):
    allocator_name = "host"
    profiles = ("host",)
