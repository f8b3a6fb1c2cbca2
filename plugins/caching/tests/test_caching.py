"""The ``caching`` allocator on a platform: arrays, streams, graphs, peers, options."""

from __future__ import annotations

import ctypes
import gc
from dataclasses import fields
from typing import TYPE_CHECKING
from weakref import ref

import numpy as np
import pytest
from test_mlx_rule import SWITCHES

import allotment as al
from allotment_caching import CachingAllocator, CachingOptions, Policy, _allocator, _twins
from allotment_caching._twins import compiled_module
from allotment_caching.engine.mlx_cache import MlxSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allotment.platform.simulated import SimulatedPlatform

MIB = 2**20


@pytest.fixture(params=["python", "compiled"])
def engine(request: pytest.FixtureRequest) -> str:
    if request.param == "compiled" and compiled_module() is None:
        pytest.skip("the compiled engine was not built here")
    return str(request.param)


@pytest.fixture
def sim(engine: str) -> Iterator[SimulatedPlatform]:
    with al.simulate("2xh200") as simulation:
        al.configure(allocator="caching", allocators={"caching": {"engine": engine}})
        yield simulation


def test_arrays_draw_from_it_by_name(sim: SimulatedPlatform) -> None:
    array = al.full((100, 100), 2.5, device="cuda:0")

    assert array.allocator.name == "caching"
    assert array.memory_kind is al.MemoryKind.CUDA_DEVICE
    assert float(array.numpy().sum()) == 25000
    assert array.allocator.statistics().current == array.nbytes


