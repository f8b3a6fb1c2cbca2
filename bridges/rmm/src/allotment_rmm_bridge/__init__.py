"""Lets users of the RAPIDS Memory Manager, such as cuDF, draw their device memory from Allotment."""

from allotment_rmm_bridge._bridge import RmmBridge, RmmBridgeOptions

__all__ = ["RmmBridge", "RmmBridgeOptions"]
