"""The allocator ``your-pool`` for Allotment."""

from allotment_your_pool._allocator import YourPoolAllocator
from allotment_your_pool._options import YourPoolOptions

__all__ = ["YourPoolAllocator", "YourPoolOptions"]
