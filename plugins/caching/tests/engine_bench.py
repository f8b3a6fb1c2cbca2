"""An engine over memory that counts, and what the tests ask of it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from allotment import AccountAnswers
from allotment_caching._twins import compiled_module
from allotment_caching.engine.elastic import ElasticPolicy, ElasticSettings
from allotment_caching.engine.engine import Engine
from allotment_caching.engine.mlx import MlxPolicy
from allotment_caching.engine.mlx_cache import MlxCache, MlxSettings
from allotment_caching.engine.streams import Streams

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from counting_supply import CountingSupply


@dataclass
class FakeStream:
    """What an engine needs of a stream."""

    handle: int
    is_closed: bool = False


class Refused(Exception):
    """Core's answer to a call that is wrong."""


@dataclass
class Bench:
    """An engine on a supply, and the answers that core would give."""

    engine: Any
    supply: CountingSupply
    streams: Streams
    stream: FakeStream = field(default_factory=lambda: FakeStream(7))

    def __post_init__(self) -> None:
        scopes: ContextVar[tuple[Any, ...]] = ContextVar("scopes", default=())
        self.engine.attach(
            AccountAnswers(
                device=SimpleNamespace(stream_in_place=None),  # type: ignore[arg-type]
                stream_scopes=scopes,
                find_stream=lambda: self.stream,  # type: ignore[arg-type, return-value]
                unusual_size=self._refuse,
                failed_allocation=self._failed,
                wrong_free=self._refuse,
                failed_free=self._failed_free,
            )
        )

    def _refuse(self, *arguments: Any) -> Any:
        raise Refused(*arguments)

    def _failed(self, error: BaseException, size: int) -> Any:
        raise error

    def _failed_free(self, error: BaseException) -> Any:
        raise error

    def on(self, handle: int) -> FakeStream:
        """Put a stream in force."""
        self.stream = FakeStream(handle)
        return self.stream

    def allocate(self, size: int, stream: int | None = None) -> int:
        """Allocate on the stream in force, or on another."""
        if stream is not None:
            self.on(stream)
        return self.engine.allocate(size)

    def free(self, ptr: int, size: int) -> None:
        """Free."""
        self.engine.deallocate(ptr, size)

    @property
    def reserved(self) -> int:
        """The bytes that are held."""
        return self.engine.figures().reserved


MakeBench = Callable[..., Bench]
Make = Callable[..., Bench]
"""A kind of engine: from a supply, and the settings of "elastic" or the cache of "mlx" and the device's number."""


def python_bench(supply: CountingSupply, memory: ElasticSettings | MlxCache, device: int = 0, **given: bool) -> Bench:
    """Return the engine in Python."""
    streams = Streams()
    if isinstance(memory, ElasticSettings):
        return Bench(Engine(ElasticPolicy(supply, memory), streams), supply, streams)
    return Bench(Engine(MlxPolicy(memory, supply, device, **given), streams), supply, streams)


def compiled_bench(supply: CountingSupply, memory: Any, device: int = 0, **given: bool) -> Bench:
    """Return the compiled engine."""
    streams = Streams()
    return Bench(compiled_module().Engine(supply, streams, memory, device, **given), supply, streams)


def mlx_benches(make: Make, settings: MlxSettings, supplies: list[CountingSupply]) -> tuple[Any, list[Bench]]:
    """Return the cache of the policy "mlx", and an engine for each device."""
    cache = MlxCache(settings) if make is python_bench else compiled_module().MlxCache(settings)
    return cache, [make(supply, cache, ordinal) for ordinal, supply in enumerate(supplies)]


def act_at_random(twins: Any, chance: random.Random, sizes: Sequence[int], step: int) -> None:
    """Make one call, by chance, on both engines: mostly an allocation or a free."""
    act = chance.random()
    if act < 0.5 or not twins.live:
        twins.allocate(chance.choice(sizes), chance.randrange(4))
    elif act < 0.93:
        twins.free(chance.randrange(len(twins.live)))
    elif act < 0.96:
        twins.use(chance.randrange(len(twins.live)), chance.randrange(4))
    elif act < 0.98:
        stream, hold = chance.randrange(4), chance.random() < 0.4
        twins.both(lambda bench: (bench.supply.hold if hold else bench.supply.finish)(stream))
    else:
        for bench in twins.benches:
            bench.supply.clock = step
