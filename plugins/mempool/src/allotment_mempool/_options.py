"""What can be configured about the memory pool."""

from __future__ import annotations

from dataclasses import dataclass

from allotment import MemoryAmount  # noqa: TC001 - configuration reads the annotations


@dataclass(frozen=True, slots=True, kw_only=True)
class MempoolOptions:
    """Options of the ``mempool`` allocator.

    Parameters
    ----------
    release_threshold
        How much idle memory the pool keeps when the device is synchronised: a fraction of the device's memory up to 1,
        bytes above, or text such as ``"2 GiB"``. By default all of it: with CUDA's own default of 0 every synchronise
        gives everything back to the driver, and a pair of calls with a synchronise costs twenty times as much
        (``cost/*`` of the recording in tests/truth: 1.47 against 0.07). Not applied to a shared pool unless it is said.
    share_default_pool
        Draw from the device's default pool, which all libraries of the process share, instead of a pool of our own.
    """

    release_threshold: MemoryAmount | None = None
    share_default_pool: bool = False
