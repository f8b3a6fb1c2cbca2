"""The text of the errors of this package."""

from __future__ import annotations

from allotment.errors import ServingError


def refusal(what: str, problem: str, remedy: str | None = None) -> ServingError:
    """Return the error for what cannot be done: what, the problem, and what to do about it."""
    return ServingError(" ".join(filter(None, [f"{what}: {problem}.", remedy])))
