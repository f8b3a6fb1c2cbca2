"""What can be configured about the caching allocator."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum

from allotment import MemoryAmount  # noqa: TC001 - configuration reads the annotations


class Policy(Enum):
    """Which memory serves a request."""

    ELASTIC = "elastic"
    """Free space is split and joined, and memory moves to where it is needed."""
    MLX = "mlx"
    """Buffers are kept whole and reused for requests of about their size, as MLX does."""


class Twin(Enum):
    """Which of the two engines is used."""

    AUTO = "auto"
    """The compiled one where there is one."""
    COMPILED = "compiled"
    """The compiled one, or an error."""
    PYTHON = "python"
    """The one in Python."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachingOptions:
    """Options of the ``caching`` allocator. Amounts are a fraction of the device's memory up to 1, bytes, or text.

    Those that begin with ``mlx_`` concern the policy "mlx" alone. The switches among them, where true, restore what MLX
    does and a framework for other libraries must not do.

    Parameters
    ----------
    policy
        Which memory serves a request: ``"elastic"`` or ``"mlx"``.
    limit
        The most memory to hold of the device; by default all of it. Idle memory is given back before a request is
        refused for it. With policy "mlx" it is a guideline, 0.95 by default: idle memory is given back, and no request
        fails for it.
    cache_limit
        The most memory to hold that is idle; by default all of it, and 0.25 with policy "mlx".
    idle_seconds
        How often, in the course of calls, to give back the memory that was not needed at any time since; with policy
        "mlx" how long a buffer may be idle. 60 by default; 0 for never.
    map_memory
        Map memory where the device can (policy "elastic"); otherwise it is made in segments, which cannot move.
    engine
        Which engine: ``"compiled"``, ``"python"``, or ``"auto"``.
    mlx_managed
        Hand out managed memory, as MLX does where no stream is named.
    mlx_scalar_alignment
        The bytes from slot to slot of requests of up to 8 bytes, a power of two from 8.
    mlx_ignores_streams
        Reuse a buffer on any stream at once, whatever work is in flight.
    mlx_ignores_devices
        Let buffers of all devices, and managed ones, serve all requests; one of another device is replaced by managed
        memory. All allocators of a process with these options share one cache.
    mlx_never_retries
        Fail at once for lack of memory, with idle memory at hand.
    mlx_limits_wait
        Let new limits take effect only with the next request.
    mlx_peak_falls_to_zero
        Set the peak to 0 when it is reset, though memory is in use.
    """

    policy: Policy = Policy.ELASTIC
    limit: MemoryAmount | None = None
    cache_limit: MemoryAmount | None = None
    idle_seconds: float | None = None
    map_memory: bool = True
    engine: Twin = Twin.AUTO
    mlx_managed: bool = False
    mlx_scalar_alignment: int = 256
    mlx_ignores_streams: bool = False
    mlx_ignores_devices: bool = False
    mlx_never_retries: bool = False
    mlx_limits_wait: bool = False
    mlx_peak_falls_to_zero: bool = False

    def __post_init__(self) -> None:
        if self.idle_seconds is not None and not self.idle_seconds >= 0:
            raise ValueError(f"idle_seconds is {self.idle_seconds!r}, and must be 0 or more")
        alignment = self.mlx_scalar_alignment
        if alignment < 8 or alignment & (alignment - 1):
            raise ValueError(f"mlx_scalar_alignment is {alignment!r}, and must be a power of two from 8")
        if self.policy is not Policy.MLX and (said := self._said_of_mlx()):
            raise ValueError(f'{", ".join(said)} concern the policy "mlx", and the policy is {self.policy.value!r}')

    def _said_of_mlx(self) -> list[str]:
        options = (option for option in fields(self) if option.name.startswith("mlx_"))
        return [option.name for option in options if getattr(self, option.name) != option.default]
