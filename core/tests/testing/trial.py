"""The whole kit on one allocator, without a session of pytest: which rules are broken, and by which tests.

It runs what pytest would run where there is no real device, in the worlds that the kit's fixtures make.
"""

import inspect
import sys
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import pytest
from hypothesis import Phase, settings
from right_allocators import RIGHT
from wrong_allocators import STUCK, WRONG

from allotment import registry
from allotment.platform.simulated import _platform
from allotment.registry import _hooks
from allotment.testing import AllocatorConformance, _child_process, _stateful, _threads
from allotment.testing._fixtures import platform_in_force
from allotment.testing._rule import broken_rule, check_of
from allotment.testing._watchdog import watchdog

_FEW_SEQUENCES = 2
_FEW_CALLS = 50
_METADATA = {
    "METADATA": "Metadata-Version: 2.4\nName: wrong\nVersion: 1\n",
    "entry_points.txt": "[allotment.allocators]\nchooses-at-import = wrong_when_installed:ChoosesAPlatformAtImport\n",
}


@dataclass(frozen=True, slots=True)
class Case:
    """An allocator that the kit is tried on.

    Parameters
    ----------
    name
        What it is called here, and what it is chosen by.
    rules
        The rules that it breaks.
    allocator
        Its class; `None` if it is installed.
    deadline
        The seconds after which a thread counts as stuck.
    """

    name: str
    rules: frozenset
    allocator: type | None
    deadline: float = 20.0

    @property
    def fault(self):
        """What its class says is wrong with it."""
        return inspect.getdoc(self.allocator or registry.Registry().get(self.name).factory)

    @property
    def suite(self):
        """The kit as a class of tests of it."""
        adopted = {
            "allocator_name": self.name.lower(),
            "allocator_factory": self.allocator,
            "deadline": self.deadline,
            "examples": _FEW_SEQUENCES,
        }
        return type("TestIt", (AllocatorConformance,), {**adopted, "__module__": __name__})


RIGHT_CASES = [Case(allocator.__name__, frozenset(), allocator) for allocator in RIGHT]
WRONG_CASES = [
    *(
        Case(allocator.__name__, frozenset(rules), allocator, 0.5 if allocator in STUCK else 20.0)
        for allocator, rules in WRONG.items()
    ),
    Case("chooses-at-import", frozenset({"P5"}), None),
]


@dataclass(frozen=True, slots=True)
class Failure:
    """A test that failed.

    Parameters
    ----------
    rule
        The rule that is broken.
    test
        The name of the test.
    platform
        The machine it ran on; `None` for a test that needs none.
    error
        What it raised.
    """

    rule: str
    test: str
    platform: str | None
    error: BaseException


@contextmanager
def installed():
    """Install what is wrong only if it is installed."""
    with TemporaryDirectory() as folder:
        metadata = Path(folder) / "wrong-1.dist-info"
        metadata.mkdir()
        for name, text in _METADATA.items():
            (metadata / name).write_text(text)
        sys.path.insert(0, folder)
        try:
            yield
        finally:
            sys.path.remove(folder)


def failures(case, processes):
    """Run every test of the kit on an allocator; return the failures.

    Parameters
    ----------
    case
        The allocator.
    processes
        Where acts run that need a process of their own.
    """
    suite = case.suite
    with mock.patch.object(_child_process, "end_of", processes.end_of), _in_less_time():
        return [failure for test in _tests(suite) for failure in _failures_of(suite, test)]


@contextmanager
def _in_less_time():
    """Try fewer calls, and read once what says which machines and plugins there are."""
    with (
        mock.patch.object(_hooks, "discover", _discover),
        mock.patch.object(_hooks, "running_version", _running_version),
        mock.patch.object(_platform, "load_profile", _load_profile),
        mock.patch.object(_threads, "_CALLS", _FEW_CALLS),
        mock.patch.object(_stateful, "settings", partial(settings, phases=[Phase.generate], derandomize=True)),
    ):
        yield


_discover, _running_version = cache(_hooks.discover), cache(_hooks.running_version)
_load_profile = cache(_platform.load_profile)


def _tests(suite):
    """Return the tests of a suite, topic by topic in the order of their source."""
    found = [getattr(suite, name) for name in dir(suite) if name.startswith("test_")]
    return sorted(found, key=lambda test: (test.__module__, test.__wrapped__.__code__.co_firstlineno))


def _failures_of(suite, test):
    check = check_of(test)
    wanted = inspect.signature(test).parameters.keys()
    machines = suite.machines(check) if {"platform", "plugin", "subject"} & wanted else (None,)
    for machine, given in product(machines, _parameters(test)):
        try:
            with watchdog(3 * suite.deadline), _arguments(suite, check, machine, wanted) as arguments:
                error = _error_of(test, suite(), arguments | given)
        except pytest.skip.Exception:
            continue
        except (Exception, pytest.fail.Exception) as failed:  # before or after the test
            error = failed
        if error is not None:
            yield Failure(broken_rule(error) or check.rules[0], test.__name__, machine, error)


def _error_of(test, suite, arguments):
    """Return what a test raises: its end must come before what is around it ends."""
    try:
        test(suite, **arguments)
    except (pytest.skip.Exception, KeyboardInterrupt):
        return None
    except BaseException as error:
        return error
    return None


@contextmanager
def _arguments(suite, check, machine, wanted):
    """Make what the kit's fixtures make, as far as a test wants it."""
    with platform_in_force(machine, check) if machine else nullcontext() as platform:
        plugin = suite.find_plugin() if {"plugin", "subject"} & wanted else None
        with suite.subject_on(plugin, platform) if "subject" in wanted else nullcontext() as subject:
            found = {"platform": platform, "plugin": plugin, "subject": subject}
            yield {name: value for name, value in found.items() if name in wanted}


def _parameters(test):
    """Yield what the marks of a test give to it."""
    marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
    for values in product(*(mark.args[1] for mark in marks)):
        yield {mark.args[0]: value for mark, value in zip(marks, values, strict=True)}
