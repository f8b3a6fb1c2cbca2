"""In the place of PyTorch's caching allocator: every tensor is an allocation, for good."""

from __future__ import annotations

import sys

import pytest

import allotment as al

REPLACE = {"torch": {"mode": "replace"}}


def allocate(torch, size, device=0, stream=0):
    return torch.current_allocator.allocate(size, device, stream)


def test_a_tensor_is_a_block_for_its_stream(torch, used):
    al.configure(layers=["track"])
    al.install(REPLACE, allocator="mempool")
    stream = al.Stream("cuda:1")
    ptr = allocate(torch, 100, 1, stream.handle)
    (block,) = al.live_blocks()

    assert (used(device="cuda:1"), block.stream) == (100, stream.handle)
    torch.current_allocator.free(ptr, 100, 1, stream.handle)
    assert used(device="cuda:1") == 0


def test_a_tensor_without_elements_is_nothing(torch, used):
    al.install(REPLACE, allocator="mempool")

    assert allocate(torch, 0) is None
    torch.current_allocator.free(None, 0, 0, 0)


def test_the_allocator_in_force_counts(torch, used):
    al.install(REPLACE)
    with al.ScopedAllocator("cuda:0", "managed"):
        ptr = allocate(torch, 100)
    torch.current_allocator.free(ptr, 100, 0, 0)

    assert al.memory_stats("cuda:0", "managed")["cuda:0"]["managed"].frees == 1


@pytest.mark.parametrize("name", ["caching", "mempool"])
def test_another_stream_s_use_is_noted(torch, sim, monkeypatch, name):
    noted = []
    monkeypatch.setattr(al.AccountedAllocator, "record_use", lambda account, *use: noted.append(use))
    al.install(REPLACE, allocator=name)
    stream, ptr = al.Stream("cuda:0"), allocate(torch, 100)
    torch.current_allocator.record_use(ptr, stream.handle)

    assert [(address, used.handle) for address, used in noted] == [(ptr, stream.handle)]


def test_an_allocator_in_c_serves_by_itself(torch, used, monkeypatch):
    account = al.get_allocator("caching", "cuda:1")  # of the first, that of another test serves for good
    if not account.allocator.is_compiled:
        pytest.skip("the compiled engine was not built here")
    al.install(REPLACE, allocator="caching")
    blocks = [allocate(torch, 1000, device=1)]
    monkeypatch.setattr(type(account), "allocate_on", lambda *_: pytest.fail("Python was asked"))
    blocks.append(allocate(torch, 1000, device=1))

    assert used("caching", "cuda:1") == 2000
    for ptr in blocks:
        torch.current_allocator.free(ptr, 1000, 1, 0)
    assert used("caching", "cuda:1") == 0


def test_an_allocator_in_c_with_layers_before_it_is_asked_through_them(torch):
    al.configure(layers=["track"])
    al.install(REPLACE, allocator="caching")
    allocate(torch, 1000)
    allocate(torch, 1000)

    assert len(al.live_blocks()) == 2


def test_emptying_the_cache_trims_the_allocator(torch):
    al.install(REPLACE, allocator="mempool")
    account = al.get_allocator("mempool", "cuda:0")
    torch.current_allocator.free(allocate(torch, 1000), 1000, 0, 0)
    torch.current_allocator.reset()

    assert account.statistics().reserved == 0


def test_what_fails_otherwise_is_reported(torch, sim, monkeypatch):
    reports = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: reports.append(report.exc_value))
    al.install(REPLACE, allocator="mempool")
    sim.fail("malloc_from_pool", code="cudaErrorInvalidValue")

    assert allocate(torch, 100) is None
    assert [type(error) for error in reports] == [al.PlatformError]


def test_a_graph_is_refused_before_anything_is_done(torch):
    al.install(REPLACE, allocator="mempool")

    with pytest.raises(al.BridgeError, match=r"captures no CUDA graph.*mode 'pool'"), torch.cuda.graphs.graph():
        pass
    with pytest.raises(al.BridgeError, match="captures no CUDA graph"):
        torch.cuda.graphs.CUDAGraph().capture_begin()


def test_it_stays(torch):
    al.install(REPLACE, allocator="mempool")

    with pytest.raises(al.BridgeError, match="allows once in a process"):
        al.uninstall("torch")
    assert {each.library: each.state for each in al.status()}["torch"] is al.BridgeState.INSTALLED


def test_a_pytorch_in_use_is_not_taken_over(torch):
    torch.cuda.init()

    with pytest.raises(al.BridgeError, match=r"caching allocator is in use already.*mode 'pool'"):
        al.install(REPLACE)
    assert torch.backend == "native"
