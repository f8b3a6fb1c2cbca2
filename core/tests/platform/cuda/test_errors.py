"""CUDA's errors as errors of ours."""

from __future__ import annotations

import pytest

from allotment.errors import PlatformError, UnsupportedError
from allotment.platform.cuda._errors import platform_error, reports

INVALID_VALUE = 1
MEMORY_ALLOCATION = 2


@pytest.fixture
def cupy() -> object:
    return pytest.importorskip("cupy", reason="the errors are CuPy's own")


@pytest.mark.parametrize(
    ("status", "code"), [(INVALID_VALUE, "cudaErrorInvalidValue"), (MEMORY_ALLOCATION, "cudaErrorMemoryAllocation")]
)
def test_a_runtime_error_keeps_cudas_name_for_it(cupy, status: int, code: str):
    failure = platform_error(cupy.cuda.runtime.CUDARuntimeError(status), "cudaFree")
    assert failure is not None
    assert (failure.call, failure.code) == ("cudaFree", code)
    assert failure.detail


@pytest.mark.parametrize(("status", "is_out_of_memory"), [(INVALID_VALUE, False), (MEMORY_ALLOCATION, True)])
def test_only_the_allocation_error_is_out_of_memory(cupy, status: int, is_out_of_memory: bool):
    failure = platform_error(cupy.cuda.runtime.CUDARuntimeError(status))
    assert failure is not None
    assert failure.is_out_of_memory is is_out_of_memory


def test_cupys_out_of_memory_error_is_cudas(cupy):
    failure = platform_error(cupy.cuda.memory.OutOfMemoryError(1024, 0, 0), "cudaMalloc")
    assert failure is not None
    assert failure.is_out_of_memory


@pytest.mark.parametrize(
    ("raw", "arguments", "call"),
    [
        ("freeHost", (64,), "cudaFreeHost"),
        ("mallocFromPoolAsync", (64, 0, 0), "cudaMallocFromPoolAsync"),
        ("streamSynchronize", (0,), "cudaStreamSynchronize"),
    ],
)
def test_a_raw_call_is_named_from_the_traceback(cupy, raw: str, arguments: tuple[int, ...], call: str):
    runtime = cupy.cuda.runtime
    if runtime.driverGetVersion() != 0:
        pytest.skip("every call fails only without a driver; with one, test_gpu_allocation has the case")
    with pytest.raises(runtime.CUDARuntimeError) as raised:
        getattr(runtime, raw)(*arguments)
    failure = platform_error(raised.value)
    assert failure is not None
    assert (failure.call, failure.code) == (call, "cudaErrorInsufficientDriver")


@pytest.mark.parametrize(
    "exception",
    [RuntimeError("cudaErrorInvalidValue: not from CuPy"), MemoryError(), ValueError(), KeyboardInterrupt()],
)
def test_an_exception_of_somebody_else_is_not_cudas(exception: BaseException):
    assert platform_error(exception) is None


def test_an_error_of_ours_stays_what_it_is():
    failure = PlatformError(call="cudaFree", code="cudaErrorInvalidValue")
    assert platform_error(failure) is failure


def test_a_reporting_call_raises_the_error_with_its_cause(cupy):
    @reports("cudaMemPoolTrimTo")
    def trim() -> None:
        raise cupy.cuda.runtime.CUDARuntimeError(INVALID_VALUE)

    with pytest.raises(PlatformError, match=r"^cudaMemPoolTrimTo failed: cudaErrorInvalidValue") as raised:
        trim()
    assert isinstance(raised.value.__cause__, cupy.cuda.runtime.CUDARuntimeError)


@pytest.mark.parametrize("error", [UnsupportedError("no"), PlatformError(call="cudaFree", code="x"), ValueError("no")])
def test_a_reporting_call_lets_other_errors_pass(error: Exception):
    @reports("cudaMemPoolTrimTo")
    def trim() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        trim()
    assert raised.value is error


def test_a_reporting_call_returns_what_its_method_returns():
    @reports("cudaMemGetInfo")
    def info(*, scale: int) -> int:
        return 2 * scale

    assert info(scale=21) == 42
