"""Memory shared by handles: two simulated platforms of one process stand for two processes on one machine."""

from __future__ import annotations

import gc
from contextlib import contextmanager

import numpy as np
import pytest

import allotment as al
from allotment.errors import PlatformError
from allotment.interchange import from_numpy
from allotment.ipc import CUDA_HANDLE_SIZE, HANDLE_SIZE


@pytest.fixture
def here():
    """The platform of this process."""
    with al.simulate("2xh200") as platform:
        yield platform
        gc.collect()


@contextmanager
def elsewhere(profile="2xh200"):
    """Be another process on the same machine."""
    with al.simulate(profile) as platform:
        yield platform
        gc.collect()
        al.synchronize()


def plain(values, device="cuda:0"):
    """Return an array in memory of cudaMalloc."""
    with al.ScopedMempool(device, False):
        return al.array(values, device=device)


@pytest.fixture
def shared(here):
    """Return a function that makes an array, which lives as long as the test, and returns its handle."""
    arrays = []

    def share(values, device="cuda:0"):
        arrays.append(plain(values, device))
        return arrays[-1].ipc_handle()

    return share


# Sharing


def test_another_process_sees_the_contents_and_writes_them(here):
    array = plain(np.arange(6.0).reshape(2, 3))
    handle = array.ipc_handle()
    with elsewhere():
        opened = al.from_ipc_handle(handle, float, (2, 3), device="cuda:0")
        assert opened.numpy().tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
        opened[1] = 9.0
        al.synchronize()
        assert (opened.memory_kind, opened.account) == (al.MemoryKind.CUDA_DEVICE, None)
        del opened

    assert array.numpy()[1].tolist() == [9.0] * 3


def test_the_first_64_bytes_are_cudas_handle(here):
    array = plain(np.arange(4.0))
    handle = array.ipc_handle()
    assert (type(handle), len(handle)) == (bytes, HANDLE_SIZE)
    assert handle[:CUDA_HANDLE_SIZE] == here.ipc_handle(array.ptr)
    with elsewhere():
        assert al.from_ipc_handle(handle[:CUDA_HANDLE_SIZE], float, 4).numpy().tolist() == [0.0, 1.0, 2.0, 3.0]


def test_a_handle_has_the_size_that_is_shared(shared):
    handle = shared(np.arange(4.0))
    assert int.from_bytes(handle[64:72], "little") == 0
    assert int.from_bytes(handle[72:80], "little") == 32


class Suballocating:
    """An allocator that cuts blocks from one allocation of cudaMalloc, and says that they can be shared."""

    traits = al.AllocatorTraits(memory_kind=al.MemoryKind.CUDA_DEVICE, ipc=al.IpcKind.LEGACY)

    def __init__(self, platform):
        self.base = platform.malloc(2**20)
        self.used = 0

    def allocate(self, size_in_bytes):
        self.used += 512
        return self.base + self.used - 512

    def deallocate(self, ptr, size_in_bytes):
        pass


def test_blocks_of_one_allocation_are_told_apart(here):
    with al.ScopedAllocator("cuda:0", Suballocating(here)):
        arrays = [al.full(4, float(value)) for value in range(1, 5)]
    handles = [array.ipc_handle() for array in arrays]
    with elsewhere() as other:
        opened = [al.from_ipc_handle(handle, float, 4) for handle in handles]
        assert [array.numpy().tolist() for array in opened] == [[float(value)] * 4 for value in range(1, 5)]
        assert len(other.calls.named("open_ipc_handle")) == 1
        del opened[0], opened[1]
        assert [array.numpy()[0] for array in opened] == [2.0, 4.0]
        opened.clear()
        assert len(other.calls.named("close_ipc_handle")) == 1


def test_a_handle_that_is_opened_twice_is_mapped_once_until_the_last_array_and_view_are_gone(shared):
    handle = shared(np.arange(4.0))
    with elsewhere() as other:
        first, second = (al.from_ipc_handle(handle, float, 4) for _ in range(2))
        view = second[2:]
        assert first.ptr == second.ptr
        del first, second
        assert other.calls.named("close_ipc_handle") == []
        assert view.numpy().tolist() == [2.0, 3.0]
        del view
        assert len(other.calls.named("open_ipc_handle")) == len(other.calls.named("close_ipc_handle")) == 1
        assert al.from_ipc_handle(handle, float, 4).numpy()[3] == 3.0


