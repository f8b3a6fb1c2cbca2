"""DLPack's structures and capsules, by ctypes. See the DLPack specification, versions 0.8 and 1.0."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from allotment import _process
from allotment._layout import contiguous_strides

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from allotment._layout import Shape


class DeviceType(IntEnum):
    """DLPack's device types that can be memory of ours."""

    CPU = 1
    CUDA = 2
    CUDA_HOST = 3
    CUDA_MANAGED = 13


_KINDS: Final = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
"""NumPy's kind of type for DLPack's codes."""
_NUMPY_TYPES: Final = {f"{dtype.kind}{dtype.itemsize}": dtype for dtype in map(np.dtype, "?bBhHiIlLqQefdgFDG")}
_READ_ONLY: Final = 1
_IS_COPIED: Final = 2


class _Device(Structure):
    _fields_ = (("type", c_int32), ("id", c_int32))


class _DataType(Structure):
    _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class _Tensor(Structure):
    _fields_ = (
        ("data", c_void_p),
        ("device", _Device),
        ("ndim", c_int32),
        ("dtype", _DataType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


class _Version(Structure):
    _fields_ = (("major", c_uint32), ("minor", c_uint32))


class _Managed(Structure):
    """``DLManagedTensor``."""

    _fields_ = (("tensor", _Tensor), ("context", c_void_p), ("deleter", c_void_p))


class _ManagedVersioned(Structure):
    """``DLManagedTensorVersioned``."""

    _fields_ = (
        ("version", _Version),
        ("context", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    )


_DELETER = ctypes.CFUNCTYPE(None, c_void_p)
_NAME, _NAME_VERSIONED = b"dltensor", b"dltensor_versioned"
_USED, _USED_VERSIONED = b"used_dltensor", b"used_dltensor_versioned"
"""Names of capsules. A capsule keeps the pointer, not the text, so these objects must never go."""


def _python_function(name: str, result: Any, *arguments: Any) -> Any:
    """Return a function of Python's C API with its own prototype: those of `ctypes.pythonapi` belong to everybody."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_is_valid = _python_function("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_pointer = _python_function("PyCapsule_GetPointer", c_void_p, ctypes.py_object, ctypes.c_char_p)
_rename = _python_function("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)


def export_capsule(view: NDArray[Any], device: tuple[int, int], *, versioned: bool, copied: bool) -> Any:
    """Return a capsule over memory of any device, which is kept alive until the consumer's deleter call.

    NumPy makes the capsule, as for host memory, and the device is corrected. Its deleter and destructor are C: they may
    be called without the interpreter's lock, with an exception on its way, and after the interpreter is gone.

    Parameters
    ----------
    view
        A NumPy array over the memory, which is not read.
    device
        DLPack's type and number of the memory's device.
    versioned
        Whether the consumer reads DLPack 1.0. NumPy writes it from version 2.1 on.
    copied
        Whether the memory was made for the consumer.

    Raises
    ------
    BufferError
        If DLPack has no such element type or strides, or the consumer would take read-only memory for writable.
    """
    capsule = _numpy_capsule(view, versioned=versioned)
    if _is_valid(capsule, _NAME_VERSIONED):
        managed: Any = _ManagedVersioned.from_address(_pointer(capsule, _NAME_VERSIONED))
        managed.flags |= _IS_COPIED if copied else 0
    else:
        managed = _Managed.from_address(_pointer(capsule, _NAME))
    managed.tensor.device = _Device(*device)
    if not view.size:
        managed.tensor.data = None
    return capsule


def _numpy_capsule(view: NDArray[Any], *, versioned: bool) -> Any:
    if versioned:
        try:
            return view.__dlpack__(max_version=(1, 0))
        except TypeError:  # NumPy before 2.1
            pass
    return view.__dlpack__()


class ImportedTensor:
    """A tensor of another library: its deleter is called once, when this object goes.

    Attributes
    ----------
    ptr : int
        The address of the first element; 0 if there is none.
    shape, strides : tuple of int
        The extents, and the steps in bytes.
    dtype : numpy.dtype
        The element type.
    readonly : bool
        Whether the memory must not be written.
    """

    __slots__ = ("_deleter", "_managed", "dtype", "ptr", "readonly", "shape", "strides")

    def __init__(self, address: int, *, versioned: bool) -> None:
        self._deleter: int | None = None
        managed: Any = (_ManagedVersioned if versioned else _Managed).from_address(address)
        self._managed, self._deleter = address, managed.deleter
        if versioned and managed.version.major != 1:
            raise BufferError(f"DLPack {managed.version.major}.{managed.version.minor} cannot be read, only 1.x")
        tensor = managed.tensor
        self.dtype = _numpy_type(tensor.dtype)
        self.shape: Shape = tuple(tensor.shape[: tensor.ndim])
        self.ptr = 0 if 0 in self.shape else _address(tensor)
        self.strides: Shape = (
            tuple(_signed(step * self.dtype.itemsize) for step in tensor.strides[: tensor.ndim])
            if tensor.strides
            else contiguous_strides(self.shape, self.dtype.itemsize)
        )
        self.readonly = bool(versioned and managed.flags & _READ_ONLY)

    def __del__(self, is_running: Callable[[], bool] = _process.is_running) -> None:
        if self._deleter and is_running():
            _DELETER(self._deleter)(self._managed)


def _signed(stride: int) -> int:
    """Return a stride in bytes as 64 bits with a sign: CuPy 14 divides negative ones as if they had none."""
    return (stride + 2**63) % 2**64 - 2**63


def _address(tensor: Any) -> int:
    if not tensor.data:
        raise BufferError("the DLPack tensor has elements at a null pointer")
    return int(tensor.data + tensor.byte_offset)


def _numpy_type(dtype: Any) -> np.dtype[np.generic]:
    kind, (size, odd_bits) = _KINDS.get(dtype.code), divmod(dtype.bits, 8)
    found = _NUMPY_TYPES.get(f"{kind}{size}")
    if found is None or dtype.lanes != 1 or odd_bits:
        raise TypeError(f"DLPack elements of code {dtype.code}, {dtype.bits} bits and {dtype.lanes} lanes are unknown")
    return found


def import_capsule(capsule: Any) -> ImportedTensor:
    """Take the tensor out of a capsule, which cannot be consumed again.

    Raises
    ------
    BufferError
        If it is no DLPack capsule or was consumed before.
    """
    for name, used in ((_NAME_VERSIONED, _USED_VERSIONED), (_NAME, _USED)):
        if _is_valid(capsule, name):
            address = _pointer(capsule, name)
            _rename(capsule, used)
            return ImportedTensor(address, versioned=name is _NAME_VERSIONED)
    raise BufferError("not a DLPack capsule, or one that was consumed before")
