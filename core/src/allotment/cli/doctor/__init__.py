"""``allotment doctor``: what is wrong here, and what to type."""

from allotment.cli.doctor._command import doctor
from allotment.cli.doctor._finding import Finding, Severity

__all__ = ["Finding", "Severity", "doctor"]
