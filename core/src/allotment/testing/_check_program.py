"""Runs the conformance kit on an installed allocator, in a process of its own, and tells its parent what came of it.

Run as a module, with the options for pytest. Standard output holds one JSON document a line: first how many tests there
are, then each test's name when it begins, then what came of it. Whatever else is printed goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

import pytest

from allotment.testing._rule import check_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Told:
    """A plugin of pytest that writes down what comes of each test.

    Parameters
    ----------
    out
        Where to.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._phases: list[pytest.TestReport] = []

    def _tell(self, fact: Mapping[str, Any]) -> None:
        self._out.write(json.dumps(fact) + "\n")
        self._out.flush()  # the next test may end the process

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Tell how many tests there are."""
        self._tell({"tests": len(session.items)})

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Function) -> Iterator[None]:
        """Tell that a test begins, and what came of it."""
        check = check_of(item.function)
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        about = {
            "test": item.originalname,
            "platform": parameters.get("platform"),
            "rules": [] if check is None else check.rules,
        }
        self._tell({**about, "outcome": "begun"})
        self._phases.clear()
        result = yield
        self._tell({**about, **_outcome(self._phases), "seconds": sum(phase.duration for phase in self._phases)})
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take note of one phase of the test that runs."""
        self._phases.append(report)


def _outcome(phases: list[pytest.TestReport]) -> dict[str, str]:
    """Return the worst that came of a test's phases, and why."""
    for phase in phases:
        if phase.failed:
            crash = getattr(phase.longrepr, "reprcrash", None)
            message = phase.longreprtext if crash is None else crash.message
            return {"outcome": "failed", "message": message, "traceback": phase.longreprtext}
    for phase in phases:
        if phase.skipped:
            reason = phase.longrepr[2] if isinstance(phase.longrepr, tuple) else phase.longreprtext
            return {"outcome": "skipped", "message": reason.removeprefix("Skipped: "), "traceback": ""}
    return {"outcome": "passed", "message": "", "traceback": ""}


if __name__ == "__main__":
    told = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.exit(pytest.main(sys.argv[1:], plugins=[Told(told)]))
