"""Beneath PyTorch's cache: its segments come from Allotment and go back there, and PyTorch works as ever."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread

import pytest

import allotment as al
from allotment.bridges._installation import installations
from allotment_torch_bridge import last_refusal
from allotment_torch_bridge._receiver import RECEIVER

MIB = 2**20


def until(condition):
    """Wait for what another thread does."""
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.005)


def test_a_segment_is_an_allocation_of_its_device(torch, used):
    al.install("torch", allocator="mempool")
    segment = torch.request(20 * MIB, device=1)

    assert (used(device="cuda:0"), used(device="cuda:1")) == (0, 20 * MIB)
    torch.free(segment)
    assert used(device="cuda:1") == 20 * MIB
    assert torch.request(10 * MIB, device=1) is segment


def test_every_thread_draws_from_it(torch, used):
    al.install("torch", allocator="mempool")
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(torch.request, [MIB] * 5))

    assert used() == 5 * MIB


def test_the_allocator_in_force_counts(torch, used):
    al.install("torch")
    with al.ScopedAllocator("cuda:0", "managed"):
        torch.request(MIB)

    assert (used("mempool"), used("managed")) == (0, MIB)


def test_a_segment_may_be_used_by_any_stream(torch, sim):
    al.configure(layers=["track"])
    al.install("torch", allocator="mempool")
    torch.request(MIB, stream=al.Stream("cuda:0").handle)
    (block,) = al.live_blocks()

    assert block.stream in [call.arguments["stream"] for call in sim.calls.named("synchronize_stream")]


def test_emptying_the_cache_gives_idle_segments_back(torch, used):
    al.install("torch", allocator="mempool")
    kept = torch.request(MIB)
    torch.free(torch.request(20 * MIB))
    torch.cuda.empty_cache()

    assert kept in torch.segments
    assert MIB <= used() <= MIB + 512
    until(lambda: torch.cuda.empty_cache() or used() == MIB)
    assert torch.request(2 * MIB).pool != kept.pool


def test_a_cache_without_idle_segments_is_left_alone(torch):
    al.install("torch", allocator="mempool")
    before = torch.request(MIB)
    torch.cuda.empty_cache()

    assert torch.request(MIB).pool == before.pool


def test_memory_is_waited_for_before_it_goes_back(torch, sim):
    al.install("torch", allocator="mempool")
    torch.free(torch.request(20 * MIB))
    sim.calls.clear()
    torch.cuda.empty_cache()
    names = [call.name for call in sim.calls.named("synchronize_device", "free_async")]

    assert names[:2] == ["synchronize_device", "free_async"]


def test_idle_segments_are_given_back_before_memory_is_short(torch, used):
    al.install("torch", allocator="mempool")
    size = 100 * 2**30
    torch.free(torch.request(size))
    torch.request(size + MIB)

    assert size + MIB <= used() <= size + MIB + 512


def test_what_is_not_to_be_had_is_pytorch_s_error_and_ours_is_kept(torch):
    al.install("torch", allocator="mempool")

    with pytest.raises(torch.OutOfMemoryError):
        torch.request(2**50)
    assert (last_refusal().allocator, last_refusal().requested) == ("mempool", 2**50)
    assert last_refusal().__traceback__ is None


def test_blocks_that_other_streams_use_come_back(torch):
    al.install("torch", allocator="mempool")
    segment = torch.request(MIB)
    segment.uses.append(7)
    torch.free(segment)

    until(lambda: not segment.is_waiting)
    assert segment in torch.segments


def test_a_graph_has_its_own_memory_and_is_left_in_peace(torch, used):
    al.install("torch", allocator="mempool")
    waiting = torch.request(MIB)
    waiting.uses.append(7)
    torch.free(waiting)
    graph = torch.cuda.graphs.CUDAGraph()
    graph.capture_begin()
    torch.request(2 * MIB)
    torch.free(torch.segments[-1])
    torch.cuda.empty_cache()
    time.sleep(0.05)

    assert (used(), RECEIVER.captures) == (MIB, 1)
    graph.capture_end()
    assert RECEIVER.captures == 0
    torch.request(3 * MIB)
    assert used() >= 4 * MIB


def test_a_capture_that_does_not_begin_is_none(torch, monkeypatch):
    def fail(graph):
        raise RuntimeError("no")

    monkeypatch.setattr(torch.cuda.graphs.CUDAGraph, "capture_begin", fail)
    al.install("torch", allocator="mempool")

    with pytest.raises(RuntimeError):
        torch.cuda.graphs.CUDAGraph().capture_begin()
    assert RECEIVER.captures == 0


def test_pools_of_the_program_come_first_and_may_end(torch, used):
    al.install("torch", allocator="mempool")
    pool = torch.cuda.MemPool()
    torch._C._cuda_beginAllocateToPool(0, pool.id)
    segment = torch.request(MIB)
    torch._C._cuda_endAllocateToPool(0, pool.id)
    torch._C._cuda_releasePool(0, pool.id)
    torch.free(segment)

    assert used() == 0
    name = pool.id
    del pool
    assert (torch.pools[name].uses, segment in torch.segments) == (0, False)


def test_devices_in_use_reach_each_other_s_memory(torch):
    al.install("torch", allocator="mempool")
    torch.request(MIB, device=0)
    assert not al.is_mempool_access_enabled("cuda:0", "cuda:1")
    torch.request(MIB, device=1)

    assert al.is_mempool_access_enabled("cuda:0", "cuda:1")
    assert al.is_mempool_access_enabled("cuda:1", "cuda:0")


def test_pytorch_is_told_to_hold_no_lock_and_keeps_its_other_settings(torch):
    al.install("torch")

    assert torch.settings["PYTORCH_CUDA_ALLOC_CONF"] == "max_split_size_mb:200,release_lock_on_cudamalloc:True"


# After the bridge


def test_uninstalled_pytorch_allocates_for_itself(torch, used):
    before = dict(vars(torch.cuda.graphs.CUDAGraph)), dict(vars(torch.cuda.MemPool))
    al.install("torch", allocator="mempool")
    al.uninstall("torch")
    torch.request(MIB)

    assert used() == 0
    assert (dict(vars(torch.cuda.graphs.CUDAGraph)), dict(vars(torch.cuda.MemPool))) == before
    assert torch.routes == []


def test_a_tensor_outlives_the_bridge_and_its_memory_returns(torch, used):
    al.install("torch", allocator="managed")
    segment = torch.request(MIB)
    al.uninstall("torch")

    assert MIB <= used("managed") <= MIB + 512
    torch.free(segment)
    until(lambda: torch.cuda.empty_cache() or used("managed") == 0)


def test_a_bridge_that_is_installed_again_gives_each_block_back_where_it_came_from(torch, used):
    al.install("torch", allocator="managed")
    first = torch.request(MIB)
    al.uninstall("torch")
    al.install("torch", allocator="mempool")
    second = torch.request(2 * MIB)
    torch.free(first)
    torch.free(second)

    until(lambda: torch.cuda.empty_cache() or used("managed") + used("mempool") == 0)


def test_it_is_told_that_somebody_else_took_pytorch_over(torch):
    al.install("torch")
    torch.backend = "pluggable"
    (status,) = (each for each in al.status() if each.library == "torch")

    assert (status.state, status.allocator) == (al.BridgeState.DISPLACED, "PyTorch's allocator 'pluggable'")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_ends_though_a_thread_of_its_parent_held_a_route(torch):
    al.install("torch", allocator="mempool")
    pools = installations._installed["torch"].bridge._installed
    is_held, is_over = Event(), Event()

    def hold():
        with pools._routes[0]._lock:
            is_held.set()
            is_over.wait(30)

    thread = Thread(target=hold)
    thread.start()
    is_held.wait(30)
    child = os.fork()
    if not child:
        signal.alarm(10)
        pools._stop()
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    is_over.set()
    thread.join()

    assert status == 0
