"""Managed (unified) memory for Allotment."""

from allotment_managed._allocator import ManagedAllocator
from allotment_managed._options import Location, ManagedOptions

__all__ = ["Location", "ManagedAllocator", "ManagedOptions"]
