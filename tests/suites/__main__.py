"""Run the suites with and without the bridges and write a page: ``python3 -m tests.suites --out docs/verification``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

from tests.suites import of_cupy, of_numba, of_warp, page
from tests.suites.comparison import Comparison, compare
from tests.suites.shard import Results, Shard
from tests.suites.suite import ROOT, Suite, Way

SUITES = {module.SUITE.library: module.SUITE for module in (of_numba, of_cupy, of_warp)}
WITHOUT = Way()
MOST_AGAIN = 300
"""How many tests are run again for a comparison, at most."""


def main() -> int:
    """Run, write, print, and return 1 if a difference is not explained."""
    arguments = parse()
    begin = time.monotonic()
    scratch = arguments.scratch or Path(mkdtemp(prefix="suites-"))
    print(f"journals and logs are in {scratch}", file=sys.stderr)
    suites = [SUITES[name] for name in arguments.only or SUITES]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        found = Run(pool, scratch, arguments.limit, begin + 60 * arguments.minutes).all(suites)
    comparisons = [each for suite in suites for each in found[suite.library]]
    written = page.write(arguments.out, comparisons, time.monotonic() - begin)
    print(written.read_text())
    return int(any(each.unexplained or each.problems for each in comparisons))


def parse() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.suites", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "verification", help="folder to write to")
    parser.add_argument("--only", action="append", choices=list(SUITES), help="the suite to run; all if not given")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--limit", type=float, default=330, help="seconds that a process may take")
    parser.add_argument("--minutes", type=float, default=9, help="minutes after which no test is run any more")
    parser.add_argument("--scratch", type=Path, help="folder for journals and logs; a new one if not given")
    return parser.parse_args()


class Run:
    """One run of several suites, spread over processes.

    Parameters
    ----------
    pool
        What runs them.
    scratch
        A folder for all that they write.
    limit
        Seconds that a process may take.
    deadline
        When all must have ended, by the monotonic clock.
    """

    def __init__(self, pool: ThreadPoolExecutor, scratch: Path, limit: float, deadline: float) -> None:
        self._pool, self._scratch, self._limit, self._deadline = pool, scratch, limit, deadline
        (scratch / "home").mkdir(parents=True, exist_ok=True)

    def all(self, suites: list[Suite]) -> dict[str, list[Comparison]]:
        """Run all, and again what ended otherwise with a bridge; return the comparisons by library."""
        jobs = {
            (suite.library, way.name): self._begin(suite, way) for suite in suites for way in (WITHOUT, *suite.ways)
        }
        results = {key: _together(futures) for key, futures in jobs.items()}
        compared = {
            suite.library: [
                compare(suite, way, results[suite.library, WITHOUT.name], results[suite.library, way.name])
                for way in suite.ways
            ]
            for suite in suites
        }
        again = [(each, self._begin_again(each)) for found in compared.values() for each in found]
        for comparison, futures in again:
            _judge(comparison, {way: future.result() for way, future in futures.items()})
        return compared

    def _begin(self, suite: Suite, way: Way) -> list[Future[Results]]:
        folder = suite.folder(self._scratch)
        shards = [
            Shard(
                suite=suite,
                way=way,
                files=files,
                folder=folder,
                scratch=self._scratch / suite.library / way.name / str(number),
                shared=self._scratch,
                turn=turn,
            )
            for number, (files, turn) in enumerate(suite.parts(folder, way))
        ]
        return [self._pool.submit(self._run, shard) for shard in shards]

    def _run(self, shard: Shard) -> Results:
        return shard.run(min(self._limit, self._deadline - time.monotonic()))

    def _begin_again(self, comparison: Comparison) -> dict[str, Future[Results]]:
        """Run the tests of unexplained differences alone, in both ways."""
        tests = tuple(each.test for each in comparison.unexplained)[:MOST_AGAIN]
        if not tests:
            return {}
        suite = comparison.suite
        folder = suite.folder(self._scratch)
        files = tuple(sorted({folder / test.split("::", 1)[0] for test in tests}))
        futures = {}
        for way in (WITHOUT, comparison.way):
            scratch = self._scratch / suite.library / f"{comparison.way.name}-again" / way.name
            shard = Shard(
                suite=suite, way=way, files=files, folder=folder, scratch=scratch, shared=self._scratch, only=tests
            )
            futures[way.name] = self._pool.submit(self._run, shard)
        return futures


def _together(futures: list[Future[Results]]) -> Results:
    found = Results()
    for future in futures:
        found.take(future.result())
    return found


def _judge(comparison: Comparison, again: dict[str, Results]) -> None:
    """Note which differences were there again."""
    if not again:
        return
    without, with_bridge = again[WITHOUT.name].tests, again[comparison.way.name].tests
    for place, difference in enumerate(comparison.differences):
        first, second = without.get(difference.test), with_bridge.get(difference.test)
        if difference.reason is None and first is not None and second is not None:
            comparison.differences[place] = replace(difference, is_repeated=first.outcome != second.outcome)


if __name__ == "__main__":
    sys.exit(main())
