"""Installing the bridge to Warp, as far as that goes without a GPU."""

import pytest

import allotment as al
from allotment.errors import BridgeError
from allotment_warp_bridge import AllotmentWarpAllocator, WarpBridge


@pytest.fixture
def warp(sim):
    """Warp itself, on its CPU device."""
    module = pytest.importorskip("warp", reason="Warp is not installed")
    module.config.log_level = 30
    return module


def test_the_bridge_imports_nothing_of_warp(output_of):
    assert output_of("import sys, allotment_warp_bridge; print('warp' in sys.modules)") == ["False"]


def test_it_says_what_is_missing_without_warp(monkeypatch):
    monkeypatch.setattr("allotment_warp_bridge._bridge.find_spec", lambda name: None)
    assert WarpBridge.availability().reason == "warp is not installed: pip install warp-lang"


def test_without_a_cuda_device_there_is_nothing_to_install(warp):
    if warp.is_cuda_available():
        pytest.skip("Warp sees a CUDA device here")
    with pytest.raises(BridgeError, match="Warp sees no CUDA device"):
        al.install("warp")
    assert warp.zeros(3, dtype=float, device="cpu").numpy().tolist() == [0.0, 0.0, 0.0]


def test_our_allocator_is_one_by_warp_s_protocol(warp, make):
    from warp._src.context import Allocator, _validate_allocator

    allocator = make()
    assert isinstance(allocator, Allocator)
    _validate_allocator(allocator)


@pytest.mark.parametrize(
    ("name", "kind"), [("default", "CUDA_DEVICE"), ("mempool", "CUDA_MEMPOOL"), ("managed", "CUDA_MANAGED")]
)
def test_the_kind_of_memory_is_in_warp_s_words(warp, device, name, kind):
    allocator = AllotmentWarpAllocator(device, al.Delivery("warp", name), warp.MemoryKind)
    assert allocator.memory_kind is warp.MemoryKind[kind]
