"""The functions of CuPy and cuda-bindings that the platform calls exist, with the arguments that it gives them.

No GPU is needed: the signatures are read from the docstrings that Cython makes.
"""

from __future__ import annotations

import re

import pytest

from allotment.platform import CaptureMode, CaptureStatus, MemoryAdvice, PoolAccess, PoolAttribute
from allotment.platform.cuda import _bindings, _contents, _devices, _graphs, _platform, _pointers, _pools, _streams

NO_CUPY = "CuPy is not installed"
NO_BINDINGS = "cuda-bindings is not installed"

RUNTIME = {
    "deviceCanAccessPeer": ["device", "peerDevice"],
    "deviceDisablePeerAccess": ["peerDevice"],
    "deviceEnablePeerAccess": ["peerDevice"],
    "deviceGetAttribute": ["attrib", "device"],
    "deviceGetDefaultMemPool": ["device"],
    "deviceSynchronize": [],
    "driverGetVersion": [],
    "eventCreateWithFlags": ["flags"],
    "eventDestroy": ["event"],
    "eventQuery": ["event"],
    "eventRecord": ["event", "stream"],
    "eventSynchronize": ["event"],
    "free": ["ptr"],
    "freeAsync": ["ptr", "stream"],
    "freeHost": ["ptr"],
    "getDevice": [],
    "getDeviceCount": [],
    "getDeviceProperties": ["device"],
    "graphDestroy": ["graph"],
    "graphExecDestroy": ["graphExec"],
    "graphLaunch": ["graphExec", "stream"],
    "hostAlloc": ["size", "flags"],
    "ipcCloseMemHandle": ["devPtr"],
    "ipcGetMemHandle": ["devPtr"],
    "ipcOpenMemHandle": ["handle", "flags"],
    "malloc": ["size"],
    "mallocFromPoolAsync": ["size", "pool", "stream"],
    "mallocManaged": ["size", "flags"],
    "memAdvise": ["devPtr", "count", "advice", "device"],
    "memGetInfo": [],
    "memPoolCreate": ["props"],
    "memPoolDestroy": ["pool"],
    "memPoolGetAttribute": ["pool", "attr"],
    "memPoolSetAttribute": ["pool", "attr", "value"],
    "memPoolTrimTo": ["pool", "size"],
    "memPrefetchAsync": ["devPtr", "count", "dstDevice", "stream"],
    "memcpyAsync": ["dst", "src", "size", "kind", "stream"],
    "memcpyPeerAsync": ["dst", "dstDevice", "src", "srcDevice", "size", "stream"],
    "memsetAsync": ["ptr", "value", "size", "stream"],
    "pointerGetAttributes": ["ptr"],
    "runtimeGetVersion": [],
    "setDevice": ["device"],
    "streamBeginCapture": ["stream", "mode"],
    "streamCreateWithFlags": ["flags"],
    "streamDestroy": ["stream"],
    "streamEndCapture": ["stream"],
    "streamIsCapturing": ["stream"],
    "streamQuery": ["stream"],
    "streamSynchronize": ["stream"],
    "streamWaitEvent": ["stream", "event", "flags"],
}
DRIVER = {"ctxGetCurrent": [], "ctxSetCurrent": ["ctx"]}


def argument_names(function: object) -> list[str]:
    """Read the names from the first line of a docstring: ``memcpy(intptr_t dst, intptr_t src, int kind=0) -> …``."""
    signature = re.match(r"\w+\((?P<arguments>[^)]*)\)", function.__doc__ or "")
    assert signature, f"no signature in the docstring of {function}"
    arguments = [argument for argument in signature["arguments"].split(",") if argument.strip()]
    return [argument.partition("=")[0].partition(":")[0].split()[-1] for argument in arguments]


@pytest.fixture(scope="module")
def cupy():
    return pytest.importorskip("cupy", reason=NO_CUPY)


@pytest.fixture(scope="module")
def bindings():
    return pytest.importorskip("cuda.bindings", reason=NO_BINDINGS)


@pytest.mark.parametrize("name", RUNTIME)
def test_a_function_of_cupys_runtime_takes_what_it_is_given(cupy, name: str):
    assert argument_names(getattr(cupy.cuda.runtime, name)) == RUNTIME[name]


@pytest.mark.parametrize("name", DRIVER)
def test_a_function_of_cupys_driver_takes_what_it_is_given(cupy, name: str):
    assert argument_names(getattr(cupy.cuda.driver, name)) == DRIVER[name]


