"""CuPy's kernels: raw, elementwise, reducing, universal and fused."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from allotment._grants import on_device
from allotment.launching._adapter import root_module
from allotment.launching._views import ArrayReplacement, extent_of

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from allotment._array import Array
    from allotment.launching._request import LaunchRequest
    from allotment.stream import Stream


class CupyAdapter:
    """Launches what CuPy calls a kernel or a universal function."""

    kernels = "CuPy's RawKernel, ElementwiseKernel, ReductionKernel, universal and fused functions"

    def accepts(self, kernel: Any) -> bool:
        """Judge by the module of the type; CuPy's arrays are no kernels."""
        return root_module(kernel) in ("cupy", "cupyx") and callable(kernel)

    def launch(self, request: LaunchRequest) -> None:
        """Launch on a real CUDA device."""
        if request.device.platform.name != "cuda" or request.device.is_cpu:
            request.refuse("CuPy's kernel", "It needs a real CUDA device; a Python function runs on the host.")
        on_device(request.device, _launch, request)


def _launch(request: LaunchRequest) -> None:
    assert request.stream is not None
    convert = ArrayReplacement(partial(cupy_array, ordinal=request.device.ordinal), leave=("cupy",))
    inputs, outputs = list(map(convert, request.inputs)), list(map(convert, request.outputs))
    with cupy_stream(request.stream):
        match type(request.kernel).__name__:
            case "RawKernel" | "_JitRawKernel":
                request.kernel(*request.grid, (*inputs, *outputs))
            case "ElementwiseKernel":
                request.kernel(*inputs, *outputs, **_size_of(request, [*inputs, *outputs]))
            case "Fusion":
                _assign(outputs, request.kernel(*inputs))
            case _:
                request.kernel(*inputs, *outputs)


def _size_of(request: LaunchRequest, arguments: list[Any]) -> dict[str, int]:
    """Return the size that an elementwise kernel must be told, because none of its arrays says it."""
    parameters = request.kernel.params
    says_it = any(
        hasattr(argument, "__cuda_array_interface__") and not parameter.raw
        for argument, parameter in zip(arguments, parameters, strict=False)
    )
    return {} if says_it else {"size": request.size}


def _assign(outputs: list[Any], results: Any) -> None:
    """Copy what a fused function returns into the outputs; one that changes its arguments returns nothing."""
    if results is None:
        return
    for output, result in zip(outputs, results if isinstance(results, tuple) else (results,), strict=True):
        output[...] = result


def cupy_array(array: Array, ordinal: int) -> Any:
    """Return CuPy's array over the memory, said to be of the device that is to touch it.

    CuPy would otherwise grant that device peer access by itself.
    """
    import cupy

    start, nbytes = extent_of(array)
    memory = cupy.cuda.UnownedMemory(start, nbytes, array, ordinal)
    pointer = cupy.cuda.MemoryPointer(memory, array.ptr - start)
    return cupy.ndarray(array.shape, dtype=array.dtype, memptr=pointer, strides=array.strides)


def cupy_stream(stream: Stream) -> AbstractContextManager[Any]:
    """Return a context manager under which CuPy works on a stream."""
    from cupy import cuda

    if not stream.cuda_stream:
        found = cuda.Stream.null
    elif hasattr(cuda.Stream, "from_external"):  # since CuPy 14, where ExternalStream warns
        found = cuda.Stream.from_external(stream)
    else:
        found = cuda.ExternalStream(stream.cuda_stream)
    return found  # type: ignore[no-any-return]
