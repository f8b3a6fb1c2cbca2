"""Finding the arrays in an argument: as itself, in containers, as members of objects, behind the array protocols."""

from __future__ import annotations

from collections.abc import Mapping
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from allotment._array import Array
from allotment.device import Device
from allotment.interchange import described, from_numpy, is_foreign_array
from allotment.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_DEPTH: Final = 16
"""How deep arrays are looked for: what is nested deeper is taken for something else than an argument."""
_WITHOUT_ARRAYS: Final = (
    bool, int, float, complex, str, bytes, bytearray, range, type, np.generic, np.dtype, type(None),
    FunctionType, BuiltinFunctionType, MethodType, ModuleType, Device, Stream,
)  # fmt: skip


def arrays_in(argument: object, path: str) -> Iterator[tuple[str, Array]]:
    """Yield every array in an argument with the path that leads to it, such as ``inputs[0].positions``.

    Memory of other libraries is wrapped, and no work is ordered or waited for. An object that is met again, as in a
    cycle, is passed over.
    """
    yield from _walk(argument, path, MAX_DEPTH, {})


def _walk(value: object, path: str, depth: int, seen: dict[int, object]) -> Iterator[tuple[str, Array]]:
    if isinstance(value, Array):
        yield path, value
        return
    if isinstance(value, _WITHOUT_ARRAYS) or depth == 0 or id(value) in seen:
        return
    seen[id(value)] = value
    if isinstance(value, np.ndarray) or is_foreign_array(value):
        if (array := _wrapped(value)) is not None:
            yield path, array
        members = gradient_of(value)
    else:
        members = members_of(value)
    for step, member in members:
        yield from _walk(member, path + step, depth - 1, seen)


def _wrapped(value: Any) -> Array | None:
    try:
        return from_numpy(value) if isinstance(value, np.ndarray) else described(value)
    except Exception:  # noqa: BLE001 - what cannot be shared is for whoever takes the argument to refuse
        return None


def gradient_of(value: Any) -> Iterator[tuple[str, object]]:
    """Yield the gradient that Warp's and PyTorch's arrays carry along."""
    if getattr(value, "requires_grad", False) is True and getattr(value, "is_leaf", True):
        yield ".grad", value.grad


def members_of(value: object) -> Iterator[tuple[str, object]]:
    """Yield what a container or an object holds, each with the step that leads to it."""
    if isinstance(value, Mapping):
        yield from ((f"[{key!r}]", item) for key, item in list(value.items()))
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from ((f".{name}", item) for name, item in zip(value._fields, value, strict=True))
    elif isinstance(value, list | tuple):
        yield from ((f"[{index}]", item) for index, item in enumerate(value))
    else:
        yield from ((f".{name}", item) for name, item in attributes_of(value))


def attributes_of(value: object) -> Iterator[tuple[str, object]]:
    """Yield the attributes that an object keeps, in a dictionary or in slots."""
    yield from list(getattr(value, "__dict__", {}).items())
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            if not name.startswith("__") and hasattr(value, name):
                yield name, getattr(value, name)
