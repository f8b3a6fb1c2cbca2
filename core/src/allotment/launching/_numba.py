"""Functions that Numba compiled for CUDA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from allotment._grants import on_device
from allotment.launching._adapter import root_module
from allotment.launching._views import ArrayReplacement

if TYPE_CHECKING:
    from allotment._array import Array
    from allotment.launching._request import LaunchRequest


class NumbaCudaAdapter:
    """Launches what ``numba.cuda.jit`` returns."""

    kernels = "functions that numba.cuda.jit compiled"

    def accepts(self, kernel: Any) -> bool:
        """Judge by the module of the dispatcher's type, of Numba's own CUDA target and of the package numba-cuda."""
        return root_module(kernel) in ("numba", "numba_cuda") and ".cuda" in type(kernel).__module__

    def launch(self, request: LaunchRequest) -> None:
        """Launch on a real CUDA device."""
        if request.device.platform.name != "cuda" or request.device.is_cpu:
            request.refuse("Numba's CUDA kernel", "It needs a real CUDA device; numba.njit compiles for the host.")
        on_device(request.device, _launch, request)


def _launch(request: LaunchRequest) -> None:
    from numba import cuda

    assert request.stream is not None
    arguments = map(ArrayReplacement(_device_array, leave=("numba", "numba_cuda")), request.arguments)
    stream = cuda.external_stream(request.stream.cuda_stream) if request.stream.cuda_stream else 0
    blocks, threads = request.grid
    request.kernel[blocks, threads, stream](*arguments)


def _device_array(array: Array) -> Any:
    """Return Numba's array over the memory; it need not wait, because the launch is on the stream in force."""
    from numba import cuda

    return cuda.from_cuda_array_interface(interface_of(array), owner=array, sync=False)


def interface_of(array: Array) -> dict[str, Any]:
    """Return the CUDA array interface of memory of any kind that a device is to touch, without a stream."""
    return {
        "shape": array.shape,
        "typestr": array.dtype.str,
        "data": (array.ptr, array.readonly),
        "strides": None if array.is_contiguous else array.strides,
        "version": 3,
        "stream": None,
    }
