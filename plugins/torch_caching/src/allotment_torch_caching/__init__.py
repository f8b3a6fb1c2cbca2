"""Memory for Allotment from the caching allocator of PyTorch."""

from allotment_torch_caching._allocator import TorchCachingAllocator
from allotment_torch_caching._options import TorchCachingOptions

__all__ = ["TorchCachingAllocator", "TorchCachingOptions"]
