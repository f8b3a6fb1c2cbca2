"""The element types under the names of NumPy, whose types they are: ``allotment.float32`` is ``numpy.float32``."""

from numpy import float16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64

__all__ = [
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]
