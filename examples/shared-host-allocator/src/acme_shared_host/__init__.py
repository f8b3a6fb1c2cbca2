"""Host arrays that several processes share by name, for Allotment."""

from acme_shared_host._allocator import SharedHostAllocator
from acme_shared_host._options import SharedHostOptions
from acme_shared_host._shared_array import SharedArray, share
from acme_shared_host._store import remove_stale

__all__ = ["SharedArray", "SharedHostAllocator", "SharedHostOptions", "remove_stale", "share"]
