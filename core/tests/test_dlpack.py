"""DLPack's structures: what is written into a capsule, and what is read from one that a producer made."""

from __future__ import annotations

import ctypes
import gc

import numpy as np
import pytest

from allotment import _dlpack
from allotment._dlpack import DeviceType, export_capsule, import_capsule

NEEDS_VERSIONS = pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="NumPy before 2.1 writes no versioned capsules"
)
VERSIONED = [False, pytest.param(True, marks=NEEDS_VERSIONS)]


class Made:
    """A tensor as a producer in C makes it, field by field, with a deleter that counts."""

    def __init__(self, data, *, versioned, shape, strides=None, dtype=(2, 64, 1), offset=0, flags=0, version=(1, 0)):
        self.deleted = 0
        self.data = data
        self.managed = (_dlpack._ManagedVersioned if versioned else _dlpack._Managed)()
        self.deleter = _dlpack._DELETER(self.delete)
        self.extents = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        self.steps = None if strides is None else (ctypes.c_int64 * max(len(strides), 1))(*strides)
        tensor = self.managed.tensor
        tensor.data, tensor.byte_offset = data.ctypes.data if data is not None else None, offset
        tensor.device, tensor.dtype = _dlpack._Device(1, 0), _dlpack._DataType(*dtype)
        tensor.ndim, tensor.shape = len(shape), self.extents
        if self.steps is not None:
            tensor.strides = self.steps
        self.managed.deleter = ctypes.cast(self.deleter, ctypes.c_void_p)
        if versioned:
            self.managed.version, self.managed.flags = _dlpack._Version(*version), flags
        self.name = b"dltensor_versioned" if versioned else b"dltensor"

    def delete(self, address):
        assert address == ctypes.addressof(self.managed)
        self.deleted += 1

    def capsule(self):
        new = _dlpack._python_function(
            "PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
        )
        return new(ctypes.addressof(self.managed), self.name, None)


def read(capsule, *, versioned):
    name = b"dltensor_versioned" if versioned else b"dltensor"
    return (_dlpack._ManagedVersioned if versioned else _dlpack._Managed).from_address(_dlpack._pointer(capsule, name))


# Out


@pytest.mark.parametrize("versioned", VERSIONED)
@pytest.mark.parametrize("device", [(1, 0), (2, 3), (3, 0), (13, 1)])
def test_a_capsule_says_device_shape_strides_and_type(versioned, device):
    view = np.arange(24, dtype="f4").reshape(4, 6)[::2, ::-1]
    capsule = export_capsule(view, device, versioned=versioned, copied=False)
    tensor = read(capsule, versioned=versioned).tensor
    assert (tensor.device.type, tensor.device.id) == device
    assert (tensor.data, tensor.byte_offset) == (view.__array_interface__["data"][0], 0)
    assert (tensor.shape[: tensor.ndim], tensor.strides[: tensor.ndim]) == ([2, 6], [12, -1])
    assert (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes) == (2, 32, 1)


@NEEDS_VERSIONS
@pytest.mark.parametrize(("writable", "copied", "flags"), [(True, False, 0), (False, False, 1), (True, True, 2)])
def test_the_flags_say_readonly_and_copied(writable, copied, flags):
    view = np.zeros(3)
    view.flags.writeable = writable
    capsule = export_capsule(view, (2, 0), versioned=True, copied=copied)
    managed = read(capsule, versioned=True)
    assert (managed.flags, managed.version.major) == (flags, 1)


@pytest.mark.parametrize("versioned", VERSIONED)
def test_an_empty_tensor_has_the_null_pointer(versioned):
    capsule = export_capsule(np.zeros((3, 0)), (2, 0), versioned=versioned, copied=False)
    assert read(capsule, versioned=versioned).tensor.data is None


def test_memory_is_never_read_when_it_is_exported():
    class Nowhere:
        def __init__(self):
            self.__array_interface__ = {"data": (0xDEAD0000, False), "shape": (4,), "typestr": "<f4", "version": 3}

    tensor = import_capsule(export_capsule(np.asarray(Nowhere()), (2, 0), versioned=False, copied=False))
    assert tensor.ptr == 0xDEAD0000


# In


