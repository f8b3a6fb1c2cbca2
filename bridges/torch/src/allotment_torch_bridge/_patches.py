"""What is put in the place of functions of PyTorch, and taken out again."""

from __future__ import annotations

from typing import Any

_ABSENT = object()


class Patches:
    """Attributes that were replaced."""

    def __init__(self) -> None:
        self._put: list[tuple[Any, str, Any, Any]] = []

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Replace an attribute of a module or class, or add it."""
        before = vars(owner).get(name, _ABSENT)
        setattr(owner, name, value)
        self._put.append((owner, name, before, value))

    def restore(self) -> None:
        """Put back what was there, but for what somebody else has replaced since."""
        while self._put:
            owner, name, before, value = self._put.pop()
            if vars(owner).get(name) is not value:
                continue
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
