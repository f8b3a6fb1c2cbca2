"""Scopes: settings in force for the length of a ``with`` block, in one thread or task."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Generic, TypeVar

T = TypeVar("T")


class ScopeStack(Generic[T]):
    """The scopes of one kind that the running context has entered, innermost last.

    A scope is removed wherever it stands in the stack, so scopes left in another order than they were entered, and a
    scope object entered twice, leave exactly what is still in force. Each thread starts empty; tasks copy the context
    that made them.

    Parameters
    ----------
    name
        The name of the context variable, for debugging.
    """

    __slots__ = ("get", "variable")

    def __init__(self, name: str) -> None:
        self.variable: ContextVar[tuple[tuple[object, T], ...]] = ContextVar(name, default=())
        self.get = self.variable.get
        """Return the entries as pairs of scope object and value; bound once, because it is on the hot path."""

    def push(self, scope: object, value: T) -> None:
        """Enter a scope."""
        self.variable.set((*self.get(), (scope, value)))

    def pop(self, scope: object) -> T | None:
        """Leave a scope: its innermost entry goes, and its value is returned.

        In a context that never entered it, as when a generator is closed from elsewhere, there is nothing to undo and
        the answer is ``None``.
        """
        entries = self.get()
        for index in reversed(range(len(entries))):
            if entries[index][0] is scope:
                self.variable.set(entries[:index] + entries[index + 1 :])
                return entries[index][1]
        return None

    def clear(self) -> None:
        """Leave all scopes of the running context."""
        self.variable.set(())
