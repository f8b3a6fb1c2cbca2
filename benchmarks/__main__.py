"""Run the benchmarks and write docs/benchmarks."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import access, foundation, report, two_gpus

HERE = Path(__file__).parent
SUITES = {"foundation": foundation, "access": access, "grants": two_gpus}
"""What is measured, by the name of the page that tells it."""


def main() -> int:
    """Run, write, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE.parent / "docs" / "benchmarks", help="folder to write to")
    parser.add_argument("--only", choices=SUITES, help="what to measure; everything if not given")
    arguments = parser.parse_args()
    for name in [arguments.only] if arguments.only else SUITES:
        found = []
        for comparison in SUITES[name].comparisons():
            found.append(comparison)
            print(f"measured: {comparison.title}", file=sys.stderr, flush=True)
        if found:
            print(report.write(found, arguments.out, name).read_text())
        if name == "grants" and two_gpus.are_there():
            two_gpus.write_copies(list(two_gpus.copies()), arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
