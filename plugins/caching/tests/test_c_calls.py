"""The engine for callers in C, with each policy: through ctypes, which lets go of the interpreter lock or keeps it."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest
from counting_supply import GIB, MIB, CountingSupply
from engine_bench import FakeStream, compiled_bench, mlx_benches
from mlx_bench import MENDED

from allotment import UnsupportedError
from allotment_caching._twins import compiled_module
from allotment_caching.engine.elastic import ElasticSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine_bench import Bench

pytestmark = pytest.mark.skipif(compiled_module() is None, reason="the compiled engine was not built here")

SIDE = 7
ELASTIC = ElasticSettings(total=GIB, limit=GIB, cache_limit=GIB, idle_seconds=None)
DEVICES = count(63, -1)
"""An engine serves a device for ever, so each test has one of its own."""
SIGNATURES = (
    (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p),
    (None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p),
)


@pytest.fixture(params=["elastic", "mlx"])
def bench(request: pytest.FixtureRequest) -> Bench:
    supply = CountingSupply(total=GIB)
    if request.param == "mlx":
        return mlx_benches(compiled_bench, MENDED, [supply])[1][0]
    return compiled_bench(supply, ELASTIC)


@pytest.fixture(params=[ctypes.CFUNCTYPE, ctypes.PYFUNCTYPE], ids=["without-interpreter", "with-interpreter"])
def calls(request: pytest.FixtureRequest, bench: Bench) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the two calls, as PyTorch makes them on one device."""
    device = next(DEVICES)
    addresses = bench.engine.serve(device)
    assert bench.engine.serve(device) == addresses
    names = ("allocate", "free")
    allocate, free = (request.param(*kinds)(addresses[name]) for name, kinds in zip(names, SIGNATURES, strict=True))
    return lambda size, stream: allocate(size, device, stream), lambda ptr, size, stream: free(
        ptr, size, device, stream
    )


def test_a_block_is_booked_and_serves_again(bench: Bench, calls: Any) -> None:
    allocate, free = calls
    ptr = allocate(5000, SIDE)
    assert (len(bench.engine), bench.engine.current) == (1, 5000)
    bench.supply.memory_behind(ptr, 5000)
    free(ptr, 5000, SIDE)

    assert bench.engine.current == 0
    assert allocate(5000, SIDE) == ptr
    assert bench.supply.counts["watch"] == 1


def test_what_fails_is_a_null_pointer_and_loses_nothing(bench: Bench, calls: Any) -> None:
    allocate, free = calls
    bench.supply.fail_after(0)
    assert allocate(5 * MIB, SIDE) is None
    assert allocate(2 * GIB, SIDE) is None

    ptr = allocate(5 * MIB, SIDE)
    free(ptr, 5 * MIB, SIDE)
    bench.engine.trim(0)
    assert bench.supply.live == 0


def test_nothing_is_what_no_bytes_are(bench: Bench, calls: Any) -> None:
    allocate, free = calls

    assert allocate(0, SIDE) is None
    free(None, 0, SIDE)


def test_a_block_that_another_stream_uses_is_not_reused_at_once(bench: Bench, calls: Any) -> None:
    allocate, free = calls
    bench.supply.hold(9)
    ptr = allocate(5000, SIDE)
    bench.engine.record_use(ptr, FakeStream(9))
    bench.supply.work(9, ptr, 5000)
    free(ptr, 5000, SIDE)

    assert allocate(5000, SIDE) != ptr


def test_threads_that_make_memory_do_not_wait_for_each_other_for_ever(bench: Bench, calls: Any) -> None:
    allocate, free = calls
    start = Barrier(3)

    def churn(seed: int) -> None:
        start.wait()
        for turn in range(200):
            size = (3 * turn + seed) * 20_000 + 1
            free(allocate(size, SIDE), size, SIDE)
            if turn % 20 == 0:
                bench.engine.trim(0)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(churn, range(3)))
    bench.engine.trim(0)

    assert (bench.engine.current, bench.supply.live) == (0, 0)


def test_an_engine_that_has_blocks_out_is_not_relieved_of_a_device(bench: Bench) -> None:
    other, device = compiled_bench(CountingSupply(total=GIB), ELASTIC), next(DEVICES)
    bench.engine.serve(device)
    ptr = bench.allocate(100)
    with pytest.raises(UnsupportedError, match="another caching allocator serves"):
        other.engine.serve(device)
    bench.free(ptr, 100)
    other.engine.serve(device)


def test_a_client_has_memory_of_the_stream_that_it_finds(bench: Bench) -> None:
    current = [SIDE]
    find_stream = ctypes.PYFUNCTYPE(ctypes.c_ssize_t)(lambda: current[0])
    client = bench.engine.client(ctypes.cast(find_stream, ctypes.c_void_p).value)
    kinds = (ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    allocate = ctypes.PYFUNCTYPE(*kinds)(client["allocate"])
    free = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)(client["free"])

    first = allocate(client["param"], 5000, 0)
    current[0] = 9
    second = allocate(client["param"], 5000, 0)
    assert bench.engine.current == 10_000
    free(client["param"], first, 0)
    free(client["param"], second, 0)

    assert bench.allocate(5000, stream=9) == second
    assert bench.allocate(5000, stream=SIDE) == first
    assert allocate(client["param"], 2 * GIB, 0) == 0