def test_memory_that_moved_keeps_the_contents_of_live_arrays(sim: SimulatedPlatform) -> None:
    arrays = [al.full(MIB // 4, index, dtype=np.float32, device="cuda:0") for index in range(32)]
    for index in range(0, 32, 2):
        arrays[index] = None  # type: ignore[call-overload]
    large = al.full(12 * MIB // 4, 99, dtype=np.float32, device="cuda:0")

    assert all((arrays[index].numpy() == index).all() for index in range(1, 32, 2))
    assert (large.numpy() == 99).all()


def test_work_in_flight_keeps_its_memory_when_it_moves(sim: SimulatedPlatform) -> None:
    stream = al.Stream("cuda:0", non_blocking=True)
    with al.ScopedStream(stream, sync_enter=False):
        source = al.full(2 * MIB, 7, dtype=np.uint8, device="cuda:0")
        other = al.zeros(2 * MIB, dtype=np.uint8, device="cuda:0")
        target = al.zeros(2 * MIB, dtype=np.uint8, device="cuda:0")
        with sim.delayed(stream.handle, 0):
            al.copy(target, source)
            del source, other
            gc.collect()
            al.zeros(8 * MIB, dtype=np.uint8, device="cuda:0")  # takes over what they leave
        assert (target.numpy() == 7).all()


def test_a_graph_keeps_its_memory_apart_while_it_lives(sim: SimulatedPlatform) -> None:
    stream = al.Stream("cuda:0", non_blocking=True)
    with al.ScopedCapture(stream=stream) as capture:
        inside = al.zeros(MIB, dtype=np.uint8, device="cuda:0")
        inside.fill_(5)
    address = inside.ptr
    al.capture_launch(capture.graph, stream)
    stream.synchronize()
    assert (inside.numpy() == 5).all()

    del inside
    gc.collect()
    assert address not in [al.empty(MIB, dtype=np.uint8, device="cuda:0").ptr for _ in range(4)]
    al.capture_launch(capture.graph, stream)


def test_what_a_graph_had_serves_again_once_it_is_gone(sim: SimulatedPlatform) -> None:
    with al.ScopedCapture("cuda:0") as capture:
        inside = al.zeros(8 * MIB, dtype=np.uint8, device="cuda:0")
    al.capture_launch(capture.graph)
    del inside
    capture.graph.close()
    held = al.get_device_allocator("cuda:0").statistics().reserved

    again = al.empty(8 * MIB, dtype=np.uint8, device="cuda:0")

    assert al.get_device_allocator("cuda:0").statistics().reserved == held
    assert again.ptr


def test_an_array_freed_inside_a_capture_leaves_its_memory_to_the_next_one_there(sim: SimulatedPlatform) -> None:
    with al.ScopedCapture("cuda:0"):
        first = al.zeros(MIB, dtype=np.uint8, device="cuda:0")
        address = first.ptr
        del first
        second = al.zeros(MIB, dtype=np.uint8, device="cuda:0")
        assert second.ptr == address


def test_peer_access_lets_another_device_touch_memory_of_before_and_after(sim: SimulatedPlatform) -> None:
    before = al.zeros(10, device="cuda:0")
    assert not al.can_access("cuda:1", before)

    al.set_peer_access_enabled("cuda:0", "cuda:1", True)
    after = al.zeros(20 * MIB, device="cuda:0")
    assert al.can_access("cuda:1", before)
    assert al.can_access("cuda:1", after)

    al.set_peer_access_enabled("cuda:0", "cuda:1", False)
    assert not al.can_access("cuda:1", before)


def test_a_limit_is_an_out_of_memory_error_with_the_figures(sim: SimulatedPlatform, engine: str) -> None:
    allocator = al.get_allocator("caching", "cuda:0", engine=engine, limit="64 MiB")
    allocator.allocate(40 * MIB)

    with pytest.raises(al.OutOfMemoryError, match="the limit is 67,108,864"):
        allocator.allocate(30 * MIB)


def test_a_closed_stream_leaves_its_memory_to_others(sim: SimulatedPlatform) -> None:
    stream = al.Stream("cuda:0", non_blocking=True)
    with al.ScopedStream(stream):
        al.empty(64 * MIB, dtype=np.uint8, device="cuda:0")
    stream.close()
    held = al.get_device_allocator("cuda:0").statistics().reserved

    al.empty(64 * MIB, dtype=np.uint8, device="cuda:0")

    assert al.get_device_allocator("cuda:0").statistics().reserved == held


def test_no_context_is_opened_on_another_device(sim: SimulatedPlatform) -> None:
    al.empty(10, device="cuda:0")

    assert sim.contexts() <= {0}


def test_segments_serve_where_memory_cannot_be_mapped(engine: str) -> None:
    with al.simulate("no-pools") as sim:
        allocator = al.get_allocator("caching", "cuda:0", engine=engine)
        allocator.deallocate(allocator.allocate(1000), 1000)

        assert [call.name for call in sim.calls if call.name in ("malloc", "create_physical")] == ["malloc"]


def test_a_negative_idle_time_is_refused(sim: SimulatedPlatform) -> None:
    with pytest.raises(al.ConfigError, match="idle_seconds"):
        al.get_allocator("caching", "cuda:0", idle_seconds=-1)


# The policy "mlx"


def mlx_allocator(engine: str, device: str = "cuda:0", **options: object) -> CachingAllocator:
    """Return the plugin's object behind the accounts."""
    made: CachingAllocator = al.get_allocator("caching", device, engine=engine, policy="mlx", **options).allocator
    return made


def test_mlx_draws_from_the_default_pool_and_scalars_are_managed(sim: SimulatedPlatform, engine: str) -> None:
    with al.ScopedAllocator("cuda:0", al.get_allocator("caching", "cuda:0", engine=engine, policy="mlx")):
        array, scalar = al.zeros(100, device="cuda:0"), al.zeros(1, dtype=np.float32, device="cuda:0")

    assert (array.memory_kind, scalar.memory_kind) == (al.MemoryKind.CUDA_MEMPOOL, al.MemoryKind.CUDA_MANAGED)
    made = [call for call in sim.calls if call.name == "malloc_from_pool"]
    assert [call.arguments["pool"] for call in made] == [sim.default_pool(0)]


def test_both_policies_have_limits_of_their_own_by_default(sim: SimulatedPlatform, engine: str) -> None:
    total = al.get_device("cuda:0").total_memory
    elastic = al.get_allocator("caching", "cuda:0", engine=engine).allocator
    mlx = mlx_allocator(engine)

    assert (elastic.get_memory_limit(), elastic.get_cache_limit()) == (total, total)
    assert (mlx.get_memory_limit(), mlx.get_cache_limit()) == (int(0.95 * total), total // 4)


def test_limits_of_mlx_can_be_said_and_changed(sim: SimulatedPlatform, engine: str) -> None:
    allocator = mlx_allocator(engine, limit="1 GiB", cache_limit="8 MiB")

    assert (allocator.get_memory_limit(), allocator.get_cache_limit()) == (2**30, 8 * MIB)
    assert (allocator.set_memory_limit(2**29), allocator.set_cache_limit(MIB)) == (2**30, 8 * MIB)
    assert (allocator.get_memory_limit(), allocator.get_cache_limit()) == (2**29, MIB)
    with pytest.raises(ValueError, match="must be 0 or more"):
        allocator.set_memory_limit(-1)


def test_lowering_a_limit_of_mlx_gives_back_at_once(sim: SimulatedPlatform, engine: str) -> None:
    allocator = mlx_allocator(engine)
    allocator.deallocate(allocator.allocate(8 * MIB), 8 * MIB)

    allocator.set_cache_limit(0)

    assert allocator.figures().reserved == 0


def test_idle_memory_of_mlx_is_kept_for_ever_if_that_is_asked_for(engine: str) -> None:
    options = CachingOptions(policy=Policy.MLX, idle_seconds=0)

    assert _twins._mlx_settings(options, 2**30).idle_seconds is None
    assert _twins._mlx_settings(CachingOptions(policy=Policy.MLX), 2**30) == MlxSettings.mended(2**30)


def test_every_switch_of_mlx_is_an_option() -> None:
    switches = {field.name for field in fields(MlxSettings)} - {"total", "memory_limit", "cache_limit", "idle_seconds"}
    options = {field.name.removeprefix("mlx_") for field in fields(CachingOptions) if field.name.startswith("mlx_")}

    assert options == switches | {"managed"}


def test_all_switches_restore_mlx() -> None:
    said = {f"mlx_{name}": True for name in SWITCHES}
    options = CachingOptions(
        policy=Policy.MLX,
        cache_limit=al.MemoryAmount(fraction=0.95),
        idle_seconds=0,
        mlx_scalar_alignment=8,
        **said,
    )

    assert _twins._mlx_settings(options, 2**30) == MlxSettings.as_mlx(2**30)


def test_traits_follow_the_options(sim: SimulatedPlatform, engine: str) -> None:
    traits = mlx_allocator(engine, mlx_scalar_alignment=8, mlx_ignores_streams=True).traits

    assert (traits.alignment, traits.stream_ordered, traits.mapped) == (8, False, False)
    assert mlx_allocator(engine, mlx_managed=True).traits.memory_kind is al.MemoryKind.CUDA_MANAGED


def test_managed_memory_is_handed_out_where_that_is_asked_for(sim: SimulatedPlatform, engine: str) -> None:
    with al.ScopedAllocator(
        "cuda:0", al.get_allocator("caching", "cuda:0", engine=engine, policy="mlx", mlx_managed=True)
    ):
        array = al.full(1000, 3.0, device="cuda:0")

    assert array.memory_kind is al.MemoryKind.CUDA_MANAGED
    assert (array.numpy() == 3).all()


def test_devices_share_a_cache_only_where_they_are_ignored(sim: SimulatedPlatform, engine: str) -> None:
    apart = [mlx_allocator(engine, device) for device in ("cuda:0", "cuda:1")]
    shared = [mlx_allocator(engine, device, mlx_ignores_devices=True) for device in ("cuda:0", "cuda:1")]
    managed = mlx_allocator(engine, mlx_ignores_devices=True, mlx_managed=True)

    assert apart[0].mlx_cache is not apart[1].mlx_cache
    assert shared[0].mlx_cache is shared[1].mlx_cache is managed.mlx_cache
    shared[0].deallocate(shared[0].allocate(MIB), MIB)
    ptr = shared[1].allocate(MIB)
    assert sim.pointer_attributes(ptr).kind is al.MemoryKind.CUDA_MANAGED, "the buffer of the other device was replaced"


def test_a_shared_cache_ends_with_the_last_who_uses_it(engine: str) -> None:
    options = {"engine": engine, "policy": "mlx", "mlx_ignores_devices": True}
    with al.simulate("2xh200"):
        first = ref(al.get_allocator("caching", "cuda:0", **options).allocator.mlx_cache)
    with al.simulate("2xh200"):
        second = al.get_allocator("caching", "cuda:0", **options).allocator.mlx_cache
        assert second is not first()
    gc.collect()

    assert first() is None


def test_options_of_mlx_are_refused_with_the_other_policy(sim: SimulatedPlatform) -> None:
    with pytest.raises(al.ConfigError, match="mlx_managed concern the policy"):
        al.get_allocator("caching", "cuda:0", mlx_managed=True)


@pytest.mark.parametrize("alignment", [0, 4, 24])
def test_an_alignment_that_is_none_is_refused(sim: SimulatedPlatform, alignment: int) -> None:
    with pytest.raises(al.ConfigError, match="power of two"):
        al.get_allocator("caching", "cuda:0", policy="mlx", mlx_scalar_alignment=alignment)


def test_a_graph_keeps_its_memory_apart_with_mlx_as_well(sim: SimulatedPlatform, engine: str) -> None:
    with al.ScopedAllocator("cuda:0", al.get_allocator("caching", "cuda:0", engine=engine, policy="mlx")):
        with al.ScopedCapture("cuda:0") as capture:
            inside = al.zeros(MIB, dtype=np.uint8, device="cuda:0")
            inside.fill_(5)
        address = inside.ptr
        al.capture_launch(capture.graph)
        del inside
        gc.collect()
        assert address not in [al.empty(MIB, dtype=np.uint8, device="cuda:0").ptr for _ in range(4)]


def test_a_missing_compiled_engine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_allocator, "compiled_module", lambda: None)
    assert "engine in Python" in (CachingAllocator.diagnosis() or "")

    monkeypatch.setattr(_allocator, "compiled_module", object)
    assert CachingAllocator.diagnosis() is None


def test_functions_in_c_allocate_and_free_from_the_same_accounts(sim: SimulatedPlatform, engine: str) -> None:
    allocator = al.get_allocator("caching", "cuda:0", engine=engine)
    if engine == "python":
        with pytest.raises(al.UnsupportedError, match="compiled twin"):
            allocator.allocator.c_functions()
        return
    functions = allocator.allocator.c_functions()
    allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)(functions.allocate)
    free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)(functions.free)

    ptr = allocate(5000, 0, None)
    assert allocator.statistics().current == 5000
    free(ptr, 5000, 0, None)
    assert allocator.statistics().current == 0


class Current:
    """The stream that is current in a library that allocates in C."""

    def __init__(self) -> None:
        self.stream = al.Stream("cuda:0")

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.stream.handle


def test_a_client_in_c_has_the_stream_of_its_library_kept_and_may_refuse(sim: SimulatedPlatform, engine: str) -> None:
    if engine == "python":
        pytest.skip("the engine in Python has no functions in C")
    allocator, current = al.get_allocator("caching", "cuda:0"), [Current()]
    find = ctypes.PYFUNCTYPE(ctypes.c_ssize_t)(lambda: current[0].stream.handle)
    address = ctypes.cast(find, ctypes.c_void_p).value
    assert address is not None
    client = allocator.allocator.c_client(address, lambda handle: current[0] if handle else None)
    allocate = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)(client.allocate)
    free = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)(client.free)
    free(client.param, allocate(client.param, 5000, 0), 0)
    alive = ref(current.pop())
    gc.collect()

    assert alive() is not None
    allocator.trim()
    gc.collect()
    assert alive() is None
    current.append(Current())
    another = al.get_allocator("caching", "cuda:0", idle_seconds=5).allocator
    refusing = another.c_client(address, lambda handle: handle // 0)
    assert allocate(refusing.param, 5000, 0) is None
    FOR_EVER.append(find)


FOR_EVER: list[object] = []
"""Functions that an engine may call as long as it lives."""
