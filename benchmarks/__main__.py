"""Run the benchmarks and write docs/benchmarks."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import access, bridged_tensors, bridges, caching, foundation, layers, report, two_gpus
from benchmarks.allocators import suite as allocators
from benchmarks.training import suite as training

HERE = Path(__file__).parent
SUITES = {
    "foundation": foundation,
    "access": access,
    "caching": caching,
    "layers": layers,
    "bridges": bridges,
    "tensors": bridged_tensors,
    "grants": two_gpus,
}
"""What is compared within this process, by the name of the page that tells it."""
ALLOCATORS, TRAINING = "allocators", "training"
"""The suites that run a process for each figure, and for each supplier of PyTorch's memory."""


def main() -> int:
    """Run, write, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE.parent / "docs" / "benchmarks", help="folder to write to")
    names = [*SUITES, ALLOCATORS, TRAINING]
    parser.add_argument("--only", choices=names, help="what to measure; everything if not given")
    allocators.add_arguments(parser)
    arguments = parser.parse_args()
    for name in [arguments.only] if arguments.only else names:
        if name == ALLOCATORS:
            print(allocators.measure(arguments).read_text())
        elif name == TRAINING:
            if page := training.measure(arguments.out):
                print(page.read_text())
        else:
            measure(name, arguments.out)
    return 0


def measure(name: str, folder: Path) -> None:
    """Run a suite of comparisons and write its page."""
    found = []
    try:
        for comparison in SUITES[name].comparisons():
            found.append(comparison)
            print(f"measured: {comparison.title}", file=sys.stderr, flush=True)
    finally:  # what was measured before something failed is kept
        if found:
            print(report.write(found, folder, name).read_text())
    if name == "grants" and two_gpus.are_there():
        two_gpus.write_copies(list(two_gpus.copies()), folder)


if __name__ == "__main__":
    sys.exit(main())
