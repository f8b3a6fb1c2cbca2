"""What the doctor finds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    """Something that is not here, or not as one may expect; what is asked for works."""
    PROBLEM = "problem"
    """Something that was asked for and does not work."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that the doctor looked at.

    Parameters
    ----------
    severity
        How bad it is.
    subject
        What was looked at, in a word or two.
    text
        What was found.
    command
        What to type about it; ``None`` if there is nothing to do, or nothing that can be typed.
    """

    severity: Severity
    subject: str
    text: str
    command: str | None = None


def ok(subject: str, text: str, command: str | None = None) -> Finding:
    """Return a finding that all is well."""
    return Finding(Severity.OK, subject, text, command)


def warning(subject: str, text: str, command: str | None = None) -> Finding:
    """Return a finding to know about."""
    return Finding(Severity.WARNING, subject, text, command)


def problem(subject: str, text: str, command: str | None = None) -> Finding:
    """Return a finding of something wrong."""
    return Finding(Severity.PROBLEM, subject, text, command)
