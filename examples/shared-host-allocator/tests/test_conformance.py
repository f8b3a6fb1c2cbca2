"""The ``shared-host`` allocator keeps the allocator contract."""

from allotment.testing import AllocatorConformance


class TestSharedHost(AllocatorConformance):
    allocator_name = "shared-host"
    profiles = ("2xh200", "host")


class TestSharedHostWithoutReserving(AllocatorConformance):
    allocator_name = "shared-host"
    options = {"reserve": False}
