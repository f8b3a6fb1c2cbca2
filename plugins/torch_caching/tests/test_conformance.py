"""The ``torch-caching`` allocator keeps the allocator contract, on real devices."""

import pytest

from allotment.testing import AllocatorConformance

pytest.importorskip("torch", reason="PyTorch is not installed")


class TestTorchCaching(AllocatorConformance):
    allocator_name = "torch-caching"
    profiles = ()
