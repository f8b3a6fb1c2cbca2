"""``allotment demo``: what Allotment does, in a minute."""

from allotment.cli.demo._command import DemoResult, demo
from allotment.cli.demo._trial import Trial

__all__ = ["DemoResult", "Trial", "demo"]