@pytest.mark.parametrize("versioned", [False, True])
def test_a_tensor_is_read_and_its_deleter_called_once(versioned):
    made = Made(np.zeros(12), versioned=versioned, shape=(3, 4), strides=(4, 1))
    tensor = import_capsule(made.capsule())
    assert (tensor.ptr, tensor.shape, tensor.strides) == (made.data.ctypes.data, (3, 4), (32, 8))
    assert (tensor.dtype, tensor.readonly) == (np.float64, False)
    gc.collect()
    assert made.deleted == 0
    del tensor
    gc.collect()
    assert made.deleted == 1


@pytest.mark.parametrize("versioned", [False, True])
def test_strides_may_be_left_out_and_an_offset_given(versioned):
    made = Made(np.zeros(12), versioned=versioned, shape=(2, 4), offset=32)
    tensor = import_capsule(made.capsule())
    assert (tensor.ptr, tensor.strides) == (made.data.ctypes.data + 32, (32, 8))


def test_a_negative_stride_that_was_divided_without_its_sign_is_negative_again():
    made = Made(np.arange(4.0), versioned=False, shape=(2,), strides=(2**61 - 1,))  # what CuPy 14.2 writes for -8 bytes
    assert import_capsule(made.capsule()).strides == (-8,)


def test_a_scalar_needs_neither_shape_nor_strides():
    made = Made(np.zeros(1), versioned=True, shape=())
    made.managed.tensor.shape = None
    assert import_capsule(made.capsule()).shape == ()


@pytest.mark.parametrize("data", [None, np.zeros(1)])
def test_an_empty_tensor_has_no_address(data):
    tensor = import_capsule(Made(data, versioned=True, shape=(0, 2), offset=8).capsule())
    assert (tensor.ptr, tensor.shape) == (0, (0, 2))


def test_the_readonly_flag_is_read():
    assert import_capsule(Made(np.zeros(1), versioned=True, shape=(1,), flags=1).capsule()).readonly


def test_a_tensor_without_a_deleter_is_read():
    made = Made(np.zeros(1), versioned=False, shape=(1,))
    made.managed.deleter = None
    assert import_capsule(made.capsule()).shape == (1,)


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("dtype", [(4, 16, 1), (2, 32, 4), (0, 4, 1), (7, 8, 1), (0, 24, 1), (6, 1, 1)])
def test_an_element_type_that_numpy_does_not_have_is_a_type_error_and_the_tensor_goes_back(versioned, dtype):
    made = Made(np.zeros(1), versioned=versioned, shape=(1,), dtype=dtype)
    with pytest.raises(TypeError, match="DLPack elements of code"):
        import_capsule(made.capsule())
    gc.collect()
    assert made.deleted == 1


def test_a_newer_major_version_is_refused_and_the_tensor_goes_back():
    made = Made(np.zeros(1), versioned=True, shape=(1,), version=(2, 1))
    with pytest.raises(BufferError, match=r"DLPack 2\.1 cannot be read, only 1\.x"):
        import_capsule(made.capsule())
    gc.collect()
    assert made.deleted == 1


def test_elements_at_a_null_pointer_are_refused_and_the_tensor_goes_back():
    made = Made(None, versioned=False, shape=(1,))
    with pytest.raises(BufferError, match="null pointer"):
        import_capsule(made.capsule())
    gc.collect()
    assert made.deleted == 1


def test_a_newer_minor_version_is_read():
    assert import_capsule(Made(np.zeros(1), versioned=True, shape=(1,), version=(1, 9)).capsule()).shape == (1,)


def test_what_is_no_capsule_is_a_buffer_error():
    for thing in (None, 3, object(), np.zeros(1)):
        with pytest.raises(BufferError, match="not a DLPack capsule"):
            import_capsule(thing)


def test_a_capsule_of_something_else_is_a_buffer_error():
    made = Made(np.zeros(1), versioned=False, shape=(1,))
    made.name = b"something else"
    with pytest.raises(BufferError, match="not a DLPack capsule"):
        import_capsule(made.capsule())


@pytest.mark.parametrize("versioned", VERSIONED)
def test_what_is_exported_is_imported(versioned):
    view = np.arange(12.0).reshape(3, 4).T
    tensor = import_capsule(export_capsule(view, (DeviceType.CPU, 0), versioned=versioned, copied=False))
    assert (tensor.ptr, tensor.shape, tensor.strides) == (view.ctypes.data, view.shape, view.strides)
