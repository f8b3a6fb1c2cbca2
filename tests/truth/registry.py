"""Which replay stands for which recorded cases."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .machine import Machine

    Replay = Callable[..., Iterable[tuple[str, Any]]]

_replays: list[tuple[re.Pattern[str], Replay]] = []


def replays(pattern: str) -> Callable[[Replay], Replay]:
    """Let a generator of labels and answers stand for the cases whose whole name a pattern matches.

    It gets the machine, and what the pattern's groups matched by their names.
    """

    def register(replay: Replay) -> Replay:
        _replays.append((re.compile(pattern), replay))
        return replay

    return register


def replay(name: str, machine: Machine) -> dict[str, Any] | None:
    """Return the simulator's answers to a case, ``None`` where there is no replay of it."""
    for pattern, answers in _replays:
        if found := pattern.fullmatch(name):
            return dict(answers(machine, **found.groupdict()))
    return None
