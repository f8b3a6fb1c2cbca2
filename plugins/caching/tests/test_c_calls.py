"""The engine for callers in C, with each policy: through ctypes, which lets go of the interpreter lock or keeps it."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest
from counting_supply import GIB, MIB, CountingSupply
from engine_bench import FakeStream, compiled_bench, mlx_benches
from mlx_bench import MENDED

from allotment_caching._twins import compiled_module
from allotment_caching.engine.elastic import ElasticSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine_bench import Bench

pytestmark = pytest.mark.skipif(compiled_module() is None, reason="the compiled engine was not built here")

SIDE = 7
DEVICE = 63
SIGNATURES = (
    (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p),
    (None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p),
)


@pytest.fixture(params=["elastic", "mlx"])
def bench(request: pytest.FixtureRequest) -> Bench:
    supply = CountingSupply(total=GIB)
    if request.param == "mlx":
        return mlx_benches(compiled_bench, MENDED, [supply])[1][0]
    return compiled_bench(supply, ElasticSettings(total=GIB, limit=GIB, cache_limit=GIB, idle_seconds=None))


@pytest.fixture(params=[ctypes.CFUNCTYPE, ctypes.PYFUNCTYPE], ids=["without-interpreter", "with-interpreter"])
def calls(request: pytest.FixtureRequest, bench: Bench) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the two calls, as PyTorch makes them."""
    addresses = bench.engine.serve(DEVICE)
    names = ("torch_allocate", "torch_free")
    allocate, free = (request.param(*kinds)(addresses[name]) for name, kinds in zip(names, SIGNATURES, strict=True))
    return allocate, free


def test_a_block_is_booked_and_serves_again(bench: Bench, calls: Any) -> None:
    allocate, free = calls
    ptr = allocate(5000, DEVICE, SIDE)
    assert (len(bench.engine), bench.engine.current) == (1, 5000)
    bench.supply.memory_behind(ptr, 5000)
    free(ptr, 5000, DEVICE, SIDE)

    assert bench.engine.current == 0
    assert allocate(5000, DEVICE, SIDE) == ptr
    assert bench.supply.counts["watch"] == 1


def test_what_fails_is_a_null_pointer_and_loses_nothing(bench: Bench, calls: Any) -> None:
    allocate, free = calls
    bench.supply.fail_after(0)
    assert allocate(5 * MIB, DEVICE, SIDE) is None
    assert allocate(2 * GIB, DEVICE, SIDE) is None

    ptr = allocate(5 * MIB, DEVICE, SIDE)
    free(ptr, 5 * MIB, DEVICE, SIDE)
    bench.engine.trim(0)
    assert bench.supply.live == 0


def test_nothing_is_what_no_bytes_are(bench: Bench, calls: Any) -> None:
    allocate, free = calls

    assert allocate(0, DEVICE, SIDE) is None
    free(None, 0, DEVICE, SIDE)


def test_a_block_that_another_stream_uses_is_not_reused_at_once(bench: Bench, calls: Any) -> None:
    allocate, free = calls
    bench.supply.hold(9)
    ptr = allocate(5000, DEVICE, SIDE)
    bench.engine.record_use(ptr, FakeStream(9))
    bench.supply.work(9, ptr, 5000)
    free(ptr, 5000, DEVICE, SIDE)

    assert allocate(5000, DEVICE, SIDE) != ptr


def test_threads_that_make_memory_do_not_wait_for_each_other_for_ever(bench: Bench, calls: Any) -> None:
    allocate, free = calls
    start = Barrier(3)

    def churn(seed: int) -> None:
        start.wait()
        for turn in range(200):
            size = (3 * turn + seed) * 20_000 + 1
            free(allocate(size, DEVICE, SIDE), size, DEVICE, SIDE)
            if turn % 20 == 0:
                bench.engine.trim(0)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(churn, range(3)))
    bench.engine.trim(0)

    assert (bench.engine.current, bench.supply.live) == (0, 0)


def test_a_client_has_the_memory_of_one_stream(bench: Bench) -> None:
    client = bench.engine.client(FakeStream(SIDE))
    allocate = ctypes.PYFUNCTYPE(ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)(
        client["malloc_func_ptr"]
    )
    free = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)(client["free_func_ptr"])

    ptr = allocate(client["param"], 5000, DEVICE)
    assert bench.engine.current == 5000
    free(client["param"], ptr, DEVICE)

    assert bench.allocate(5000, stream=SIDE) == ptr
