"""What is particular to the ``cuda-core`` allocator: the resource, its buffers, and what is declared of it."""

import subprocess
import sys

import pytest
from acme_cuda_core_memory import CudaCoreAllocator, CudaCoreOptions
from simulated_resource import OnSimulator, SimulatedOptions, SimulatedResource

import allotment as al


@pytest.fixture
def allocator(simulated):
    return OnSimulator(device=al.get_device("cuda:0"))


def test_a_block_is_a_buffer_of_the_resource(allocator, monkeypatch):
    sizes = []
    allocate = SimulatedResource.allocate
    monkeypatch.setattr(
        SimulatedResource,
        "allocate",
        lambda self, size, **given: (sizes.append(size), allocate(self, size, **given))[1],
    )

    allocator.deallocate(allocator.allocate(1000), 1000)

    assert sizes == [1000]
    assert len(allocator.device.platform.calls.named("free")) == 1


def test_arrays_draw_from_it(simulated):
    al.register_allocator("mine", OnSimulator)
    with al.ScopedAllocator("cuda:1", "mine"):
        array = al.full(100, 7, device="cuda:1")

    assert (array.numpy() == 7).all()
    assert array.allocator.name == "mine"


def test_a_resource_of_which_nothing_is_known_is_waited_for(allocator):
    ptr = allocator.allocate(1000)

    allocator.deallocate(ptr, 1000)

    waited, freed = (
        next(place for place, call in enumerate(allocator.device.platform.calls) if call.name == name)
        for name in ("synchronize_device", "free")
    )
    assert waited < freed


def test_a_resource_that_keeps_stream_order_is_not_waited_for(simulated):
    allocator = OnSimulator(device=al.get_device("cuda:0"), options=SimulatedOptions(stream_ordered=True))

    allocator.deallocate(allocator.allocate(1000), 1000)

    assert simulated.calls.named("synchronize_device") == []
    assert allocator.traits.stream_ordered


@pytest.mark.parametrize(
    ("options", "kind", "ordered"),
    [
        ({}, al.MemoryKind.CUDA_MEMPOOL, True),
        ({"resource": "own-pool"}, al.MemoryKind.CUDA_MEMPOOL, True),
        ({"resource": "own-pool", "stream_ordered": False}, al.MemoryKind.CUDA_MEMPOOL, False),
        ({"resource": "mine:make"}, al.MemoryKind.UNKNOWN, False),
        ({"resource": "mine:make", "stream_ordered": True}, al.MemoryKind.UNKNOWN, True),
    ],
)
def test_no_more_is_declared_than_is_known(options, kind, ordered):
    traits = CudaCoreAllocator.traits_for(CudaCoreOptions(**options))

    assert (traits.memory_kind, traits.stream_ordered, traits.capturable) == (kind, ordered, False)


@pytest.mark.parametrize("resource", ["", "pool", "module:", ":function"])
def test_what_names_no_resource_is_refused(resource):
    with pytest.raises(ValueError, match="device-pool"):
        CudaCoreOptions(resource=resource)


def test_what_makes_no_resource_is_refused(simulated):
    with pytest.raises(TypeError, match=r"simulated_resource:make_nothing returned 0"):
        OnSimulator(
            device=al.get_device("cuda:0"), options=SimulatedOptions(resource="simulated_resource:make_nothing")
        )


def test_the_drivers_word_for_out_of_memory_is_out_of_memory(simulated, monkeypatch):
    def refuse(self, size, *, stream):
        raise RuntimeError("CUDA_ERROR_OUT_OF_MEMORY: the API call failed")

    monkeypatch.setattr(SimulatedResource, "allocate", refuse)
    al.register_allocator("mine", OnSimulator)

    with pytest.raises(al.OutOfMemoryError):
        al.get_allocator("mine", "cuda:0").allocate(1000)


def test_simulated_devices_and_the_host_are_refused_with_the_reason(simulated):
    assert "real devices only" in CudaCoreAllocator.availability(al.get_device("cuda:0")).reason
    assert "CUDA devices" in CudaCoreAllocator.availability(al.get_device("cpu")).reason


def test_importing_it_imports_nothing_of_cuda():
    code = "import acme_cuda_core_memory, sys; print([name for name in sys.modules if name.split('.')[0] == 'cuda'])"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
