"""Python functions, and what Numba compiles for the CPU: called once, with NumPy arrays over the memory."""

from __future__ import annotations

import functools
import inspect
from contextvars import ContextVar
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeGuard

import numpy as np

from allotment.access import arrays_in, case_of, judge
from allotment.errors import AccessError, UnsupportedError
from allotment.interchange import numpy_over
from allotment.launching._adapter import root_module
from allotment.launching._views import ArrayReplacement, extent_of
from allotment.memory_kind import MemoryKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from allotment._array import Array
    from allotment.launching._request import Dim, LaunchRequest
    from allotment.platform import StridedMemory

_FUNCTIONS: Final = (FunctionType, BuiltinFunctionType, MethodType, functools.partial)
_ON_DEVICE: Final = (MemoryKind.CUDA_DEVICE, MemoryKind.CUDA_MEMPOOL)
_dim: ContextVar[Dim | None] = ContextVar("allotment_launch_dim", default=None)


class RunsFunctions(Protocol):
    """A platform whose devices run Python functions as kernels, as the simulated one does."""

    def launch(
        self, work: Callable[[], None], stream: int, ordinal: int, touches: Sequence[StridedMemory] = ()
    ) -> None:
        """Do work in the order of a stream, which touches some memory."""
        ...

    def check_host_access(self, ptr: int, nbytes: int) -> None:
        """Refuse an access by host code that would end a process."""
        ...


def _runs_functions(platform: object) -> TypeGuard[RunsFunctions]:
    return hasattr(platform, "launch")


def launch_dim() -> Dim:
    """Return the ``dim`` of the launch that calls the running Python function.

    Raises
    ------
    UnsupportedError
        Outside such a function.
    """
    dim = _dim.get()
    if dim is None:
        raise UnsupportedError("launch_dim() is for Python functions that launch() calls, while they run")
    return dim


class FunctionAdapter:
    """Calls functions of Python and of Numba's CPU compiler."""

    kernels = "Python functions, functions that Numba compiled for the CPU"

    def accepts(self, kernel: Any) -> bool:
        """Accept functions, methods and partial functions, and what ``numba.njit`` and ``numba.vectorize`` return."""
        if isinstance(kernel, _FUNCTIONS):
            return True
        module = type(kernel).__module__
        return root_module(kernel) == "numba" and ".cuda" not in module and callable(kernel)

    def launch(self, request: LaunchRequest) -> None:
        """Call the function on the host, or queue it on a simulated device."""
        platform = request.device.platform
        if request.device.is_cpu:
            _launch_on_host(request)
        elif _runs_functions(platform):
            assert request.stream is not None
            touches = [array.elements() for _, array in _arrays_of(request)]
            work = _call(request, _view_of_device)
            platform.launch(work, request.stream.cuda_stream, request.device.ordinal, touches)
        else:
            request.refuse(
                "the Python function",
                "Real CUDA devices run compiled kernels: CuPy's RawKernel or ElementwiseKernel, numba.cuda.jit, Warp. "
                'Launch it with device="cpu", or inside al.simulate().',
            )


def _arrays_of(request: LaunchRequest) -> list[tuple[str, Array]]:
    """Return the arrays in all arguments, each with its path."""
    return [found for path, argument in request.named_arguments for found in arrays_in(argument, path)]


def _launch_on_host(request: LaunchRequest) -> None:
    for path, array in _arrays_of(request):
        if array.device.is_cuda and array.size:
            _require_host_access(request, path, array)
    work = _call(request, numpy_over)
    capture = request.device.captures.of_host_work()
    if capture is None:
        work()
    else:
        capture.record(work)


def _call(request: LaunchRequest, view: Callable[[Array], Any]) -> Callable[[], None]:
    """Return the call of the function, on views that are made now."""
    arguments = tuple(map(ArrayReplacement(view), request.arguments))
    kernel, dim = request.kernel, request.dim
    named = {"dim": dim} if _wants_dim(kernel, len(arguments)) else {}

    def call() -> None:
        token = _dim.set(dim)
        try:
            kernel(*arguments, **named)
        finally:
            _dim.reset(token)

    return call


def _wants_dim(kernel: Any, count: int) -> bool:
    """Return whether a function has a parameter ``dim`` that its arguments leave free."""
    function = getattr(kernel, "py_func", kernel)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # of a function that is not written in Python
        return False
    names = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL]
    if "dim" not in names:
        return False
    parameter = next(parameter for parameter in parameters if parameter.name == "dim")
    return parameter.kind is parameter.KEYWORD_ONLY or names.index("dim") >= count


def _require_host_access(request: LaunchRequest, path: str, array: Array) -> None:
    """Refuse device memory, which would end the process; on a simulated platform, as it would end there."""
    platform = array.device.platform
    if _runs_functions(platform):
        platform.check_host_access(*extent_of(array))
    elif array.memory_kind in _ON_DEVICE:
        report = judge(case_of(request.device, array))
        raise AccessError(
            kernel=request.name,
            argument=path,
            device=request.device.alias,
            array_device=array.device.alias,
            memory_kind=array.memory_kind.name,
            rule=report.rule,
            reason=report.reason,
            remedy=report.remedy,
        )


def _view_of_device(array: Array) -> Any:
    """Return a NumPy array over memory that a simulated kernel touches once it runs.

    As on a GPU, a kernel keeps no memory of a device alive. Host memory is kept, because it would really be gone.
    """
    if array.memory_kind is MemoryKind.HOST or not array.size:
        return numpy_over(array)
    return np.asarray(_Bare(array)).view(array.dtype)


class _Bare:
    """What NumPy reads memory from that nobody keeps alive."""

    def __init__(self, array: Array) -> None:
        self.__array_interface__ = numpy_over(array).__array_interface__