def test_cupys_constants_have_the_values_that_are_used(cupy):
    runtime = cupy.cuda.runtime
    assert runtime.memcpyDefault == _contents._ANY_TO_ANY
    assert runtime.hostAllocPortable == _platform._PORTABLE
    assert (runtime.streamDefault, runtime.streamNonBlocking) == (_streams._BLOCKING, _streams._NON_BLOCKING)
    assert runtime.eventDisableTiming == _streams._WITHOUT_TIMING
    assert runtime.cudaIpcMemLazyEnablePeerAccess == _graphs._LAZY_PEER_ACCESS
    assert (runtime.memoryTypeHost, runtime.memoryTypeDevice) == (_pointers._HOST, _pointers._DEVICE)
    assert (runtime.memoryTypeManaged, runtime.memoryTypeUnregistered) == (_pointers._MANAGED, _contents._UNREGISTERED)


def test_cupys_pool_attributes_have_the_values_that_are_used(cupy):
    runtime = cupy.cuda.runtime
    assert runtime.cudaMemPoolAttrReleaseThreshold == PoolAttribute.RELEASE_THRESHOLD
    assert runtime.cudaMemPoolAttrReservedMemCurrent == PoolAttribute.RESERVED_CURRENT
    assert runtime.cudaMemPoolAttrUsedMemHigh == PoolAttribute.USED_HIGH


def test_cupys_pool_properties_and_runtime_error_can_be_made(cupy):
    cupy.cuda.runtime.MemPoolProps(_pools._PINNED_TO_ITS_PLACE, _pools._NOT_SHARED, _pools._ON_A_DEVICE, 0)
    assert cupy.cuda.runtime.CUDARuntimeError(1).status == 1


def test_cupy_runs_on_streams_of_others_without_a_warning(cupy):
    stream = _contents._ForeignStream(0x1234)
    if hasattr(cupy.cuda.Stream, "from_external"):
        assert cupy.cuda.Stream.from_external(stream).ptr == 0x1234
    else:
        assert cupy.cuda.ExternalStream(0x1234).ptr == 0x1234


def test_cupy_makes_arrays_over_memory_of_others(cupy):
    memory = cupy.cuda.UnownedMemory(1 << 20, 96, object(), 0)
    pointer = cupy.cuda.MemoryPointer(memory, 0)
    array = cupy.ndarray((2, 3, 2), dtype="u8", memptr=pointer, strides=(-48, 16, 8))
    assert (array.data.ptr, array.strides, array[..., 1].data.ptr) == (1 << 20, (-48, 16, 8), (1 << 20) + 8)


def test_the_bindings_name_the_attributes_that_are_used(bindings):
    from cuda.bindings import driver

    attributes = driver.CUpointer_attribute
    assert int(getattr(attributes, _bindings.POOL_HANDLE)) == 17
    assert int(getattr(attributes, _bindings.RANGE_START)) == 11
    assert int(getattr(attributes, _bindings.RANGE_SIZE)) == 12


def test_the_bindings_agree_about_the_values_of_device_attributes(bindings):
    from cuda.bindings import driver

    for attribute in _devices.DeviceAttribute:
        assert int(getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{attribute.name}")) == attribute


def test_the_bindings_agree_about_advice_and_access(bindings):
    from cuda.bindings import runtime

    assert [int(advice) for advice in runtime.cudaMemoryAdvise] == [int(advice) for advice in MemoryAdvice]
    assert int(runtime.cudaMemAccessFlags.cudaMemAccessFlagsProtReadWrite) == PoolAccess.READ_WRITE.value
    assert int(runtime.cudaMemAccessFlags.cudaMemAccessFlagsProtNone) == PoolAccess.NONE.value


def test_the_bindings_agree_about_capture_modes_and_status(bindings):
    from cuda.bindings import runtime

    assert [int(mode) for mode in runtime.cudaStreamCaptureMode] == [int(mode) for mode in CaptureMode]
    assert [int(status) for status in runtime.cudaStreamCaptureStatus] == [int(status) for status in CaptureStatus]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("cudaStreamIsCapturing", ["stream"]),
        ("cudaThreadExchangeStreamCaptureMode", ["mode"]),
        ("cudaGraphInstantiateWithFlags", ["graph", "flags"]),
        ("cudaDeviceGetGraphMemAttribute", ["device", "attr"]),
        ("cudaDeviceGraphMemTrim", ["device"]),
    ],
)
def test_the_bindings_take_what_they_are_given_about_graphs(bindings, name: str, arguments: list[str]):
    from cuda.bindings import runtime

    assert argument_names(getattr(runtime, name)) == arguments


