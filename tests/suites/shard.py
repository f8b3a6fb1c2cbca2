"""Running a part of a suite in processes of its own, until each test is settled or time is up."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.suites import plugin
from tests.suites.suite import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.suites.suite import Suite, Way

ATTEMPTS = 8
"""How often a process is begun anew after a test took it down."""
LEAST_SECONDS = 1
"""A process is not begun for less."""
WORST_FIRST = ("crashed", "killed", "error", "failed", "xpassed", "xfailed", "passed", "skipped")


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a test."""

    outcome: str
    seconds: float = 0.0
    why: str = ""


@dataclass(slots=True)
class Results:
    """What became of tests, and what Allotment's accounts said at the end of each process."""

    tests: dict[str, Result] = field(default_factory=dict)
    accounts: dict[str, dict[str, int]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, test: str, result: Result) -> None:
        """Note a result; of several for a test the worst counts."""
        known = self.tests.get(test)
        if known is None or WORST_FIRST.index(result.outcome) < WORST_FIRST.index(known.outcome):
            self.tests[test] = result

    def book(self, accounts: dict[str, dict[str, int]] | None) -> None:
        """Add up what accounts say."""
        for name, figures in (accounts or {}).items():
            total = self.accounts.setdefault(name, {})
            for figure, number in figures.items():
                total[figure] = max(total.get(figure, 0), number) if figure == "peak" else total.get(figure, 0) + number

    def take(self, other: Results) -> None:
        """Add the results of another part."""
        for test, result in other.tests.items():
            self.add(test, result)
        self.book(other.accounts)
        self.problems += other.problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A part of a suite, run in one way.

    Parameters
    ----------
    suite, way
        What is run, and how.
    files
        The files of it.
    folder
        Where the suite's files are.
    scratch
        A folder that is its own.
    shared
        A folder that all parts of the run share, for what they compile.
    only
        The tests that are run; all if empty.
    turn
        Which of how many shards with the same files it is: each runs its part of their tests.
    """

    suite: Suite
    way: Way
    files: tuple[Path, ...]
    folder: Path
    scratch: Path
    shared: Path
    only: tuple[str, ...] = ()
    turn: tuple[int, int] = (0, 1)

    def run(self, limit: float) -> Results:
        """Run within a number of seconds."""
        deadline, found = time.monotonic() + limit, Results()
        if limit < LEAST_SECONDS:
            found.problems.append(f"{self._name}: not begun, no time was left")
            return found
        self.scratch.mkdir(parents=True, exist_ok=True)
        for attempt in range(ATTEMPTS):
            journal = self.scratch / f"journal-{attempt}.jsonl"
            code = self._run_process(journal, found, deadline)
            running, is_complete = _read(journal, found)
            if is_complete:
                return found
            how = "killed" if code is None else "crashed"
            if running is None:
                found.problems.append(f"{self._name}: {how} with exit code {code} outside of a test; see {journal}")
                return found
            found.add(running, Result(how, why=f"the process ended with {code}" if code is not None else "out of time"))
            if time.monotonic() > deadline:
                found.problems.append(f"{self._name}: out of time after {limit:.0f} s in {running}")
                return found
        found.problems.append(f"{self._name}: given up after {ATTEMPTS} processes")
        return found

    @property
    def _name(self) -> str:
        return f"{self.suite.library}, {self.way.name}, {self.scratch.name}"

    def _run_process(self, journal: Path, found: Results, deadline: float) -> int | None:
        """Run what is not settled; return the exit code, ``None`` if it had to be killed."""
        log = journal.with_suffix(".log")
        with log.open("w") as output:
            process = subprocess.Popen(
                self._command(),
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=self.scratch,
                env=self._environment(journal, found.tests),
                start_new_session=True,
            )
            try:
                return process.wait(max(1.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                return None
            finally:
                with contextlib.suppress(ProcessLookupError):  # also the processes that tests left behind
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _command(self) -> list[str]:
        ini = self.folder / self.suite.ini
        if "\n" in self.suite.ini:
            ini = self.scratch / "pytest.ini"
            ini.write_text(self.suite.ini)
        options = ["-p", "tests.suites.plugin", "-p", "no:cacheprovider", "-q", "--tb=short", "-c", str(ini)]
        options += ["--continue-on-collection-errors", f"--rootdir={self.folder}", f"--confcutdir={self.folder}"]
        options += self.suite.arguments
        return [sys.executable, "-m", "pytest", *options, *map(str, self.files)]

    def _environment(self, journal: Path, settled: Iterable[str]) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("ALLOTMENT_", "NUMBA_"))}
        paths = [*self.suite.paths(self.shared), ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]
        clean |= {
            "HOME": str(self.shared / "home"),
            "XDG_CONFIG_HOME": str(self.shared / "home"),
            "TMPDIR": str(self.scratch),
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            plugin.JOURNAL: str(journal),
            plugin.SETTLED: str(_listed(self.scratch / "settled.txt", settled)),
            plugin.LEFT_OUT: " ".join(self.suite.tests_left_out),
            plugin.TURN: "/".join(map(str, self.turn)),
        }
        if self.only:
            clean[plugin.ONLY] = str(_listed(self.scratch / "only.txt", self.only))
        return clean | dict(self.suite.environment) | self._with_bridge()

    def _with_bridge(self) -> dict[str, str]:
        if self.way.allocator is None:
            return {}
        added = {"ALLOTMENT_ALLOCATOR": self.way.allocator, plugin.DRAWS: "1", **self.suite.with_bridge}
        return added if self.suite.with_bridge else {**added, plugin.BRIDGE: self.suite.library}


def _listed(file: Path, names: Iterable[str]) -> Path:
    file.write_text("".join(f"{name}\n" for name in names))
    return file


def _read(journal: Path, found: Results) -> tuple[str | None, bool]:
    """Add what a journal says; return the test that was running at its end, and whether all were run."""
    running, is_complete = None, False
    for line in journal.read_text().splitlines() if journal.exists() else ():
        try:
            facts: dict[str, Any] = json.loads(line)
        except ValueError:  # cut off by the end of the process
            continue
        if "began" in facts:
            running = facts["began"]
        elif "ended" in facts:
            running = None
        elif "test" in facts:
            found.add(facts["test"], Result(facts["outcome"], facts["seconds"], facts["why"]))
        elif "complete" in facts:
            is_complete = True
            found.book(facts["accounts"])
    return running, is_complete
