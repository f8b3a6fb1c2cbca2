"""What PyTorch must not be set up for: refused when the bridge is installed, by both names, with nothing changed."""

from __future__ import annotations

import pytest

import allotment as al
from allotment_torch_bridge import TorchBridge, _conflicts
from allotment_torch_bridge._patches import Patches

REPLACE = {"torch": {"mode": "replace"}}


def refused(torch, match, *bridges, **options):
    with pytest.raises(al.BridgeError, match=match):
        al.install(*(bridges or ("torch",)), **options)
    assert (torch.routes, torch.backend in ("native", "pluggable", "cudaMallocAsync")) == ([], True)


@pytest.mark.parametrize("variable", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_segments_that_expand(torch, monkeypatch, variable):
    monkeypatch.setenv(variable, "max_split_size_mb:100,expandable_segments: True")

    refused(torch, rf"bridge to 'torch'.*expandable_segments \({variable}\).*mode 'replace'")


def test_segments_that_expand_since_a_call(torch):
    torch.settings["expandable_segments"] = True

    refused(torch, "expandable_segments.*_set_allocator_settings")


def test_cuda_s_own_allocator(torch, monkeypatch):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync")

    refused(torch, "backend:cudaMallocAsync")
    refused(torch, "backend:cudaMallocAsync", REPLACE)


@pytest.mark.parametrize(("backend", "name"), [("pluggable", "rmm_torch_allocator"), ("other", "allocator 'other'")])
def test_another_allocator(torch, backend, name):
    torch.backend = backend

    with pytest.raises(al.BridgeError, match=name):
        al.install("torch")


def test_no_cache_to_draw_beneath(torch, monkeypatch):
    monkeypatch.setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")

    refused(torch, "PYTORCH_NO_CUDA_MEMORY_CACHING")


def test_a_capture_that_is_underway(torch):
    torch.cuda.init()
    graph = torch.cuda.graphs.CUDAGraph()
    graph.capture_begin()
    with pytest.raises(al.BridgeError, match="a CUDA graph is being captured"):
        al.install("torch")
    graph.capture_end()


def test_a_pytorch_without_cuda(torch):
    torch.version.cuda = None

    refused(torch, "built without CUDA")


def test_an_old_pytorch_takes_no_pools(torch, monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.9.1+cu130")

    refused(torch, "PyTorch 2.9.1.*memory of CUDA graphs.*2.11")


@pytest.mark.parametrize(
    ("bridge", "owner", "name"),
    [("torch", "cuda", "_maybe_exchange_device"), (REPLACE, "_C", "_cuda_getAllocator")],
)
def test_a_part_that_is_missing_is_named(torch, monkeypatch, bridge, owner, name):
    place = getattr(torch, owner)
    monkeypatch.delattr(place if owner == "cuda" else type(place), name)

    refused(torch, rf"has no torch\.{owner}\.{name}", bridge)


def test_a_build_of_core_without_functions_in_c(torch, monkeypatch):
    monkeypatch.setattr(_conflicts, "has_compiled_callbacks", lambda: False)

    refused(torch, "functions in C are not among this build")


def test_real_devices_take_no_simulated_memory(torch):
    torch.cuda.device_count = lambda: 2

    refused(torch, "platform in force is 'sim:2xh200'")


class PytorchMemory:
    """An allocator that draws from PyTorch."""

    draws_from = "torch"
    name = "torch-caching"

    def allocate(self, size_in_bytes):
        raise AssertionError("it is asked")

    def deallocate(self, ptr, size_in_bytes):
        raise AssertionError("it is asked")


def test_an_allocator_that_draws_from_pytorch_itself(torch):
    refused(torch, "draws from PyTorch itself.*allocator='mempool'", allocator=PytorchMemory())


def test_such_an_allocator_in_a_scope_is_not_asked(torch, monkeypatch):
    reports = []
    monkeypatch.setattr("sys.unraisablehook", lambda report: reports.append(str(report.exc_value)))
    al.install("torch")
    with al.ScopedAllocator("cuda:0", PytorchMemory()), pytest.raises(torch.OutOfMemoryError):
        torch.request(100)

    assert "draws from PyTorch itself" in reports[0]


def test_without_pytorch_the_bridge_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("allotment_torch_bridge._bridge.find_spec", lambda name: None)

    assert "https://pytorch.org" in TorchBridge.availability().reason


def test_a_wrong_mode_is_refused(torch):
    with pytest.raises(al.ConfigError, match=r"bridges\.torch\.mode"):
        al.install({"torch": {"mode": "sideways"}})


# Patches


class Owner:
    kept = 1


def test_what_was_put_in_is_taken_out():
    patches = Patches()
    patches.put(Owner, "kept", 2)
    patches.put(Owner, "new", 3)
    assert (Owner.kept, Owner.new) == (2, 3)
    patches.restore()

    assert (Owner.kept, hasattr(Owner, "new")) == (1, False)


def test_what_somebody_else_has_put_in_since_stays(monkeypatch):
    patches = Patches()
    patches.put(Owner, "kept", 2)
    monkeypatch.setattr(Owner, "kept", 5)
    patches.restore()

    assert Owner.kept == 5
    monkeypatch.undo()
    Owner.kept = 1
