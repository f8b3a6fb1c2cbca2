"""Cached device memory for Allotment: exact figures, nothing idle that could serve, and a pair of calls in C++."""

from allotment_caching._allocator import CachingAllocator
from allotment_caching._options import CachingOptions, Policy, Twin

__all__ = ["CachingAllocator", "CachingOptions", "Policy", "Twin"]
