"""Run all that needs a real GPU, and write docs/verification: ``python3 dev gpu-test``."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from benchmarks.report import about_this_run

ROOT = Path(__file__).parents[2]
SUITES = {
    "core/tests/platform": "the platform, call by call",
    "core/tests/access": "who may touch what: verdicts and kernels agree",
    "core/tests/launching": "kernels of CuPy, Numba and Warp on our arrays",
    "core/tests": "arrays, capture, IPC, and exchange with CuPy and PyTorch",
    **{
        f"plugins/{folder.parent.name}": f"allocator `{folder.parent.name}`: conformance kit and its own tests"
        for folder in sorted(ROOT.glob("plugins/*/pyproject.toml"))
    },
    **{
        f"bridges/{folder.parent.name}": f"the bridge to `{folder.parent.name}`"
        for folder in sorted(ROOT.glob("bridges/*/pyproject.toml"))
    },
    "tests/integration": "several libraries in one process: one pool, handing over, returning, exiting",
    "tests": "the code blocks of the guides",
}
"""Where a test lies, and what that proves; the first that fits counts."""
FOLDERS = ("core/tests", "plugins", "bridges", "tests/guides", "tests/integration")
"""Where tests for a GPU are; the others need tools that a GPU host lacks."""


def main() -> int:
    """Run, write, and return 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "verification", help="folder to write to")
    parser.add_argument("--results", type=Path, nargs="+", help="JUnit files of parts that were run, to run none now")
    arguments, selection = parser.parse_known_args()
    if selection:
        return run_tests(selection)
    if arguments.results:
        outcomes = read_outcomes(arguments.results)
        failed = any(outcome.startswith("failed") for counts in outcomes.values() for outcome in counts)
    else:
        with tempfile.TemporaryDirectory() as folder:
            results = Path(folder, "results.xml")
            failed = bool(run_tests([f"--junitxml={results}", "-o", "junit_family=xunit1"]))
            outcomes = read_outcomes([results])
    demo = run_demo()
    write(arguments.out, outcomes, demo, parts=len(arguments.results or [1]))
    return int(failed or demo["exit_code"] != 0)


def run_tests(arguments: list[str]) -> int:
    """Run the tests that are marked ``gpu`` and return pytest's exit code."""
    folders = [folder for folder in FOLDERS if (ROOT / folder).exists()]
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", *arguments, *folders]
    if find_spec("xdist"):
        # A test that takes its process down is then one failure and not the end.
        command += ["-n", "1", "-p", "no:benchmark"]
    return subprocess.call(command, cwd=ROOT)


def run_demo() -> dict[str, object]:
    """Run the demo in an empty folder and return its answer."""
    with tempfile.TemporaryDirectory() as folder:
        # The device of the machine, whatever configuration lies about.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ALLOTMENT_")}
        environment["PYTHONPATH"] = os.pathsep.join(str(Path(path).resolve()) for path in sys.path if path)
        command = [sys.executable, "-m", "allotment", "demo", "--json"]
        ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode:
        print(ran.stdout, ran.stderr, sep="\n", file=sys.stderr)
        return {"exit_code": ran.returncode}
    return {"exit_code": 0, **json.loads(ran.stdout)}


def read_outcomes(results: list[Path]) -> dict[str, Counter[str]]:
    """Return how many tests of each suite passed, failed or were skipped, with the reasons of the skips."""
    outcomes: dict[str, Counter[str]] = {suite: Counter() for suite in SUITES}
    for case in (case for file in results for case in ET.parse(file).iter("testcase")):
        place = case.get("classname", "").replace(".", "/")  # not the file: that of a rule is the kit's own
        suite = next((suite for suite in SUITES if place.startswith(suite)), "tests")
        outcomes[suite][outcome_of(case, place)] += 1
    return outcomes


def outcome_of(case: ET.Element, place: str) -> str:
    """Return ``passed``, ``failed: name``, or ``skipped: reason``."""
    if case.find("failure") is not None or case.find("error") is not None:
        return f"failed: {place}: {case.get('name')}"
    skipped = case.find("skipped")
    return "passed" if skipped is None else f"skipped: {skipped.get('message', '')}"


def write(folder: Path, outcomes: dict[str, Counter[str]], demo: dict[str, object], parts: int) -> None:
    """Write the outcome as JSON and as a page, named for the number of devices."""
    about = about_this_run()
    name = f"{len(about['devices'])}-gpu"
    folder.mkdir(parents=True, exist_ok=True)
    found = {"about": about, "tests": {suite: dict(counts) for suite, counts in outcomes.items()}, "demo": demo}
    (folder / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    page = folder / f"{name}.md"
    page.write_text(page_of(about, outcomes, demo, parts))
    print(page.read_text())


def page_of(about: dict[str, object], outcomes: dict[str, Counter[str]], demo: dict[str, object], parts: int) -> str:
    """Return the page."""
    devices, packages = about["devices"], about["packages"]
    assert isinstance(devices, list)
    assert isinstance(packages, dict)
    lines = [
        f"# On {' and '.join(devices)}",
        "",
        f"Written by `python3 dev gpu-test` on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        + (f", of tests that ran in {parts} parts." if parts > 1 else "."),
        "",
        f"CUDA runtime {about['cuda_runtime']}, driver {about['cuda_driver']}; Python {about['python']}; "
        + ", ".join(f"{package} {version}" for package, version in packages.items())
        + ".",
        "",
        "| tests | passed | failed | skipped |",
        "|---|---:|---:|---:|",
        *(suite_line(SUITES[suite], counts) for suite, counts in outcomes.items() if counts),
        "",
        *reason_lines(outcomes, "failed"),
        *reason_lines(outcomes, "skipped"),
        "",
        "## The demo",
        "",
        *demo_lines(demo),
        "",
    ]
    return "\n".join(lines)


def demo_lines(demo: dict[str, Any]) -> list[str]:
    """Return the demo's table: what each allocator passed, and how it replayed the trace."""
    if demo["exit_code"]:
        return [f"It failed with exit code {demo['exit_code']}."]
    return [
        "| allocator | device | memory | checks passed | trace replayed in | peak requested | peak reserved |",
        "|---|---|---|---:|---:|---:|---:|",
        *(
            f"| {row['allocator']} | {row['device']} | {row['memory_kind']} | {row['checks_passed']} of {row['checks']}"
            f" | {row['seconds']:.2f} s | {row['peak_requested']:,} | {row['peak_reserved']:,} |"
            for row in demo["allocators"]
        ),
    ]


def suite_line(title: str, counts: Counter[str]) -> str:
    """Return the row of a suite."""
    failed, skipped = (
        sum(number for outcome, number in counts.items() if outcome.startswith(kind)) for kind in ("failed", "skipped")
    )
    return f"| {title} | {counts['passed']} | {failed} | {skipped} |"


def reason_lines(outcomes: dict[str, Counter[str]], kind: str) -> list[str]:
    """Return which tests failed, or why tests were skipped, each once."""
    reasons: Counter[str] = Counter()
    for counts in outcomes.values():
        for outcome, number in counts.items():
            if outcome.startswith(f"{kind}: "):
                reasons[outcome.removeprefix(f"{kind}: ")] += number
    return [f"- {number} {kind}: {reason}" for reason, number in reasons.most_common()]


if __name__ == "__main__":
    sys.exit(main())
