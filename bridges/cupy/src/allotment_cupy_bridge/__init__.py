"""Lets CuPy draw its device memory from Allotment."""

from allotment_cupy_bridge._bridge import CupyBridge, CupyBridgeOptions
from allotment_cupy_bridge._scope import using_allocator

__all__ = ["CupyBridge", "CupyBridgeOptions", "using_allocator"]
