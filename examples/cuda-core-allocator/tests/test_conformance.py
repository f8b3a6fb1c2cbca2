"""The ``cuda-core`` allocator keeps the allocator contract, but for what ``cuda.core`` itself does not."""

from simulated_resource import OnSimulator

from allotment.testing import AllocatorConformance

SAYS_NOTHING = {"test_a_free_that_fails_raises_and_can_be_repeated": "cuda.core raises nothing when a release fails"}


class TestOnSimulator(AllocatorConformance):
    allocator_name = "cuda-core-simulated"
    allocator_factory = OnSimulator
    expected_failures = SAYS_NOTHING


class TestDevicePool(AllocatorConformance):
    """On real devices; run it with ``-m gpu``."""

    allocator_name = "cuda-core"
    profiles = ()


class TestOwnPool(AllocatorConformance):
    """On real devices; run it with ``-m gpu``."""

    allocator_name = "cuda-core"
    options = {"resource": "own-pool"}
    profiles = ()