def test_the_bindings_name_the_accounts_of_graph_memory(bindings):
    from cuda.bindings import runtime

    assert [int(getattr(runtime.cudaGraphMemAttributeType, name)) for name in _bindings.GRAPH_MEMORY] == [0, 1, 2, 3]
    assert int(runtime.cudaGraphInstantiateFlags.cudaGraphInstantiateFlagAutoFreeOnLaunch) == 1
    assert int(runtime.cudaGraph_t(1 << 20)) == 1 << 20


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("cuMemAddressReserve", ["size", "alignment", "addr", "flags"]),
        ("cuMemAddressFree", ["ptr", "size"]),
        ("cuMemCreate", ["size", "prop", "flags"]),
        ("cuMemRelease", ["handle"]),
        ("cuMemMap", ["ptr", "size", "offset", "handle", "flags"]),
        ("cuMemUnmap", ["ptr", "size"]),
        ("cuMemSetAccess", ["ptr", "size", "desc", "count"]),
        ("cuMemGetAllocationGranularity", ["prop", "option"]),
        ("cuGetProcAddress", ["*symbol", "cudaVersion", "flags"]),
    ],
)
def test_the_bindings_take_what_they_are_given_about_virtual_memory(bindings, name: str, arguments: list[str]):
    from cuda.bindings import driver

    assert argument_names(getattr(driver, name)) == arguments


def test_the_bindings_describe_physical_memory_and_who_touches_it(bindings):
    from cuda.bindings import driver

    place = driver.CUmemLocation()
    place.type, place.id = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, 1
    properties = driver.CUmemAllocationProp()
    properties.type, properties.location = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED, place
    access = driver.CUmemAccessDesc()
    access.location, access.flags = place, driver.CUmemAccess_flags(PoolAccess.READ_WRITE.value)
    assert (properties.location.id, access.location.id) == (1, 1)
    assert int(driver.CUmemAccess_flags(PoolAccess.NONE.value)) == 0
    assert int(driver.CUmemGenericAllocationHandle(1 << 20)) == int(driver.CUdeviceptr(1 << 20)) == 1 << 20
    assert int(driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM) == 0


def test_the_bindings_have_the_same_numbers_for_errors_of_driver_and_runtime(bindings):
    from cuda.bindings import driver, runtime

    same = {
        "CUDA_ERROR_INVALID_VALUE": "cudaErrorInvalidValue",
        "CUDA_ERROR_OUT_OF_MEMORY": "cudaErrorMemoryAllocation",
        "CUDA_ERROR_INVALID_DEVICE": "cudaErrorInvalidDevice",
        "CUDA_ERROR_NOT_SUPPORTED": "cudaErrorNotSupported",
        "CUDA_ERROR_ILLEGAL_ADDRESS": "cudaErrorIllegalAddress",
    }
    assert {name: runtime.cudaError_t(int(getattr(driver.CUresult, name))).name for name in same} == same


@pytest.mark.parametrize(
    ("name", "since_13", "before_13"),
    [
        ("cudaMemAdvise", ["devPtr", "count", "advice", "location"], ["devPtr", "count", "advice", "device"]),
        (
            "cudaMemPrefetchAsync",
            ["devPtr", "count", "location", "flags", "stream"],
            ["devPtr", "count", "dstDevice", "stream"],
        ),
    ],
)
def test_the_bindings_name_places_as_their_version_does(bindings, name: str, since_13: list[str], before_13: list[str]):
    from cuda.bindings import runtime

    expected = since_13 if int(bindings.__version__.partition(".")[0]) >= 13 else before_13
    assert argument_names(getattr(runtime, name)) == expected


def test_the_bindings_make_streams_with_a_priority(bindings):
    from cuda.bindings import runtime

    assert argument_names(runtime.cudaStreamCreateWithPriority) == ["flags", "priority"]


def test_the_bindings_describe_places_and_access(bindings):
    from cuda.bindings import runtime

    place = runtime.cudaMemLocation()
    place.type, place.id = runtime.cudaMemLocationType.cudaMemLocationTypeHost, 0
    access = runtime.cudaMemAccessDesc()
    access.location, access.flags = place, runtime.cudaMemAccessFlags(PoolAccess.READ_WRITE.value)
    assert int(runtime.cudaMemPool_t(1 << 20)) == 1 << 20
    assert len(runtime.cudaDeviceProp().uuid.bytes) == 16