def test_memory_is_unmapped_when_the_work_that_uses_it_is_done(here):
    array = plain(np.ones(4))
    handle = array.ipc_handle()
    with elsewhere() as other:
        opened = al.from_ipc_handle(handle, float, 4)
        stream = al.Stream("cuda:0")
        other.hold(stream.handle)
        with al.ScopedStream(stream):
            opened.zero_()
        del opened
        names = [call.name for call in other.calls]
        assert names.index("synchronize_device") < names.index("close_ipc_handle")
        other.release(stream.handle)

    assert array.numpy().tolist() == [0.0] * 4


def test_memory_of_the_second_device_is_opened_there(shared):
    handle = shared(np.arange(4.0), "cuda:1")
    with elsewhere():
        opened = al.from_ipc_handle(handle, float, 4, device="cuda:1")
        assert opened.device is al.get_device("cuda:1")
        assert opened.numpy().tolist() == [0.0, 1.0, 2.0, 3.0]


def test_a_layout_inside_the_memory_can_be_chosen(shared):
    handle = shared(np.arange(6.0))
    with elsewhere():
        assert al.from_ipc_handle(handle, float, 3, (16,)).numpy().tolist() == [0.0, 2.0, 4.0]
        assert al.from_ipc_handle(handle, "i8", (2, 3)).shape == (2, 3)


def test_a_layout_beyond_the_memory_is_refused_and_leaves_nothing_mapped(shared):
    handle = shared(np.arange(4.0))
    with elsewhere() as other:
        for given in (handle, handle[:CUDA_HANDLE_SIZE]):
            with pytest.raises(ValueError, match="reaches bytes 0 to 4096 of"):
                al.from_ipc_handle(given, float, 512)
        gc.collect()
        assert len(other.calls.named("open_ipc_handle")) == len(other.calls.named("close_ipc_handle")) == 2


# What cannot be exported


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: al.zeros(4, device="cpu"), "ordinary memory of the host.*shared_memory"),
        (lambda: from_numpy(np.zeros(4)), "ordinary memory of the host"),
        (lambda: al.zeros(4, device="cpu", pinned=True), "page-locked memory of the host"),
        (lambda: al.zeros(4), r"memory of a memory pool.*ScopedMempool"),
        (lambda: al.zeros(4)[1:], "memory of a memory pool"),
        (lambda: plain(np.zeros(4))[1:], "it is a view. Share the array"),
        (lambda: plain(np.zeros(4)).reshape(2, 2), "it is a view"),
        (lambda: plain(np.zeros(0)), "it has no elements"),
    ],
    ids=["host", "numpy", "pinned", "pool", "view of a pool", "view", "reshaped", "empty"],
)
def test_what_cannot_be_shared_is_refused_with_its_own_reason_before_the_driver_is_asked(here, make, reason):
    array = make()
    with pytest.raises(al.UnsupportedError, match=f"cannot be shared with another process: .*{reason}"):
        array.ipc_handle()
    assert here.calls.named("ipc_handle") == []


def test_managed_memory_is_refused(here):
    with al.ScopedAllocator("cuda:0", "managed"):
        array = al.zeros(4)
    for each in (array, array[1:]):
        with pytest.raises(al.UnsupportedError, match="no handles for managed memory"):
            each.ipc_handle()


def test_memory_of_another_owner_is_refused(here):
    ptr = here.malloc(32)
    array = al.from_pointer(ptr, 4, float, "cuda:0")
    with pytest.raises(al.UnsupportedError, match="belongs to another owner"):
        array.ipc_handle()


def test_memory_of_another_process_is_not_passed_on(shared):
    handle = shared(np.zeros(4))
    with elsewhere(), pytest.raises(al.UnsupportedError, match="belongs to another owner"):
        al.from_ipc_handle(handle, float, 4).ipc_handle()


def test_an_allocator_that_does_not_say_that_it_can_is_refused(here):
    class Plain(Suballocating):
        traits = al.AllocatorTraits(memory_kind=al.MemoryKind.CUDA_DEVICE)

    with al.ScopedAllocator("cuda:0", Plain(here)):
        array = al.zeros(4)
    with pytest.raises(al.UnsupportedError, match="'Plain' does not say that its memory has handles"):
        array.ipc_handle()


@pytest.mark.parametrize("profile", ["jetson-orin", "wsl"])
def test_a_device_without_handles_refuses_both_ways(profile):
    with al.simulate(profile) as platform:
        assert al.get_device("cuda:0").is_ipc_supported is False
        array = plain(np.zeros(4))
        with pytest.raises(al.UnsupportedError, match="device 'cuda:0' does not support it"):
            array.ipc_handle()
        with pytest.raises(al.UnsupportedError, match="cannot open memory of other processes"):
            al.from_ipc_handle(bytes(HANDLE_SIZE), float, 4)
        assert platform.calls.named("ipc_handle", "open_ipc_handle") == []


