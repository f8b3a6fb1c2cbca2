"""Stream-ordered device memory for Allotment, from a CUDA memory pool."""

from allotment_mempool._allocator import MempoolAllocator
from allotment_mempool._options import MempoolOptions

__all__ = ["MempoolAllocator", "MempoolOptions"]
