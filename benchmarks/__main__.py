"""Run the benchmarks and write docs/benchmarks."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import foundation, report

HERE = Path(__file__).parent


def main() -> int:
    """Run, write, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE.parent / "docs" / "benchmarks", help="folder to write to")
    arguments = parser.parse_args()
    found = []
    for comparison in foundation.comparisons():
        found.append(comparison)
        print(f"measured: {comparison.title}", file=sys.stderr, flush=True)
    page = report.write(found, arguments.out, "foundation")
    print(page.read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
