"""Locks that a forked child can take."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cached_property
from threading import RLock
from typing import TypeVar

from allotment import _process

Kind = TypeVar("Kind")


class RenewedLock:
    """A reentrant lock, which is called where it is to be held: ``with lock():``.

    Of the threads of a process only the one that forks lives on in the child. What another one held then would be held
    there for ever, so a child gets it anew.

    Notes
    -----
    It is made known by its first use, so that one can be made at import. It gives out a lock of the interpreter rather
    than be one itself, since Ctrl-C could get between the lines of its own ``__enter__`` and leave it held.
    """

    __slots__ = ("__weakref__", "_is_known", "_lock")

    def __init__(self) -> None:
        self._lock = RLock()
        self._is_known = False

    def __call__(self) -> RLock:
        """Return what to hold."""
        if not self._is_known:
            _process.renew_in_child(self)
            self._is_known = True
        return self._lock

    def renew(self) -> None:
        """Let go of it in a forked child, unless the thread that forked holds it, which goes on under it."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = RLock()


def without_property_locks(kind: type[Kind]) -> type[Kind]:
    """Take the lock from each `cached_property` of a class: Python 3.11 gives them some, and no child gets them anew.

    What two threads ask for at once is found twice then, as it is since Python 3.12.
    """
    for each in vars(kind).values():
        if isinstance(each, cached_property):
            vars(each)["lock"] = nullcontext()
    return kind
