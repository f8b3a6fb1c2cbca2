"""Arrays shared with a second process on a real GPU."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

import numpy as np
import pytest

import allotment as al

pytestmark = pytest.mark.gpu

OTHER_PROCESS = """
    import gc, sys
    import allotment as al

    al.init("cuda", quiet=True)
    handles = [bytes.fromhex(text) for text in sys.argv[1:]]
    arrays = [al.from_ipc_handle(handle, "f4", 4, device="cuda:0") for handle in handles]
    print([array.numpy().tolist() for array in arrays])
    first, *others = arrays
    again = al.from_ipc_handle(handles[0], "f4", 4, device="cuda:0")
    assert again.ptr == first.ptr
    del arrays, first
    gc.collect()
    again.fill_(-1)
    al.synchronize()
    print(again.numpy().tolist(), [array.numpy()[0].item() for array in others])
"""


@pytest.fixture(autouse=True)
def exportable():
    """Hold on a device that has handles."""
    if al.get_device("cuda:0").is_ipc_supported is False:
        pytest.skip("the device has no handles for other processes")


@pytest.fixture
def plain():
    """Return a function that makes an array in memory of cudaMalloc."""

    def make(values):
        with al.ScopedMempool("cuda:0", False):
            array = al.array(np.asarray(values, "f4"), device="cuda:0")
        al.synchronize()
        return array

    return make


def in_another_process(*handles):
    command = [sys.executable, "-c", dedent(OTHER_PROCESS), *(handle.hex() for handle in handles)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


class Suballocating:
    """An allocator that cuts blocks from one allocation of cudaMalloc, and says that they can be shared."""

    traits = al.AllocatorTraits(memory_kind=al.MemoryKind.CUDA_DEVICE, ipc=al.IpcKind.LEGACY)

    def __init__(self):
        self.platform = al.get_device("cuda:0").platform
        self.base = self.platform.malloc(2**22)
        self.used = 0

    def allocate(self, size_in_bytes):
        self.used += 512
        return self.base + self.used - 512

    def deallocate(self, ptr, size_in_bytes):
        pass


def test_another_process_reads_and_writes_an_array(plain):
    array = plain([1, 2, 3, 4])
    assert in_another_process(array.ipc_handle()) == ["[[1.0, 2.0, 3.0, 4.0]]", "[-1.0, -1.0, -1.0, -1.0] []"]
    assert array.numpy().tolist() == [-1.0] * 4


def test_blocks_of_one_allocation_and_small_arrays_are_told_apart(plain):
    suballocating = Suballocating()
    with al.ScopedAllocator("cuda:0", suballocating):
        arrays = [al.full(4, float(value), "f4", "cuda:0") for value in range(1, 4)]
    arrays += [plain([4] * 4), plain([5] * 4)]
    al.synchronize()

    lines = in_another_process(*(array.ipc_handle() for array in arrays))

    assert lines == [
        str([[float(value)] * 4 for value in range(1, 6)]),
        "[-1.0, -1.0, -1.0, -1.0] [2.0, 3.0, 4.0, 5.0]",
    ]
    assert [array.numpy()[0] for array in arrays] == [-1.0, 2.0, 3.0, 4.0, 5.0]
    arrays.clear()
    suballocating.platform.free(suballocating.base)


def test_a_handle_of_this_process_is_refused(plain):
    handle = plain([1] * 4).ipc_handle()
    with pytest.raises(al.UnsupportedError, match="made by this process"):
        al.from_ipc_handle(handle, "f4", 4, device="cuda:0")


@pytest.mark.parametrize("name", ["mempool", "managed"])
def test_other_memory_is_refused(name):
    with al.ScopedAllocator("cuda:0", name):
        array = al.zeros(4, "f4", "cuda:0")
    with pytest.raises(al.UnsupportedError, match="CUDA has no handles for"):
        array.ipc_handle()


def test_bytes_that_are_no_handle_of_anybody_are_an_error():
    with pytest.raises(al.PlatformError, match="cudaIpcOpenMemHandle"):
        al.from_ipc_handle(bytes(64), "f4", 4, device="cuda:0")


def test_a_handle_can_be_made_inside_a_capture(plain):
    array = plain([1] * 4)
    with al.ScopedCapture("cuda:0") as capture:
        handle = array.ipc_handle()
    capture.graph.launch()
    assert in_another_process(handle)[0] == "[[1.0, 1.0, 1.0, 1.0]]"
