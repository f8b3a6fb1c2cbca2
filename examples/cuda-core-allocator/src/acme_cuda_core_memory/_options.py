"""What can be configured about the resource."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DEVICE_POOL: Final = "device-pool"
OWN_POOL: Final = "own-pool"


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaCoreOptions:
    """Options of the ``cuda-core`` allocator.

    Parameters
    ----------
    resource
        Where memory comes from: ``"device-pool"``, the pool that is current on the device; ``"own-pool"``, a pool that
        is made for this allocator; or ``"module:function"``, which is called with the device's ordinal and returns a
        ``cuda.core.MemoryResource``.
    stream_ordered
        The resource takes memory back in the order of the stream, as pools do. ``False``: each free waits for the
        device first. By default ``True`` for a pool, and ``False`` for a resource that nothing is known of.
    """

    resource: str = DEVICE_POOL
    stream_ordered: bool | None = None

    def __post_init__(self) -> None:
        module, colon, function = self.resource.partition(":")
        if not self.is_pool and not (module and colon and function):
            raise ValueError(f"a resource is {DEVICE_POOL!r}, {OWN_POOL!r} or 'module:function', not {self.resource!r}")

    @property
    def is_pool(self) -> bool:
        """Whether memory comes from a CUDA memory pool."""
        return self.resource in (DEVICE_POOL, OWN_POOL)

    @property
    def keeps_stream_order(self) -> bool:
        """Whether frees are left to the order of streams."""
        return self.is_pool if self.stream_ordered is None else self.stream_ordered
