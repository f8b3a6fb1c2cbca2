"""Lets PyTorch draw its device memory from Allotment."""

from allotment_torch_bridge._bridge import Mode, TorchBridge, TorchBridgeOptions
from allotment_torch_bridge._receiver import last_refusal

__all__ = ["Mode", "TorchBridge", "TorchBridgeOptions", "last_refusal"]
