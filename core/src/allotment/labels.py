"""Labels: what memory is for, in the words of who allocates it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from allotment._scope import ScopeStack

if TYPE_CHECKING:
    from collections.abc import Iterator

_labels: Final[ScopeStack[str]] = ScopeStack("allotment_labels")


@contextmanager
def label(name: str) -> Iterator[str]:
    """Say what the memory is for that the running thread or task allocates in a ``with`` block.

    Parameters
    ----------
    name
        The label. Within another label the two are joined by a slash: ``"step/activations"``.

    Yields
    ------
    str
        The label in full.

    Raises
    ------
    TypeError, ValueError
        For what is no text, and for an empty one.

    Notes
    -----
    Nothing is done with labels unless somebody looks at them, as the layer ``track`` does. Threads start without
    labels; tasks begin with those of their maker. A function is labelled by ``@allotment.label("name")``.

    Examples
    --------
    >>> import allotment as al
    >>> with al.label("step"), al.label("activations") as full:
    ...     full
    'step/activations'
    """
    if not isinstance(name, str):
        raise TypeError(f"a label is text, not {name!r}")
    if not name:
        raise ValueError("a label cannot be empty")
    outer = current_label()
    full = name if outer is None else f"{outer}/{name}"
    scope = object()
    _labels.push(scope, full)
    try:
        yield full
    finally:
        _labels.pop(scope)


def current_label() -> str | None:
    """Return the label in force in the running thread or task, in full; ``None`` if there is none."""
    entries = _labels.get()
    return entries[-1][1] if entries else None
