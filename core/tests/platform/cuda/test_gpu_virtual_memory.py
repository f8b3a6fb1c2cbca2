"""What compiled code asks for, on a GPU. What holds on every platform is in ``core/tests/platform``."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import pytest

from allotment.errors import PlatformError
from allotment.platform.cuda import _virtual_memory

if TYPE_CHECKING:
    from allotment.platform.cuda import CudaPlatform

pytestmark = pytest.mark.gpu

SUCCESS = 0
FUNCTIONS = (
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemSetAccess",
    "cuStreamQuery",
    "cuEventRecord",
)


def test_a_function_of_the_driver_is_called_by_its_address(cuda: CudaPlatform):
    get_version = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int))(
        cuda.driver_entry_point("cuDriverGetVersion")
    )
    version = ctypes.c_int()
    assert get_version(ctypes.byref(version)) == SUCCESS
    assert version.value == cuda.versions()[1]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_driver_has_what_an_allocator_needs(cuda: CudaPlatform, name: str):
    assert cuda.driver_entry_point(name) > 0


@pytest.mark.parametrize("name", FUNCTIONS)
def test_its_library_exports_it_too(cuda: CudaPlatform, name: str):
    assert _virtual_memory._exported(name) > 0


def test_a_function_that_the_driver_has_not_is_an_error(cuda: CudaPlatform):
    with pytest.raises(PlatformError, match=r"cudaErrorSymbolNotFound.*cuMemWish"):
        cuda.driver_entry_point("cuMemWish")


def test_every_device_with_memory_pools_has_virtual_memory(cuda: CudaPlatform, device: int):
    found = cuda.device_properties(device)
    assert found.virtual_memory >= found.memory_pools


def test_a_result_of_the_driver_has_the_name_that_the_runtime_gives_its_number(cuda: CudaPlatform):
    assert cuda.driver_error("cuMemCreate", 2).code == "cudaErrorMemoryAllocation"
