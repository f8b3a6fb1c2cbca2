"""The ``default`` allocator keeps the allocator contract."""

from allotment.testing import AllocatorConformance


class TestDefault(AllocatorConformance):
    allocator_name = "default"
