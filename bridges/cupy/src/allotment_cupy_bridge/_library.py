"""What is asked of CuPy, and what it must not be set up for."""

from __future__ import annotations

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from allotment import BridgeError
from allotment.bridges import require_devices

if TYPE_CHECKING:
    from collections.abc import Callable

_UNFIT: Final = {
    "CUPY_CUDA_PER_THREAD_DEFAULT_STREAM": "CuPy uses per-thread default streams: their one handle means another "
    "stream in each thread, so memory would be reused across threads while work on it is in flight",
    "CUPY_ENABLE_UMP": "CuPy takes all memory for the host's (CUPY_ENABLE_UMP), which that of Allotment is not",
}
"""What environment variables turn on in CuPy, and why it cannot have our memory then."""


def require_use() -> None:
    """Raise unless CuPy can use memory of Allotment.

    Raises
    ------
    BridgeError
        If not.
    """
    import cupy

    for variable, cause in _UNFIT.items():
        if os.environ.get(variable, "0") not in ("", "0"):
            raise BridgeError(bridge="cupy", cause=cause, remedy=f"Unset {variable}.")
    if cupy.cuda.runtime.is_hip:
        raise BridgeError(bridge="cupy", cause="this CuPy is built for ROCm")
    require_devices("cupy", "CuPy", sees_devices)


def sees_devices() -> bool:
    """Return whether CuPy has devices to work on."""
    import cupy

    try:
        return bool(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError:  # no driver
        return False


def allocator_of_process() -> Callable[[int], Any]:
    """Return the allocator of threads that are in no ``using_allocator`` block, as a new thread sees it."""
    import cupy

    with ThreadPoolExecutor(1) as thread:
        found: Callable[[int], Any] = thread.submit(cupy.cuda.get_allocator).result()
    return found


def name_of(function: object) -> str:
    """Return an allocator of CuPy in words."""
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__qualname__", None) or type(function).__name__
    if owner is not None and not isinstance(owner, type(os)):
        return f"{type(owner).__module__}.{type(owner).__qualname__}.{getattr(function, '__name__', name)}"
    module = getattr(function, "__module__", None)
    return f"{module}.{name}" if module else name


# Functions in C, which CuPy's modules offer to other Cython modules


def find_stream_address() -> int:
    """Return the address of ``intptr_t (void)``, which returns the current stream; 0 if this CuPy has none."""
    return _address("cupy_backends.cuda.stream", "get_current_stream_ptr", b"intptr_t (void)")


def find_device_address() -> int:
    """Return the address of ``int (int)``, which returns the current device; 0 if this CuPy has none."""
    return _address("cupy_backends.cuda.api.runtime", "getDevice", b"int (int __pyx_skip_dispatch)")


def _address(module: str, name: str, signature: bytes) -> int:
    from importlib import import_module

    capsule = getattr(import_module(module), "__pyx_capi__", {}).get(name)
    if capsule is None:
        return 0
    is_as_expected = ctypes.pythonapi.PyCapsule_IsValid
    is_as_expected.argtypes, is_as_expected.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_int
    if not is_as_expected(capsule, signature):
        return 0
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.argtypes, address.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
    return address(capsule, signature) or 0
