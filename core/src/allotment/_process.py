"""The life of the process: what must happen when it ends and in a child that it forks."""

from __future__ import annotations

import atexit
import os
import sys
from enum import Enum
from threading import RLock
from types import MethodType
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakMethod, WeakSet

if TYPE_CHECKING:
    from collections.abc import Callable


class ProcessState(Enum):
    """Where a process is in its life."""

    RUNNING = "running"
    SHUTTING_DOWN = "shutting down"
    """The interpreter has begun to exit: the driver must not be called any more."""
    FORKED = "forked"
    """This is a child of a process that had something registered here: its GPU state is not ours to use."""


class Renewed(Protocol):
    """What a child must have anew."""

    def renew(self) -> None:
        """Begin anew in a child."""


class Lifecycle:
    """Callbacks for the end of a process and for the birth of its children.

    Nothing is installed in the interpreter before the first registration, so a process that only imports Allotment
    is left alone, and its children are no forked users of a GPU.
    """

    def __init__(self) -> None:
        self.state = ProcessState.RUNNING
        self._lock = RLock()
        self._is_watching_end = self._is_watching_forks = False
        self._at_shutdown: list[Callable[[], Callable[[], None] | None]] = []
        self._in_child: list[Callable[[], Callable[[], None] | None]] = []
        self._renewals: list[Callable[[], Callable[[], None] | None]] = []
        self._renewed: WeakSet[Renewed] = WeakSet()

    def on_shutdown(self, callback: Callable[[], None]) -> None:
        """Register what is called once when the interpreter begins to exit."""
        self._register(self._at_shutdown, callback)

    def on_fork_in_child(self, callback: Callable[[], None]) -> None:
        """Register what is called in each child right after it was forked, which is a forked user of a GPU then."""
        self._register(self._in_child, callback)

    def on_renewal_in_child(self, callback: Callable[[], None]) -> None:
        """Register what gives a child anew what it must have so: called first; the child may use a GPU."""
        self._register(self._renewals, callback)

    def renew_in_child(self, renewed: Renewed) -> None:
        """Register what begins anew before anything is called, such as a lock; there may be any number.

        The end of the process is not watched for that. Locks are used before the platform is, and what is registered
        first for the end of an interpreter comes last: libraries of the platform would end before Allotment does.
        """
        with self._lock:
            self._watch_forks()
            self._renewed.add(renewed)

    def shut_down(self) -> None:
        """Enter `ProcessState.SHUTTING_DOWN` and run the callbacks, the last one registered first."""
        self.state = ProcessState.SHUTTING_DOWN
        _run(self._at_shutdown)

    def enter_child(self) -> None:
        """Enter `ProcessState.FORKED` if anything is registered for it, and run that, the last one registered first."""
        self._lock = RLock()  # another thread of the parent may have held it
        for renewed in self._renewed:
            _run_safely(renewed.renew)
        _run(self._renewals)
        if any(reference() is not None for reference in self._in_child):
            self.state = ProcessState.FORKED
        _run(self._in_child)

    def _register(self, callbacks: list[Callable[[], Callable[[], None] | None]], callback: Callable[[], None]) -> None:
        with self._lock:
            self._watch_end()
            self._watch_forks()
            callbacks[:] = [reference for reference in callbacks if reference() is not None]
            callbacks.append(_reference_to(callback))

    def _watch_end(self) -> None:
        if self._is_watching_end:
            return
        self._is_watching_end = True
        atexit.register(self.shut_down)

    def _watch_forks(self) -> None:
        if self._is_watching_forks:
            return
        self._is_watching_forks = True
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.enter_child)


def _reference_to(callback: Callable[[], None]) -> Callable[[], Callable[[], None] | None]:
    """Return what gives the callback back: a weak reference to a bound method, a strong one to a function."""
    return WeakMethod(callback) if isinstance(callback, MethodType) else lambda: callback


def _run(callbacks: list[Callable[[], Callable[[], None] | None]]) -> None:
    for reference in reversed(list(callbacks)):
        callback = reference()
        if callback is not None:
            _run_safely(callback)


def _run_safely(callback: Callable[[], None]) -> None:
    """Call, and hand an exception to `sys.excepthook`: neither an exit nor a fork can be stopped by one."""
    try:
        callback()
    except BaseException as error:  # noqa: BLE001 - the next callbacks must run
        sys.excepthook(type(error), error, error.__traceback__)


_lifecycle: Final = Lifecycle()

on_shutdown: Final = _lifecycle.on_shutdown
on_fork_in_child: Final = _lifecycle.on_fork_in_child
on_renewal_in_child: Final = _lifecycle.on_renewal_in_child
renew_in_child: Final = _lifecycle.renew_in_child


def state() -> ProcessState:
    """Return where this process is in its life."""
    return _lifecycle.state


def is_running(_lifecycle: Lifecycle = _lifecycle, _running: ProcessState = ProcessState.RUNNING) -> bool:
    """Return whether the platform may be called: no exit has begun, and this is no child of a process that used it.

    It works in a finaliser at the very end of the interpreter, when this module may have lost its names.
    """
    return _lifecycle.state is _running
