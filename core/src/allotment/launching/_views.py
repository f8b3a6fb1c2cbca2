"""Arguments as a kernel of another library takes them: the same structure, with each array replaced."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from allotment._array import Array
from allotment._layout import reach
from allotment.access import arrays_in, attributes_of
from allotment.interchange import asarray, is_foreign_array

if TYPE_CHECKING:
    from collections.abc import Callable


class ArrayReplacement:
    """Replaces each `Array` in an argument: in tuples, lists, dictionaries and members of objects.

    Memory of other libraries is wrapped first, and the stream in force waits for its producer. What holds no array is
    passed on as it is; what does is copied, one level at a time.

    Parameters
    ----------
    replace
        What makes of an array what the kernel takes.
    leave
        The packages whose objects the kernel takes as they are.
    """

    def __init__(self, replace: Callable[[Array], Any], leave: tuple[str, ...] = ()) -> None:
        self._replace = replace
        self._leave = leave
        self._twins: dict[int, Any] = {}

    def __call__(self, argument: Any) -> Any:
        """Return an argument as the kernel takes it."""
        if isinstance(argument, Array):
            return self._replace(argument)
        if type(argument).__module__.partition(".")[0] in self._leave:
            return argument
        if is_foreign_array(argument):
            return self._replace(asarray(argument))
        if id(argument) in self._twins:
            return self._twins[id(argument)]
        if hasattr(argument, "__array_interface__") or not any(True for _ in arrays_in(argument, "")):
            return argument
        return self._twin(argument)

    def _twin(self, holder: Any) -> Any:
        if isinstance(holder, tuple):
            items = [self(item) for item in holder]
            return type(holder)(*items) if hasattr(holder, "_fields") else type(holder)(items)
        twin = self._twins[id(holder)] = copy.copy(holder)
        if isinstance(holder, list):
            twin[:] = [self(item) for item in holder]
        elif isinstance(holder, dict):
            twin.update({key: self(item) for key, item in holder.items()})
        else:
            for name, value in attributes_of(holder):
                object.__setattr__(twin, name, self(value))
        return twin


def extent_of(array: Array) -> tuple[int, int]:
    """Return the lowest address that an array's elements cover, and how many bytes there are to the highest one."""
    low, end = reach(array.shape, array.strides, array.itemsize)
    return array.ptr + low, end - low
