"""The ``pinned`` allocator keeps the allocator contract."""

from allotment.testing import AllocatorConformance


class TestPinned(AllocatorConformance):
    allocator_name = "pinned"


class TestPinnedWithoutCache(AllocatorConformance):
    allocator_name = "pinned"
    options = {"cache_limit": 0}
