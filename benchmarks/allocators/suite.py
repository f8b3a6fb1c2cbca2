"""The suite as a whole: choose, run, write."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.allocators import catalogue, contenders, minimalloc
from benchmarks.allocators.page import page
from benchmarks.allocators.pictures import draw
from benchmarks.allocators.run import run
from benchmarks.allocators.trial import QUICK, Effort
from benchmarks.allocators.verdict import judge
from benchmarks.report import about_this_run

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from enum import Enum

    from benchmarks.allocators.cell import Results


def add_arguments(parser: ArgumentParser) -> None:
    """Add what the suite can be told."""
    options = parser.add_argument_group("allocators")
    options.add_argument(
        "--contender",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only these ('al *', 'RMM pool'); repeatable",
    )
    options.add_argument(
        "--workload",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only these ('churn', 'trace/gpt2*'); repeatable",
    )
    options.add_argument("--quick", action="store_true", help="fewer workloads, one warm pass")
    options.add_argument("--seconds", type=float, metavar="N", help="begin no trial after that, and write the page")
    options.add_argument("--minimalloc", type=Path, metavar="DIR", help="folder with A.1048576.csv to K.1048576.csv")


def measure(arguments: Namespace) -> Path:
    """Run what was asked for and return the page."""
    if arguments.minimalloc:
        os.environ[minimalloc.VARIABLE] = str(arguments.minimalloc.resolve())
        catalogue.entries.cache_clear()
    results = run(
        contenders.select(arguments.contender),
        catalogue.select(arguments.workload, quick=arguments.quick),
        QUICK if arguments.quick else Effort(),
        arguments.seconds,
    )
    return write(results, arguments.out)


def write(results: Results, folder: Path) -> Path:
    """Write ``allocators.json``, the pictures and ``allocators.md``; return the page."""
    folder.mkdir(parents=True, exist_ok=True)
    about, verdicts = about_this_run(), judge(results)
    found = {
        "about": about,
        "verdicts": [asdict(verdict) for verdict in verdicts],
        "cells": [asdict(cell) for cell in results.cells],
    }
    (folder / "allocators.json").write_text(json.dumps(found, indent=1, default=_value) + "\n")
    path = folder / "allocators.md"
    path.write_text(page(about, results, verdicts, draw(results, folder)))
    return path


def _value(member: Enum) -> object:
    return member.value
