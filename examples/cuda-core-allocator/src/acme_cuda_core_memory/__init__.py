"""Memory of any ``cuda.core`` memory resource, for Allotment."""

from acme_cuda_core_memory._allocator import CudaCoreAllocator
from acme_cuda_core_memory._options import CudaCoreOptions

__all__ = ["CudaCoreAllocator", "CudaCoreOptions"]
