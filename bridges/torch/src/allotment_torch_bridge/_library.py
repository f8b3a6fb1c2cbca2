"""What is asked of PyTorch, a part of which is private to it: looked up before anything is changed."""

from __future__ import annotations

import ctypes
import re
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from allotment import BridgeError

POOL_VERSION: Final = (2, 11)
"""From here on the pool that was routed last comes first. Before, ours would have taken what a CUDA graph allocates."""

_NEEDED: Final = (
    "_C._cuda_customAllocator",
    "cuda.get_allocator_backend",
    "cuda.graphs.CUDAGraph.capture_begin",
    "cuda.graphs.CUDAGraph.capture_end",
)
_NEEDED_FOR_POOLS: Final = (
    "_C._accelerator_setAllocatorSettings",
    "_C._cuda_beginAllocateToPool",
    "_C._cuda_cudaCachingAllocator_raw_alloc",
    "_C._cuda_cudaCachingAllocator_raw_delete",
    "_C._cuda_emptyCache",
    "_C._cuda_endAllocateToPool",
    "_C._cuda_memoryStats",
    "_C._cuda_releasePool",
    "cuda.MemPool",
    "cuda._maybe_exchange_device",
    "cuda.memory._snapshot",
)
_NEEDED_TO_REPLACE: Final = (
    "_C._CUDAPluggableAllocator.set_record_stream_fn",
    "_C._CUDAPluggableAllocator.set_reset_fn",
    "_C._cuda_changeCurrentAllocator",
    "_C._cuda_getAllocator",
)

_EXCEPTION: Final = (
    "_Znwm",
    "_ZdlPv",
    "__cxa_allocate_exception",
    "__cxa_throw",
    "_ZN3c105ErrorC1ENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEESt10shared_ptrIKNS_9LazyValueIS6_EEEPKv",
    "_ZTVN3c1016OutOfMemoryErrorE",
    "_ZTIN3c1016OutOfMemoryErrorE",
)
"""What a ``c10::OutOfMemoryError`` is made with, by the names that say the types of all parameters as well."""


def require_parts(torch: Any, *, replaces: bool) -> None:
    """Raise unless PyTorch has what a mode needs.

    Raises
    ------
    BridgeError
        With what is missing.
    """
    if not replaces and version_of(torch) < POOL_VERSION:
        raise BridgeError(
            bridge="torch",
            cause=f"this is PyTorch {torch.__version__}, where the pool of this bridge would take the memory of CUDA "
            "graphs as well",
            remedy="Use PyTorch 2.11 or a newer one, or mode 'replace'.",
        )
    for name in (*_NEEDED, *(_NEEDED_TO_REPLACE if replaces else _NEEDED_FOR_POOLS)):
        try:
            attrgetter(name)(torch)
        except AttributeError:
            raise BridgeError(
                bridge="torch",
                cause=f"this is PyTorch {torch.__version__}, which has no torch.{name}",
                remedy="PyTorch 2.11 has it. Tell the developers of Allotment.",
            ) from None


def version_of(torch: Any) -> tuple[int, ...]:
    """Return the first two numbers of PyTorch's version."""
    return tuple(map(int, re.findall(r"\d+", torch.__version__)[:2]))


def exception_addresses(torch: Any) -> tuple[int, ...]:
    """Return where the parts of PyTorch's out-of-memory error are, for `CCallbacks.throw_by`.

    Raises
    ------
    BridgeError
        If this PyTorch has no such parts.
    """
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).with_name("lib") / "libc10_cuda.so"))
        return tuple(ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in _EXCEPTION)
    except (AttributeError, OSError) as error:
        raise BridgeError(
            bridge="torch",
            cause=f"PyTorch could not be told of a refusal, and would work with a null pointer: {error}",
            remedy="Use mode 'pool'.",
        ) from error


def keep_for_ever(thing: object) -> None:
    """Never let an object go, not even at the end of the interpreter: PyTorch holds what it points to."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
