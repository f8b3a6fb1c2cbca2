"""The only door to the hardware: CUDA, a simulation of it, or the host alone."""

from allotment.platform._choice import choose, close, current, reset, use
from allotment.platform._driver_functions import driver_functions
from allotment.platform._host_memory import HOST_ALIGNMENT, allocate_host, free_host
from allotment.platform._protocol import CountsCalls, Platform
from allotment.platform._values import (
    HOST_LOCATION,
    CaptureMode,
    CaptureStatus,
    DeviceProperties,
    GraphMemory,
    MemoryAdvice,
    MemoryInfo,
    PointerAttributes,
    PoolAccess,
    PoolAttribute,
    StridedMemory,
)

__all__ = [
    "HOST_ALIGNMENT",
    "HOST_LOCATION",
    "CaptureMode",
    "CaptureStatus",
    "CountsCalls",
    "DeviceProperties",
    "GraphMemory",
    "MemoryAdvice",
    "MemoryInfo",
    "Platform",
    "PointerAttributes",
    "PoolAccess",
    "PoolAttribute",
    "StridedMemory",
    "allocate_host",
    "choose",
    "close",
    "current",
    "driver_functions",
    "free_host",
    "reset",
    "use",
]
