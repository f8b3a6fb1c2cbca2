"""What is particular to the allocator ``torch-caching``: whose memory it is, and what PyTorch is asked."""

from __future__ import annotations

from importlib.machinery import ModuleSpec

import pytest

import allotment as al
from allotment_torch_caching import TorchCachingAllocator


@pytest.fixture
def account(torch):
    """Return the allocator of the first device."""
    return al.get_allocator("torch-caching", "cuda:0")


# Where it can be used


def test_without_pytorch_it_is_listed_and_says_how_to_get_it(sim, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("allotment_torch_caching._allocator.find_spec", lambda name: None)

    assert "torch-caching" in [record.name for record in al.list_allocators()]
    with pytest.raises(al.PluginUnavailableError, match=r"PyTorch is not installed: see https://pytorch\.org"):
        al.get_allocator("torch-caching", "cuda:0")


def test_asking_whether_it_can_be_used_imports_no_pytorch(sim, output_of):
    lines = output_of("""
        import sys
        import allotment as al
        from allotment_torch_caching import TorchCachingAllocator
        with al.simulate():
            TorchCachingAllocator.availability(al.get_device("cuda:0"))
        print("torch" in sys.modules)
    """)

    assert lines == ["False"]


@pytest.mark.parametrize(("device", "reason"), [("cpu", "CUDA devices"), ("cuda:0", "of the platform 'sim:2xh200'")])
def test_it_serves_real_devices_alone(sim, monkeypatch, device, reason):
    monkeypatch.setattr(
        "allotment_torch_caching._allocator.find_spec", lambda name: ModuleSpec(name, None) if name == "torch" else None
    )
    answer = TorchCachingAllocator.availability(al.get_device(device))

    assert not answer.ok
    assert reason in answer.reason


def test_another_allocator_of_pytorch_is_refused(torch):
    torch.backend = "pluggable"

    with pytest.raises(al.PluginUnavailableError, match="uses the allocator 'pluggable'"):
        al.get_allocator("torch-caching", "cuda:0")


def test_segments_that_expand_are_mapped_memory(torch):
    assert not al.get_allocator("torch-caching", "cuda:0").traits.mapped
    torch.expands = True

    assert al.get_allocator("torch-caching", "cuda:1").traits.mapped


# What PyTorch is asked


def test_a_block_is_for_the_stream_in_force_on_its_device(torch):
    stream = al.Stream("cuda:1")
    account = al.get_allocator("torch-caching", "cuda:1")
    with al.ScopedStream(stream):
        ptr = account.allocate(1000)

    assert torch.live[ptr][1:4] == (1000, 1, stream.handle)
    account.deallocate(ptr, 1000)
    assert not torch.live


def test_arrays_are_made_of_it(torch, account):
    with al.ScopedAllocator("cuda:0", "torch-caching"):
        array = al.full(1000, 7.0, device="cuda:0")

    assert (array.numpy().sum(), len(torch.live)) == (7000, 1)
    del array
    assert not torch.live


def test_the_size_is_checked_before_pytorch_hears_of_a_free(torch, account):
    ptr = account.allocate(1000)

    with pytest.raises(al.SizeMismatchError):
        account.deallocate(ptr, 999)
    assert ptr in torch.live
    account.deallocate(ptr, 1000)


def test_what_pytorch_cannot_give_is_out_of_memory(torch, account):
    torch.capacity = 100

    with pytest.raises(al.OutOfMemoryError, match=r"CUDA out of memory\. Tried to allocate it"):
        account.allocate(1000)


def test_what_pytorch_holds_is_what_is_reserved(torch, account):
    torch.draw(5000, 0, 0)  # PyTorch's own
    account.deallocate(account.allocate(1000), 1000)

    assert account.statistics().reserved == account.allocator.figures()["reserved_bytes.all.current"] == 6000
    assert account.trim() == 1000
    assert (account.statistics().reserved, account.statistics().peak_reserved) == (5000, 6000)
    account.reset_peak()
    assert account.statistics().peak_reserved == 5000


def test_nothing_is_given_back_of_what_may_be_kept(torch, account):
    account.deallocate(account.allocate(1000), 1000)

    assert account.trim(1000) == 0
    assert len(torch.idle) == 1


def test_closing_leaves_nothing_idle(torch, account):
    account.deallocate(account.allocate(1000), 1000)
    account.close()

    assert not torch.idle


# Graphs


def test_memory_of_a_graph_is_set_apart(torch, account):
    stream, seen = al.Stream("cuda:0"), []
    torch.draw, draw = lambda *request: (seen.append(torch.stream_handle), draw(*request))[1], torch.draw
    pool = account.allocator.open_private_pool()
    blocks = [pool.allocate_on(1000, stream) for _ in range(3)]

    assert {torch.live[ptr][4] for ptr in blocks} == {(1, 0)}
    assert seen == [stream.handle] * 3
    assert torch.routes == []
    for ptr in blocks:
        account.allocator.deallocate_on(ptr, 1000, stream)
    with al.ScopedStream(stream):
        assert account.allocate(1000) not in blocks


def test_a_pool_of_a_graph_is_used_until_it_is_closed(torch, account):
    pool = account.allocator.open_private_pool()
    for _ in range(3):
        pool.allocate_on(1000, al.get_stream("cuda:0"))

    assert torch.uses == {(1, 0): 1}
    pool.close()
    pool.close()
    assert torch.uses == {(1, 0): 0}


def test_a_pytorch_without_such_pools_has_no_memory_for_graphs(torch, account):
    del torch._C._cuda_releasePool

    with pytest.raises(al.UnsupportedError, match=r"no torch\._C\._cuda_releasePool"):
        account.allocator.open_private_pool()


def test_it_says_whose_memory_it_is():
    assert TorchCachingAllocator.draws_from == "torch"
