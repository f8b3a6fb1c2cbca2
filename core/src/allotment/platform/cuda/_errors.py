"""CUDA's errors as errors of ours."""

from __future__ import annotations

import re
from functools import wraps
from traceback import walk_tb
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from allotment.errors import PlatformError

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")

_CODED: Final = re.compile(r"(?P<code>cuda[A-Z]\w*|CUDA_ERROR_\w+): (?P<detail>.*)", re.DOTALL)
_WRAPPERS: Final = {"cupy_backends.cuda.api.runtime.": "cuda", "cupy_backends.cuda.api.driver.": "cu"}
"""CuPy's modules of thin wrappers, with the prefix of CUDA's names that they leave out."""


def platform_error(exception: BaseException, call: str | None = None) -> PlatformError | None:
    """Return CuPy's exception about a CUDA call as an error of ours; ``None`` if it is not one.

    Parameters
    ----------
    exception
        What was raised.
    call
        CUDA's name of the function, where known; else it is read from the traceback.
    """
    if isinstance(exception, PlatformError):
        return exception
    if not type(exception).__module__.startswith(("cupy.", "cupy_backends.")):
        return None
    call = call or _call_in(exception)
    if isinstance(exception, MemoryError):
        return PlatformError(call=call, code="cudaErrorMemoryAllocation", detail=str(exception))
    match = _CODED.match(str(exception))
    return match and PlatformError(call=call, code=match["code"], detail=match["detail"])


def _call_in(exception: BaseException) -> str:
    """Return the CUDA function that failed, as the frames of CuPy's wrappers name it."""
    for frame, _ in walk_tb(exception.__traceback__):
        for module, prefix in _WRAPPERS.items():
            name = frame.f_code.co_name.removeprefix(module)
            if name != frame.f_code.co_name:
                return prefix + name[0].upper() + name[1:]
    return "CUDA"


def reports(call: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a method whose failure is reported as a `PlatformError` of the CUDA function ``call``."""

    def decorate(method: Callable[P, R]) -> Callable[P, R]:
        @wraps(method)
        def reporting(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return method(*args, **kwargs)
            except (RuntimeError, MemoryError) as error:
                failure = platform_error(error, call)
                if failure is None or failure is error:
                    raise
                raise failure from error

        return reporting

    return decorate
