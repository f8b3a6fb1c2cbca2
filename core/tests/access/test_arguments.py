import math
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import allotment as al
from allotment.access import arrays_in


class Pair(NamedTuple):
    left: Any
    right: Any


class Slotted:
    __slots__ = ("array", "missing")

    def __init__(self, array):
        self.array = array


class Foreign:
    """An array of another library on a device, with a stream that it works on."""

    def __init__(self, array, **attributes):
        self.__cuda_array_interface__ = dict(array.__cuda_array_interface__, stream=7)
        self.__dict__ |= attributes


class ByDlpack:
    def __init__(self, array):
        self.array = array
        self.streams = []

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, *, stream=None, **options):
        self.streams.append(stream)
        return self.array.__dlpack__(stream=stream, **options)


def paths(argument):
    return [path for path, _ in arrays_in(argument, "x")]


@pytest.fixture
def array(sim):
    return al.zeros(3, device="cuda:0")


@pytest.mark.parametrize(
    ("holder", "path"),
    [
        (lambda array: array, "x"),
        (lambda array: (1, array), "x[1]"),
        (lambda array: [[array]], "x[0][0]"),
        (lambda array: {"key": array}, "x['key']"),
        (lambda array: Pair(array, 1), "x.left"),
        (lambda array: SimpleNamespace(a=SimpleNamespace(b=array)), "x.a.b"),
        (Slotted, "x.array"),
        (lambda array: Foreign(array), "x"),
        (lambda array: SimpleNamespace(inner=Foreign(array)), "x.inner"),
        (ByDlpack, "x"),
    ],
)
def test_an_array_is_found_with_the_path_to_it(array, holder, path):
    ((found_path, found),) = arrays_in(holder(array), "x")

    assert (found_path, found.ptr, found.device) == (path, array.ptr, array.device)


@pytest.mark.parametrize(
    "value", [None, 1, 2.5, "text", b"bytes", np.float32(1), np.dtype("f4"), int, len, math, lambda: None, object()]
)
def test_what_holds_no_array_is_passed_over(sim, value):
    assert paths(value) == []


def test_numpy_arrays_are_found_and_those_of_objects_are_not(sim):
    assert paths((np.zeros(3), np.array([object()]))) == ["x[0]"]


def test_a_cycle_ends(array):
    holder = SimpleNamespace(array=array)
    holder.me = holder
    holder.items = [holder]

    assert paths(holder) == ["x.array"]


def test_what_is_nested_too_deep_is_passed_over(array):
    holder = array
    for _ in range(40):
        holder = [holder]

    assert paths(holder) == []


def test_a_gradient_is_found_where_there_is_one(array):
    gradient = Foreign(array)

    assert paths(Foreign(array, requires_grad=True, grad=gradient)) == ["x", "x.grad"]
    assert paths(Foreign(array, requires_grad=False, grad=gradient)) == ["x"]
    assert paths(Foreign(array, requires_grad=True, is_leaf=False, grad=gradient)) == ["x"]
    assert paths(Foreign(array, requires_grad=True, grad=None)) == ["x"]


def test_finding_orders_no_work_and_waits_for_none(sim, array):
    by_dlpack = ByDlpack(array)
    sim.calls.clear()
    paths((Foreign(array), by_dlpack))

    assert by_dlpack.streams == [-1]
    assert {call.name for call in sim.calls} <= {"pointer_attributes", "current_device"}


def test_an_object_that_fails_to_share_its_memory_is_passed_over(sim):
    class Failing:
        def __dlpack__(self):
            raise BufferError("needs a gradient")

        def __dlpack_device__(self):
            return (1, 0)

    assert paths(Failing()) == []
