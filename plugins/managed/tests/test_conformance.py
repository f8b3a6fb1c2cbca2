"""The ``managed`` allocator keeps the allocator contract."""

from allotment.testing import AllocatorConformance


class TestManaged(AllocatorConformance):
    allocator_name = "managed"


class TestManagedWithAdvice(AllocatorConformance):
    allocator_name = "managed"
    options = {"read_mostly": True, "accessed_by_host": True, "preferred_location": "device", "prefetch": "device"}
