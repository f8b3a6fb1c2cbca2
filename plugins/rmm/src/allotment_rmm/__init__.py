"""Device memory for Allotment from the RAPIDS Memory Manager (RMM)."""

from allotment_rmm._allocator import RmmAllocator
from allotment_rmm._options import Resource, RmmOptions, Upstream

__all__ = ["Resource", "RmmAllocator", "RmmOptions", "Upstream"]
