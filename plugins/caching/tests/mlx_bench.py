"""A cache under the policy "mlx" and the devices around it, used as the engine uses them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from counting_supply import GIB, CountingSupply
from engine_bench import FakeStream, mlx_benches

from allotment_caching.engine.mlx import MlxPolicy
from allotment_caching.engine.mlx_buffers import MANAGED, SLOTS, Kind
from allotment_caching.engine.mlx_cache import MlxCache, MlxSettings

if TYPE_CHECKING:
    from engine_bench import Bench as EngineBench
    from engine_bench import Make

    from allotment_caching.engine.mlx_buffers import Buffer as PolicyBuffer

TOTAL = 64 * GIB
MLX = MlxSettings.as_mlx(TOTAL)
MENDED = MlxSettings.mended(TOTAL)
SIDE = 7
"""The handle of a stream."""
KINDS = {"malloc_async": Kind.ORDERED, "malloc": Kind.SEGMENT, "malloc_managed": Kind.MANAGED}


class PolicyBench:
    """A cache and the policy of a device, used as the engine in Python uses them."""

    def __init__(self, settings: MlxSettings, total: int) -> None:
        self.cache, self.supply = MlxCache(settings), CountingSupply(total)
        self.policy = MlxPolicy(self.cache, self.supply, 0)
        self.supply.forbid_under(self.cache.lock)

    def take(self, size: int, stream: int = 0) -> PolicyBuffer:
        """Take a buffer."""
        with self.policy.lock:
            buffer = self.policy.take_cached(size, stream, 0)
        if buffer is None:
            buffer = self.policy.take(size, stream, 0)
        buffer.size = size
        return buffer

    def free(self, buffer: PolicyBuffer) -> None:
        """Free a buffer; if it does not fit into the cache it is given back at once, as MLX does."""
        with self.policy.lock:
            self.policy.give(buffer)
        if self.policy.is_due:
            self.policy.look_around()

    def free_after(self, buffer: PolicyBuffer, *users: int) -> None:
        """Free a buffer that other streams use."""
        self.policy.give_after(buffer, users)


@dataclass(eq=False)
class Buffer:
    """A buffer as its user sees it; the same object whenever the same address is handed out."""

    start: int
    nbytes: int
    device: int
    kind: Kind
    owner: EngineBench
    size: int = 0
    stream: int = 0


class Bench:
    """A cache and the engines of devices around it.

    Parameters
    ----------
    make
        Which of the two engines.
    settings, devices, total
        Of the cache, and how many devices with how much memory there are.
    """

    def __init__(self, make: Make, settings: MlxSettings = MENDED, devices: int = 1, total: int = TOTAL) -> None:
        self.supplies = [CountingSupply(total, base=(ordinal + 1) << 44) for ordinal in range(devices)]
        self.cache, self._benches = mlx_benches(make, settings, self.supplies)
        self._managed = [
            make(supply, self.cache, ordinal, is_managed=True) for ordinal, supply in enumerate(self.supplies)
        ]
        if isinstance(self.cache, MlxCache):
            for supply in self.supplies:
                supply.forbid_under(self.cache.lock)
        self.engines = [bench.engine for bench in self._benches]
        self.supply, self.engine = self.supplies[0], self.engines[0]
        self._slab = SLOTS * settings.scalar_alignment
        self._seen: dict[int, Buffer] = {}

    def take(self, size: int, stream: int = 0, device: int = 0, pool: int = 0) -> Buffer:
        """Take a buffer on a stream of a device."""
        return self._take(self._benches[device], size, stream, pool)

    def take_managed(self, size: int, stream: int = 0, device: int = 0) -> Buffer:
        """Take managed memory on a stream of a device."""
        return self._take(self._managed[device], size, stream, 0)

    def _take(self, bench: EngineBench, size: int, stream: int, pool: int) -> Buffer:
        before = self.cache.get_active_memory()
        start = bench.engine.allocate_on(size, FakeStream(stream), pool)
        bench.engine.enter(start, size)
        buffer = self._seen.get(start)
        if buffer is None:
            nbytes = self.cache.get_active_memory() - before
            buffer = self._seen[start] = Buffer(start, nbytes, *self._origin(start, nbytes), bench)
        buffer.owner, buffer.size, buffer.stream = bench, size, stream
        return buffer

    def _origin(self, start: int, nbytes: int) -> tuple[int, Kind]:
        for ordinal, supply in enumerate(self.supplies):
            segment = supply.segments.get(start)
            if segment is not None and segment.nbytes == nbytes:
                kind = KINDS[segment.kind]
                return (MANAGED if kind is Kind.MANAGED else ordinal), kind
        return MANAGED, Kind.SLOT

    def free(self, *buffers: Buffer) -> None:
        """Free buffers; what does not fit into the cache is given back at once, as MLX does."""
        for buffer in buffers:
            buffer.owner.free(buffer.start, buffer.size)

    def free_after(self, buffer: Buffer, *users: int) -> None:
        """Free a buffer that other streams use."""
        for user in users:
            buffer.owner.engine.record_use(buffer.start, FakeStream(user))
        buffer.owner.free(buffer.start, buffer.size)

    def evicted(self) -> list[int]:
        """Return the addresses that were given back, in order."""
        return [values[0] for name, values in self.supply.calls if name in ("free", "free_async")]

    @property
    def made(self) -> int:
        """How often memory was made."""
        return sum(self.supply.counts[name] for name in ("malloc_async", "malloc_managed"))

    @property
    def reserved(self) -> list[int]:
        """What each device holds."""
        return [engine.figures().reserved for engine in self.engines]

    def bytes(self) -> tuple[int, int]:
        """Return what is active and what is cached."""
        return self.cache.get_active_memory(), self.cache.get_cache_memory()


def mlx(limit: int | None = None, cache: int | None = None) -> MlxSettings:
    """Return MLX's settings with other limits."""
    return replace(MLX, memory_limit=limit or MLX.memory_limit, cache_limit=cache or MLX.cache_limit)
