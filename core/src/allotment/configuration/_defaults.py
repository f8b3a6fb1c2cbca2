"""The allocators that are used where nothing was configured. The one place of core that names any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltInAllocators:
    """Names by role. Each is an installed plugin like any other, but for the host's, which core brings."""

    host: str
    """Arrays on ``cpu``."""
    pinned: str
    """Arrays on ``cpu`` with ``pinned=True``."""
    plain: str
    """Arrays on a CUDA device whose memory pool is not supported, not enabled or not installed."""
    pool: str
    """Arrays on a CUDA device whose memory pool is enabled."""
    managed: str
    """What the guides call ``CudaManagedAllocator``."""
    rmm: str
    """What the guides call ``utils.AllocatorRmm``."""


BUILT_IN: Final = BuiltInAllocators(
    host="host", pinned="pinned", plain="default", pool="mempool", managed="managed", rmm="rmm"
)
