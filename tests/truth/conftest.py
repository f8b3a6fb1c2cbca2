"""What the comparison with the recorded hardware came to, printed at the end of the run."""

from __future__ import annotations

from collections import Counter

import pytest

from .machine import Machine

OUTCOME = "outcome of a recorded case"


@pytest.fixture
def machine():
    two_gpus = Machine()
    yield two_gpus
    two_gpus.close()


def pytest_terminal_summary(terminalreporter):
    """Count the cases by what came of them; a worker's reports are counted by the process that started it."""
    reports = terminalreporter.stats.get("passed", []) + terminalreporter.stats.get("failed", [])
    outcomes = Counter(
        value for report in reports for key, value in getattr(report, "user_properties", ()) if key == OUTCOME
    )
    if outcomes:
        counts = ", ".join(f"{outcomes[name]} {name}" for name in ("matched", "unmodelled", "left out", "differing"))
        terminalreporter.section("recorded hardware")
        terminalreporter.line(f"{outcomes.total()} cases of 2 × H200: {counts}")
