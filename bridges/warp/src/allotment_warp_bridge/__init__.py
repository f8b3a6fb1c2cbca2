"""Lets NVIDIA Warp draw its device memory from Allotment."""

from allotment_warp_bridge._allocator import AllotmentWarpAllocator
from allotment_warp_bridge._bridge import WarpBridge, WarpBridgeOptions

__all__ = ["AllotmentWarpAllocator", "WarpBridge", "WarpBridgeOptions"]
