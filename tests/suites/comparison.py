"""What is different with a bridge, and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.suites.shard import Result, Results
    from tests.suites.suite import Suite, Way

FAILED = {"failed", "error", "crashed"}
OUTCOMES = ("passed", "failed", "error", "crashed", "killed", "skipped", "xfailed", "xpassed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A test that ends otherwise with the bridge.

    Parameters
    ----------
    test
        Its name.
    without, with_bridge
        What became of it.
    why
        What pytest said, of the worse of the two.
    reason
        Why that is no fault; ``None`` if it is not known.
    is_repeated
        Whether it was so again when the test was run alone; ``None`` if it was not tried.
    """

    test: str
    without: str
    with_bridge: str
    why: str
    reason: str | None
    is_repeated: bool | None = None


@dataclass(slots=True, kw_only=True)
class Comparison:
    """A suite without Allotment, and with the bridge and one allocator.

    Parameters
    ----------
    suite, way
        What was run, and how.
    without, with_bridge
        How many tests ended how, of those that both ran.
    differences
        The tests that ended otherwise.
    accounts
        What was drawn from Allotment.
    failures
        What pytest said, without Allotment, of the tests that failed in both ways, and how often.
    """

    suite: Suite
    way: Way
    without: Counter[str]
    with_bridge: Counter[str]
    differences: list[Difference]
    accounts: dict[str, dict[str, int]]
    failures: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    @property
    def unexplained(self) -> list[Difference]:
        """The differences without a reason that were there again, or not tried again."""
        return [each for each in self.differences if each.reason is None and each.is_repeated is not False]


def compare(suite: Suite, way: Way, without: Results, with_bridge: Results) -> Comparison:
    """Compare two runs of a suite, over the tests of the second one's files."""
    assert way.allocator is not None
    files = {_file(test) for test in with_bridge.tests}
    expected = {test: result for test, result in without.tests.items() if not way.files or _file(test) in files}
    once = len(expected.keys() ^ with_bridge.tests.keys())
    incomplete = [f"{once} tests were run in one way only"] if once else []
    return Comparison(
        suite=suite,
        way=way,
        without=Counter(result.outcome for result in expected.values()),
        with_bridge=Counter(result.outcome for result in with_bridge.tests.values()),
        differences=_differences(suite, way.allocator, expected, with_bridge.tests),
        accounts=with_bridge.accounts,
        failures=_failures(expected, with_bridge.tests),
        problems=[*without.problems, *with_bridge.problems, *incomplete],
    )


def _differences(
    suite: Suite, allocator: str, without: Mapping[str, Result], with_bridge: Mapping[str, Result]
) -> list[Difference]:
    found = []
    for test in sorted(without.keys() & with_bridge.keys()):
        before, after = without[test], with_bridge[test]
        if before.outcome != after.outcome:
            reason = suite.reason(test, after.outcome, allocator)
            difference = Difference(
                test=test,
                without=before.outcome,
                with_bridge=after.outcome,
                why=after.why or before.why,
                reason=reason,
            )
            found.append(difference)
    return found


def _failures(without: Mapping[str, Result], with_bridge: Mapping[str, Result]) -> Counter[str]:
    both = (test for test, result in with_bridge.items() if {result.outcome, _outcome(without, test)} <= FAILED)
    return Counter(without[test].why.split(" / ")[0] for test in both)


def _outcome(results: Mapping[str, Result], test: str) -> str:
    return results[test].outcome if test in results else ""


def _file(test: str) -> str:
    return test.split("::", 1)[0]
