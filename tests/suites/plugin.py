"""A pytest plugin for suites of others: it installs the bridge, keeps it installed, and writes a journal.

A journal is written line by line, so that a process that is taken down tells which test did it.
"""

from __future__ import annotations

import json
import os
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

JOURNAL, BRIDGE, DRAWS, SETTLED, ONLY, LEFT_OUT, TURN = (
    f"SUITES_{name}" for name in ("JOURNAL", "BRIDGE", "DRAWS", "SETTLED", "ONLY", "LEFT_OUT", "TURN")
)
"""The names of environment variables: the journal's file, the bridge to install, whether the library draws from
Allotment, files with the names of tests that are settled already and of those that alone are to be run, patterns of
those that are not, and which of how many processes with the same files this is."""


class Journal:
    """What became of each test, as JSON lines."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("a", buffering=1)

    def write(self, **facts: Any) -> None:
        """Write a line."""
        self._file.write(json.dumps(facts) + "\n")


class Recording:
    """The plugin as an object with the hooks."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._journal = Journal(Path(environment[JOURNAL]))
        self._bridge = environment.get(BRIDGE)
        self._draws = bool(environment.get(DRAWS))
        self._settled = _lines(environment.get(SETTLED))
        self._only = _lines(environment.get(ONLY))
        self._left_out = environment.get(LEFT_OUT, "").split()
        self._turn, self._turns = map(int, environment.get(TURN, "0/1").split("/"))
        if self._bridge:
            _install(self._bridge)

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what is settled, and what is not to be run."""
        chosen = {item: None for item in items[self._turn :: self._turns] if self._is_chosen(item.nodeid)}
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen

    def _is_chosen(self, test: str) -> bool:
        if test in self._settled or (self._only and test not in self._only):
            return False
        return not any(fnmatchcase(test, pattern) for pattern in self._left_out)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that cannot be collected, or is skipped as a whole."""
        if report.outcome != "passed":
            self._journal.write(test=report.nodeid, outcome=_outcome(report), seconds=0.0, why=_why(report))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note which test is running."""
        self._journal.write(began=nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Install the bridge again if the test before took it away."""
        if self._bridge:
            _keep(self._bridge)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what became of a test; of its stages the worst counts."""
        if report.when == "call" or report.outcome != "passed":
            self._journal.write(
                test=report.nodeid, outcome=_outcome(report), seconds=round(report.duration, 3), why=_why(report)
            )

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Note that no test is running."""
        self._journal.write(ended=nodeid)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Note that all were run, and what Allotment's accounts say."""
        self._journal.write(complete=int(exitstatus), accounts=_accounts() if self._draws else None)


def pytest_configure(config: pytest.Config) -> None:
    """Take part only where a journal is asked for."""
    if os.environ.get(JOURNAL):
        config.pluginmanager.register(Recording(dict(os.environ)))


def _lines(name: str | None) -> set[str]:
    return set(Path(name).read_text().splitlines()) if name else set()


def _outcome(report: pytest.TestReport | pytest.CollectReport) -> str:
    if hasattr(report, "wasxfail"):
        return "xfailed" if report.outcome == "skipped" else "xpassed"
    if report.outcome == "failed" and getattr(report, "when", "collect") != "call":
        return "error"
    return report.outcome


def _why(report: pytest.TestReport | pytest.CollectReport) -> str:
    if report.outcome == "passed":
        return ""
    if isinstance(report.longrepr, tuple):  # file, line and reason of a skip
        return str(report.longrepr[2])
    text = report.longreprtext.strip().splitlines()
    told = [line[1:].strip() for line in text if line.startswith("E ")]
    return " / ".join(told or text)[:600]


def _install(bridge: str) -> None:
    import allotment as al

    al.install(bridge)


def _keep(bridge: str) -> None:
    import allotment as al

    (status,) = (each for each in al.status() if each.library == bridge)
    if status.state is al.BridgeState.INSTALLED:
        return
    if status.state is al.BridgeState.DISPLACED:
        al.uninstall(bridge)
    al.install(bridge)


def _accounts() -> dict[str, Any]:
    """Return what was drawn from each allocator, in all, and what is still out."""
    al = sys.modules.get("allotment")
    if al is None:
        return {}
    try:
        stats_by_device = al.memory_stats()
    except al.AllotmentError:  # a test has left the device in an error that sticks
        return {}
    found: dict[str, Any] = {}
    for alias, accounts in stats_by_device.items():
        for name, stats in accounts.items():
            if stats.allocations:
                found[f"{name} on {alias}"] = {
                    "allocations": stats.allocations,
                    "frees": stats.frees,
                    "peak": stats.peak,
                    "failed_frees": stats.failed_frees,
                }
    return found
