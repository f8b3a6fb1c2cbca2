"""Checking an installed allocator by its name: the kit's tests run, and are summed up rule by rule."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field, replace
from enum import Enum
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, TYPE_CHECKING, Any, Final

from allotment import platform as platforms
from allotment import registry
from allotment.errors import PlatformUnavailableError, PluginError, UnsupportedError
from allotment.testing._fixtures import CUDA
from allotment.testing._rule import EXEMPT, NOT_CHECKED, RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from allotment.registry import PluginRecord


class RuleStatus(Enum):
    """What came of a rule."""

    HELD = "held"
    """Its tests passed, as far as they apply."""
    NOT_APPLICABLE = "not applicable"
    """What the allocator declares takes it out of the rule's reach."""
    EXEMPT = "exempt"
    """The allocator says that it cannot keep it, and why."""
    NOT_CHECKED = "not checked"
    """It could not be tried here."""
    FAILED = "failed"
    """A test of it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What came of one test on one platform.

    Parameters
    ----------
    test
        The name of the test.
    platform
        Where it ran: a profile of the simulator, ``"host"`` or ``"cuda"``; ``None`` for one that needs none.
    rules
        The ids of the rules that it checks.
    outcome
        ``"passed"``, ``"failed"`` or ``"skipped"``.
    message
        Why it failed or was skipped.
    traceback
        Where it failed.
    seconds
        How long it took.
    """

    test: str
    platform: str | None
    rules: tuple[str, ...]
    outcome: str
    message: str = ""
    traceback: str = field(default="", repr=False)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleReport:
    """What came of one rule.

    Parameters
    ----------
    rule, title
        Its id and its title.
    status
        What came of it.
    passed
        How many trials passed.
    reasons
        Why it does not apply, is not kept or was not checked.
    failures
        The trials that failed.
    """

    rule: str
    title: str
    status: RuleStatus
    passed: int
    reasons: tuple[str, ...] = ()
    failures: tuple[Trial, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What came of all rules.

    Parameters
    ----------
    allocator
        The record of what was checked.
    rules
        The rules, in the order of the contract page.
    devices
        Whether real devices were tried, or why not.
    """

    allocator: PluginRecord
    rules: tuple[RuleReport, ...]
    devices: str

    @property
    def failed(self) -> tuple[RuleReport, ...]:
        """The rules that were broken."""
        return tuple(each for each in self.rules if each.status is RuleStatus.FAILED)

    @property
    def is_checked(self) -> bool:
        """Whether memory was had at all: rules P, of what is declared, can hold where an allocator cannot run."""
        return any(each.passed for each in self.rules if not each.rule.startswith("P"))


_OPTIONS: Final = ("-q", "--noconftest", "-p", "no:cacheprovider", "-p", "allotment.testing._pytest_plugin")
_FINALISER_ERRORS: Final = ("PytestUnraisableExceptionWarning", "PytestUnhandledThreadExceptionWarning")
"""What pytest makes of an exception that leaves a finaliser or a thread: here it fails the test."""


def check_allocator(
    name: str,
    *,
    on: Sequence[str] = (),
    options: Sequence[str] = (),
    progress: Callable[[int, int], None] = lambda _done, _tests: None,
) -> CheckReport:
    """Run the conformance kit on an installed allocator and sum it up rule by rule.

    Parameters
    ----------
    name
        Its name, or ``"distribution:name"``.
    on
        The only platforms to run on: ``"cuda"``, ``"host"``, ``"sim:PROFILE"``. By default simulated machines, and
        real devices where there are any.
    options
        What configuration says about it, each as ``"name=value"``.
    progress
        Is told after each test how many are done, and of how many.

    Raises
    ------
    PluginError
        If the name means no plugin that can be loaded.
    UnsupportedError
        If the tests could not be run.
    """
    record = registry.current().get(name).record
    devices = _devices(on)
    asked = [f"--allotment-allocator={_fresh_name(record)}"]
    asked += [f"--allotment-platform={each}" for each in on]
    asked += [f"--allotment-option={each}" for each in options]
    if not on and devices:
        asked += ["-m", "not gpu"]
    trials = tuple(_trials(asked, progress))
    return CheckReport(allocator=record, rules=summed_up(trials), devices=devices)


def _fresh_name(record: PluginRecord) -> str:
    """Return the shortest name that chooses a plugin where no lists are in force."""
    try:
        chosen = registry.Registry().find(record.name)
    except PluginError:
        return record.qualified_name
    return record.name if chosen.key == record.key else record.qualified_name


def _devices(on: Sequence[str]) -> str:
    """Return why real devices are not tried; nothing if they are."""
    if on:
        return "" if CUDA in on else "not asked for"
    try:
        platforms.choose(CUDA)
    except PlatformUnavailableError as unavailable:
        return unavailable.reason
    return ""


def summed_up(trials: Iterable[Trial]) -> tuple[RuleReport, ...]:
    """Return what came of each rule."""
    by_rule: dict[str, list[Trial]] = {rule: [] for rule in RULES}
    for trial in trials:
        for rule in trial.rules:
            by_rule[rule].append(trial)
    return tuple(_rule_report(rule, found) for rule, found in by_rule.items())


def _rule_report(rule: str, trials: list[Trial]) -> RuleReport:
    failures = tuple(trial for trial in trials if trial.outcome == "failed")
    passed = sum(trial.outcome == "passed" for trial in trials)
    reasons = _reasons(trial.message for trial in trials if trial.outcome == "skipped")
    if failures:
        status = RuleStatus.FAILED
    elif RuleStatus.EXEMPT in reasons:
        status = RuleStatus.EXEMPT
    elif passed:
        status = RuleStatus.HELD
    else:
        status = RuleStatus.NOT_APPLICABLE if RuleStatus.NOT_APPLICABLE in reasons else RuleStatus.NOT_CHECKED
    told = reasons.get(status, ["no test of it runs here"] if status is RuleStatus.NOT_CHECKED else [])
    return RuleReport(
        rule=rule, title=RULES[rule], status=status, passed=passed, reasons=tuple(told), failures=failures
    )


def _reasons(messages: Iterable[str]) -> dict[RuleStatus, list[str]]:
    """Return why tests were skipped, each reason once, by what it says of the rule."""
    found: dict[RuleStatus, list[str]] = {}
    for message in dict.fromkeys(messages):
        begin = next((begin for begin in _MEANINGS if message.startswith(begin)), "")
        found.setdefault(_MEANINGS.get(begin, RuleStatus.NOT_APPLICABLE), []).append(message.removeprefix(begin))
    return found


_MEANINGS: Final = {EXEMPT: RuleStatus.EXEMPT, NOT_CHECKED: RuleStatus.NOT_CHECKED}
"""What a skipped test says of its rules, by how its reason begins."""


def _trials(asked: Sequence[str], progress: Callable[[int, int], None]) -> Iterator[Trial]:
    """Run the tests in a process of their own, and yield what comes of each."""
    with TemporaryDirectory() as folder, TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
        warnings = (part for name in _FINALISER_ERRORS for part in ("-W", f"error::pytest.{name}"))
        command = [sys.executable, "-P", "-m", "allotment.testing._check_program", *_OPTIONS, *warnings]
        command += [f"--rootdir={folder}", *asked]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=said, text=True, encoding="utf-8", cwd=folder, env=_environment()
        ) as process:
            assert process.stdout is not None
            try:
                begun = yield from _read(process.stdout, progress)
            except BaseException:
                process.kill()
                raise
        if begun is not None:
            yield replace(begun, outcome="failed", message=_ended(process.returncode))
        elif process.returncode not in _FINISHED:
            said.seek(0)
            raise UnsupportedError(f"the conformance kit could not be run:\n{said.read().strip()}")


_FINISHED: Final = (0, 1)
"""The exit codes of pytest after it ran tests: all passed, or some failed."""


def _read(lines: IO[str], progress: Callable[[int, int], None]) -> Generator[Trial, None, Trial | None]:
    """Yield what comes of each test; return the test that was never done, if the process ended in the middle of one."""
    begun, done, tests = None, 0, 0
    for line in lines:
        fact: dict[str, Any] = json.loads(line)
        if "tests" in fact:
            tests = fact["tests"]
            continue
        trial = Trial(**{**fact, "rules": tuple(fact["rules"])})
        if trial.outcome == "begun":
            begun = trial
            continue
        begun, done = None, done + 1
        progress(done, tests)
        yield trial
    return begun


def _ended(code: int) -> str:
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"the process of the tests ended in the middle of it, with {how}"


def _environment() -> dict[str, str]:
    """Return the environment of the process: what is found here, no other plugins of pytest, nobody's settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ALLOTMENT_", "PYTEST_"))}
    path = os.pathsep.join(filter(None, sys.path))
    return {**kept, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
