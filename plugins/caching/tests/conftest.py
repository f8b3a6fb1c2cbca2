"""Both engines over memory that counts."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from counting_supply import GIB, MIB, CountingSupply
from engine_bench import Bench, MakeBench, compiled_bench, python_bench
from mlx_bench import Bench as MlxBench

from allotment_caching._twins import compiled_module
from allotment_caching.engine.elastic import ElasticSettings

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(params=["python", "compiled"])
def make_bench(request: pytest.FixtureRequest) -> MakeBench:
    """Make an engine: options of the settings, and of the supply."""
    if request.param == "compiled" and compiled_module() is None:
        pytest.skip("the compiled engine was not built here")
    make = python_bench if request.param == "python" else compiled_bench

    def made(
        total: int = 64 * GIB,
        limit: int | None = None,
        cache_limit: int | None = None,
        idle_seconds: float | None = None,
        granule: int = 2 * MIB,
    ) -> Bench:
        supply = CountingSupply(total=total, granule=granule)
        return make(
            supply,
            ElasticSettings(
                total=total, limit=limit or total, cache_limit=cache_limit or total, idle_seconds=idle_seconds
            ),
        )

    return made


@pytest.fixture
def bench(make_bench: MakeBench) -> Bench:
    """Return an engine on a device that maps memory."""
    return make_bench()


@pytest.fixture(params=["python", "compiled"])
def make_mlx(request: pytest.FixtureRequest) -> Callable[..., MlxBench]:
    """Make a cache of the policy "mlx" and the engines of devices around it: see `mlx_bench.Bench`."""
    if request.param == "compiled" and compiled_module() is None:
        pytest.skip("the compiled engine was not built here")
    return partial(MlxBench, python_bench if request.param == "python" else compiled_bench)
