"""A process of its own for a measurement that changes a process for good."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[1]
TIME_LIMIT = 120


def answer_of(module: str, *arguments: str, options: tuple[str, ...] = ()) -> Any:
    """Run a module with options of Python's, and return the JSON of its last line.

    Raises
    ------
    RuntimeError
        If it failed or took more than 120 s; in one line, why.
    """
    try:
        done = subprocess.run(
            [sys.executable, *options, "-m", module, *arguments],
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT,
            check=False,
            cwd=HERE,
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"it took more than {TIME_LIMIT} s") from error
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    return json.loads(done.stdout.splitlines()[-1])
