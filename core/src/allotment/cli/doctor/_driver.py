"""The CUDA driver of this machine, asked without any package."""

from __future__ import annotations

import ctypes
import sys
from typing import Final

_LIBRARY: Final = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"


def driver_version() -> int | None:
    """Return the CUDA version that the driver supports, as 1000 × major + 10 × minor; ``None`` without a driver.

    Neither is the driver initialised nor a context opened.
    """
    try:
        driver = ctypes.CDLL(_LIBRARY)
    except OSError:
        return None
    version = ctypes.c_int(0)
    failed = driver.cuDriverGetVersion(ctypes.byref(version))
    return None if failed else version.value
