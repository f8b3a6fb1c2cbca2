"""Warp's kernels."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from allotment.launching._adapter import root_module
from allotment.launching._views import ArrayReplacement

if TYPE_CHECKING:
    from allotment._array import Array
    from allotment.device import Device
    from allotment.launching._request import LaunchRequest


class WarpAdapter:
    """Launches what ``warp.kernel`` returns."""

    kernels = "Warp kernels"

    def accepts(self, kernel: Any) -> bool:
        """Judge by the module and the name of the type."""
        return root_module(kernel) == "warp" and type(kernel).__name__ == "Kernel"

    def launch(self, request: LaunchRequest) -> None:
        """Launch with ``warp.launch``, on the host or on a real CUDA device."""
        import warp

        if request.device.is_cuda and request.device.platform.name != "cuda":
            request.refuse("the Warp kernel", "Warp runs on the host and on real CUDA devices.")
        convert = ArrayReplacement(partial(_warp_array, request.device), leave=("warp",))
        inputs, outputs = list(map(convert, request.inputs)), list(map(convert, request.outputs))
        where = {"stream": _warp_stream(request)} if request.stream is not None else {"device": "cpu"}
        warp.launch(request.kernel, request.dim, inputs=inputs, outputs=outputs, **where)


def _warp_array(device: Device, array: Array) -> Any:
    """Return what Warp takes as an array.

    Memory of the device of the launch goes as it is: Warp reads its array interface, and so gives it the element type
    that the kernel declares, a vector for instance. Of other memory Warp must be told where it is.
    """
    import warp

    if array.device is device and array.size:
        return array
    return warp.array(
        ptr=array.ptr or None,
        dtype=warp.dtype_from_numpy(array.dtype),
        shape=array.shape,
        strides=array.strides,
        device=array.device.alias,
        pinned=array.pinned,
        copy=False,
    )


def _warp_stream(request: LaunchRequest) -> Any:
    import warp

    assert request.stream is not None
    device = warp.get_device(request.device.alias)
    handle = request.stream.cuda_stream
    return warp.Stream(device, cuda_stream=handle) if handle else device.null_stream
