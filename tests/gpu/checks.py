"""Check every installed allocator as its users can, with ``allotment check``: ``python3 -m tests.gpu.checks``."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.report import about_this_run, in_words, page_with_table

import allotment as al

ROOT = Path(__file__).parents[2]
STATUSES = ("held", "not applicable", "exempt", "not checked", "failed")
INTRODUCTION = (
    "What `allotment check NAME` says of each allocator, on simulated machines and on the GPU: how many rules of the "
    "[contract](../reference/allocator-contract.md) hold, and of the others why they were not checked. Written by "
    "`python3 -m tests.gpu.checks`."
)
COLUMNS = ("allocator", "distribution", *STATUSES)


def main() -> int:
    """Check, write, print, and return 1 if a rule is broken or an allocator was not checked."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.checks", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "verification", help="folder to write to")
    parser.add_argument("--jobs", type=int, default=1, help="allocators at a time")
    parser.add_argument("names", nargs="*", help="the allocators; all that are installed if not given")
    arguments = parser.parse_args()
    names = arguments.names or [record.name for record in al.list_allocators()]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        reports = list(pool.map(check, names))
    about = about_this_run()
    arguments.out.mkdir(parents=True, exist_ok=True)
    found = {"about": about, "allocators": reports}
    (arguments.out / "checks.json").write_text(json.dumps(found, indent=1) + "\n")
    page = arguments.out / "checks.md"
    page.write_text(page_of(reports, in_words(about)))
    print(page.read_text())
    return int(any(not report["checked"] or counts_of(report)["failed"] for report in reports))


def check(name: str) -> dict[str, Any]:
    """Return what ``allotment check`` says of an allocator."""
    command = [sys.executable, "-m", "allotment", "check", name, "--json"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ALLOTMENT_")}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    print(f"checked {name}: exit code {ran.returncode}", file=sys.stderr, flush=True)
    try:
        report: dict[str, Any] = json.loads(ran.stdout)
    except ValueError:
        return {"allocator": name, "checked": False, "devices": ran.stderr.strip()[-500:], "rules": []}
    return report


def counts_of(report: dict[str, Any]) -> Counter[str]:
    """Return how many rules have which status."""
    return Counter(rule["status"] for rule in report["rules"])


def page_of(reports: list[dict[str, Any]], where: str) -> str:
    """Return the page."""
    rest = (line for report in reports for line in section_of(report))
    return page_with_table("The allocators, rule by rule", INTRODUCTION, where, COLUMNS, map(row_of, reports), rest)


def row_of(report: dict[str, Any]) -> str:
    """Return an allocator's row of the table."""
    counts = counts_of(report)
    return f"| `{report['allocator']}` | {report.get('distribution') or ''} | " + (
        " | ".join(str(counts[status]) for status in STATUSES) + " |"
    )


def section_of(report: dict[str, Any]) -> list[str]:
    """Return the rules of an allocator that are not held, by their reason."""
    lines = [f"## {report['allocator']}", ""]
    if report["devices"]:
        lines += [f"Not tried on real devices: {report['devices']}.", ""]
    by_reason: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for rule in report["rules"]:
        if rule["status"] != "held":
            by_reason[rule["status"], "; ".join(rule["reasons"])].append(rule["rule"])
        for failure in rule["failures"]:
            by_reason["failed", f"{failure['test']} on {failure['platform']}"].append(rule["rule"])
    lines += [f"- {', '.join(rules)}: {status}. {reason}" for (status, reason), rules in by_reason.items()]
    if not by_reason and report["checked"]:
        lines.append("Every rule is held.")
    return [*lines, ""]


if __name__ == "__main__":
    sys.exit(main())
