"""Lets Numba's CUDA target draw its device memory from Allotment.

``NUMBA_CUDA_MEMORY_MANAGER=allotment_numba_bridge`` works in place of ``allotment.install("numba")``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from allotment_numba_bridge._bridge import NumbaBridge, NumbaBridgeOptions

if TYPE_CHECKING:
    from allotment_numba_bridge._emm import AllotmentNumbaManager as AllotmentNumbaManager

__all__ = ["AllotmentNumbaManager", "NumbaBridge", "NumbaBridgeOptions"]


def __getattr__(name: str) -> Any:
    """Return what cannot be there before Numba is imported; Numba itself asks for ``_numba_memory_manager``."""
    if name not in ("AllotmentNumbaManager", "_numba_memory_manager"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from allotment_numba_bridge._emm import AllotmentNumbaManager

    if name == "_numba_memory_manager":
        AllotmentNumbaManager.draw_from_configured()
    return AllotmentNumbaManager
