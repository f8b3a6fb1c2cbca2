"""Functions in C through which a library allocates, in Python: the twin of ``_c_callbacks_native.c``.

They have no parameter for whoever receives the calls, so there is one receiver in a process. They are made by ctypes,
which takes the interpreter lock first: nobody may call them any more when the interpreter is gone, nor with a lock held
that a thread with the interpreter lock may wait for.
"""

from __future__ import annotations

import ctypes
import operator
from collections import deque
from typing import TYPE_CHECKING, Any

from allotment._foreign_memory import report_unraisable
from allotment.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment.bridges._callbacks import CallbackReceiver

_Allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
_Free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
_RecordUse = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_Trim = ctypes.CFUNCTYPE(None)

_receiver: CallbackReceiver | None = None
_served: dict[int, tuple[Callable[..., Any], Callable[..., Any]]] = {}
_freed: deque[int] = deque()


def connect(receiver: CallbackReceiver | None, /) -> None:
    """Let an object receive the calls; ``None`` for nobody."""
    global _receiver
    _receiver = receiver


def close() -> None:
    """Call nobody any more."""
    connect(None)


def addresses() -> dict[str, int]:
    """Return the address of each function by its name: allocate, free, free_later, record_use, trim."""
    return {name: ctypes.cast(function, ctypes.c_void_p).value or 0 for name, function in _functions.items()}


def serve(device: int, allocate: int, free: int, /) -> None:
    """Let two functions in C serve a device first; 0 for none."""
    _served.pop(device, None)
    if allocate:
        _served[device] = _Allocate(allocate), _Free(free)


def throw_by(*_: int) -> None:
    """Tell of a refusal by an exception of C++, which only the compiled twin can.

    Raises
    ------
    UnsupportedError
        Always.
    """
    raise UnsupportedError("an exception of C++ is thrown by compiled callbacks alone: this build of core has none")


def take_freed() -> list[int]:
    """Return the addresses given to free_later, and forget them."""
    taken = []
    while _freed:
        taken.append(_freed.popleft())
    return taken


def _allocate(size: int, device: int, stream: int | None) -> int | None:
    if size == 0:
        return None
    if device in _served:
        ptr: int | None = _served[device][0](size, device, stream)
        if ptr:
            return ptr
    if _receiver is None:
        return None
    try:
        return operator.index(_receiver.allocate(size, device, stream or 0))
    except MemoryError:
        return None
    except BaseException as error:  # noqa: BLE001 - ctypes would report it too, and return what is not set
        report_unraisable(error, _receiver)
        return None


def _free(ptr: int | None, size: int, device: int, stream: int | None) -> None:
    if ptr and device in _served:
        _served[device][1](ptr, size, device, stream)
    elif ptr and _receiver is not None:
        _receiver.free(ptr)


def _free_later(ptr: int | None, *_: int | None) -> None:
    if ptr and _receiver is not None:
        _freed.append(ptr)


def _record_use(ptr: int | None, stream: int | None) -> None:
    if ptr and _receiver is not None:
        _receiver.record_use(ptr, stream or 0)


def _trim() -> None:
    if _receiver is not None:
        _receiver.trim()


_functions: dict[str, Any] = {
    "allocate": _Allocate(_allocate),
    "free": _Free(_free),
    "free_later": _Free(_free_later),
    "record_use": _RecordUse(_record_use),
    "trim": _Trim(_trim),
}
"""Held for ever: a library may call them as long as the process lives."""