def test_where_nobody_knows_whether_a_device_can_it_is_tried():
    with al.simulate("no-pools") as platform:
        assert al.get_device("cuda:0").is_ipc_supported is None
        assert len(al.zeros(4).ipc_handle()) == HANDLE_SIZE
        assert len(platform.calls.named("ipc_handle")) == 1


def test_a_refusal_of_the_driver_is_an_error(here):
    array = plain(np.zeros(4))
    here.fail("ipc_handle", code="cudaErrorNotSupported")
    with pytest.raises(PlatformError, match="cudaErrorNotSupported"):
        array.ipc_handle()


# What cannot be opened


def test_a_handle_of_this_process_is_refused_clearly(here):
    array = plain(np.zeros(4))
    with pytest.raises(al.UnsupportedError, match="made by this process, which has the array already"):
        al.from_ipc_handle(array.ipc_handle(), float, 4)
    with pytest.raises(PlatformError) as raised:
        al.from_ipc_handle(array.ipc_handle()[:CUDA_HANDLE_SIZE], float, 4)
    assert any("of this very process" in note for note in raised.value.__notes__)


def test_memory_that_is_gone_is_an_error_and_not_another_array(here):
    array = plain(np.zeros(4))
    handle = array.ipc_handle()
    del array
    al.synchronize()
    with elsewhere() as other:
        with pytest.raises(PlatformError, match="cudaErrorInvalid"):
            al.from_ipc_handle(handle, float, 4)
        assert other.calls.named("malloc", "malloc_from_pool", "close_ipc_handle") == []
        with pytest.raises(PlatformError):
            al.from_ipc_handle(handle, float, 4)


@pytest.mark.parametrize("handle", [b"", bytes(63), bytes(65), bytes(HANDLE_SIZE + 1)])
def test_bytes_that_are_no_handle_are_refused(here, handle):
    with pytest.raises(ValueError, match=f"a handle has {HANDLE_SIZE} bytes, or CUDA's 64, not {len(handle)}"):
        al.from_ipc_handle(handle, float, 4)


def test_the_host_opens_no_handles(here):
    with pytest.raises(al.UnsupportedError, match=r"handles are for memory of CUDA devices.*shared_memory"):
        al.from_ipc_handle(bytes(HANDLE_SIZE), float, 4, device="cpu")


# Captures


def test_memory_of_others_is_not_opened_inside_a_capture_and_unmapped_after_it(shared):
    handle = shared(np.zeros(4))
    with elsewhere() as other:
        opened = al.from_ipc_handle(handle, float, 4)
        with al.ScopedCapture() as capture:
            with pytest.raises(al.CaptureError, match="opening memory of another process"):
                al.from_ipc_handle(handle, float, 4)
            del opened
            assert other.calls.named("close_ipc_handle", "synchronize_device") == []
        assert len(other.calls.named("close_ipc_handle")) == 1
        assert capture.graph is not None


def test_a_handle_can_be_made_inside_a_capture(here):
    array = plain(np.zeros(4))
    with al.ScopedCapture() as capture:
        assert len(array.ipc_handle()) == HANDLE_SIZE
    capture.graph.launch()


def test_memory_that_is_still_mapped_when_the_process_ends_is_left_alone(output_of):
    script = """
    import atexit
    import numpy as np
    import allotment as al
    exporter = al.simulate("2xh200"); exporter.__enter__()
    with al.ScopedMempool("cuda:0", False):
        array = al.zeros(4)
    handle = array.ipc_handle()
    importer = al.simulate("2xh200"); sim = importer.__enter__()
    opened = al.from_ipc_handle(handle, float, 4)
    print(opened.numpy().tolist())
    atexit.register(sim.mark_shutdown)
    """
    assert output_of(script) == ["[0.0, 0.0, 0.0, 0.0]"]


def test_a_failure_to_unmap_is_a_warning(shared):
    handle = shared(np.zeros(4))
    with elsewhere() as other:
        opened = al.from_ipc_handle(handle, float, 4)
        other.fail("close_ipc_handle", code="cudaErrorUnknown")
        with pytest.warns(al.FreeFailedWarning, match="could not be given back to the process that shares them"):
            del opened
