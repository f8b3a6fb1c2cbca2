"""What can be configured about memory from PyTorch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchCachingOptions:
    """There is nothing to say about it: PyTorch is set up by ``PYTORCH_ALLOC_CONF`` and its own functions."""
