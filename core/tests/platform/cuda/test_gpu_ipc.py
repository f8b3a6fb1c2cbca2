"""Memory opened by another process, on a GPU."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent
from typing import TYPE_CHECKING

import numpy as np
import pytest

from allotment.errors import PlatformError

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment.platform.cuda import CudaPlatform

pytestmark = pytest.mark.gpu

OTHER_PROCESS = """
    import sys

    import numpy as np

    from allotment.platform.cuda import CudaPlatform

    handle, nbytes = bytes.fromhex(sys.argv[1]), int(sys.argv[2])
    cuda = CudaPlatform()
    cuda.set_current_device(0)
    ptr = cuda.open_ipc_handle(handle)
    data = np.empty(nbytes, np.uint8)
    cuda.copy(data.ctypes.data, ptr, nbytes, 0, 0)
    cuda.synchronize_stream(0, 0)
    print(data.tobytes().hex())
    cuda.fill(ptr, 9, nbytes, 0, 0)
    cuda.synchronize_stream(0, 0)
    cuda.close_ipc_handle(ptr)
"""


@pytest.fixture
def exportable(cuda: CudaPlatform, device: int) -> None:
    if cuda.device_properties(device).ipc is False:
        pytest.skip("the device has no handles for other processes")


def open_in_another_process(handle: bytes, nbytes: int) -> str:
    """Return what another process reads there, before it sets every byte to 9."""
    command = [sys.executable, "-c", dedent(OTHER_PROCESS), handle.hex(), str(nbytes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.usefixtures("exportable")
def test_another_process_reads_and_writes_the_memory_of_a_handle(
    cuda: CudaPlatform, upload: Callable[[np.ndarray], int], download: Callable[[int, int], bytes]
):
    data = np.arange(256, dtype=np.uint8)
    ptr = upload(data)
    assert open_in_another_process(cuda.ipc_handle(ptr), 256) == data.tobytes().hex()
    assert download(ptr, 256) == bytes([9]) * 256


@pytest.mark.usefixtures("exportable")
def test_a_handle_has_64_bytes_and_is_made_from_interior_addresses_too(
    cuda: CudaPlatform, allocate: Callable[[int], int]
):
    ptr = allocate(1 << 22)
    assert len(cuda.ipc_handle(ptr)) == 64
    assert len(cuda.ipc_handle(ptr + 4096)) == 64


@pytest.mark.usefixtures("exportable")
def test_a_handle_of_this_process_cannot_be_opened_in_it(cuda: CudaPlatform, allocate: Callable[[int], int]):
    handle = cuda.ipc_handle(allocate(4096))
    with pytest.raises(PlatformError, match="cudaIpcOpenMemHandle"):
        cuda.open_ipc_handle(handle)


@pytest.mark.usefixtures("exportable")
def test_only_memory_of_malloc_has_a_handle(cuda: CudaPlatform, device: int):
    managed, pinned = cuda.malloc_managed(4096), cuda.host_alloc(4096)
    for ptr in (managed, pinned, np.zeros(4096, np.uint8).ctypes.data):
        with pytest.raises(PlatformError, match="cudaErrorInvalidValue"):
            cuda.ipc_handle(ptr)
    cuda.free(managed)
    cuda.host_free(pinned)


@pytest.mark.usefixtures("exportable")
def test_memory_of_a_pool_has_no_handle(cuda: CudaPlatform, device: int):
    if not cuda.device_properties(device).memory_pools:
        pytest.skip("the device has no memory pools")
    ptr = cuda.malloc_from_pool(4096, cuda.default_pool(device), 0)
    with pytest.raises(PlatformError, match="cudaErrorInvalidValue"):
        cuda.ipc_handle(ptr)
    cuda.free_async(ptr, 0)
    cuda.synchronize_stream(0, device)
