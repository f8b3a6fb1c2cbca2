"""Scripts in processes of their own, several at a time: a library chooses its allocator once a process."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest

from .libraries import missing

ROOT = Path(__file__).parents[2]
TIME_LIMIT = 180
"""Seconds that a script may take; four large libraries are imported in most."""
AT_ONCE = max(1, min(8, (os.cpu_count() or 1) // 2))


@dataclass(frozen=True)
class Outcome:
    """What became of a script."""

    code: int | None
    """The exit code; ``None`` if it had to be killed."""
    lines: list[str]
    errors: str


@pytest.fixture(scope="session")
def all_libraries():
    """Skip where a library is not installed."""
    if lacking := missing():
        pytest.skip(f"not installed: {', '.join(lacking)}")


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """A folder in place of the user's, which keeps the kernels that the libraries compile."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def run(all_libraries, home):
    """Return a function that runs a script and returns what became of it."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ALLOTMENT_", "NUMBA_"))}
    clean |= {"HOME": str(home), "XDG_CONFIG_HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    clean["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])

    def run(script, **environment):
        try:
            done = subprocess.run(
                [sys.executable, "-c", dedent(script)],
                capture_output=True,
                text=True,
                timeout=TIME_LIMIT,
                check=False,
                cwd=home,
                env=clean | environment,
            )
        except subprocess.TimeoutExpired as expired:
            return Outcome(None, [], f"killed after {TIME_LIMIT} s: {expired.stderr!r}")
        return Outcome(done.returncode, done.stdout.splitlines(), done.stderr)

    return run


@pytest.fixture(scope="session")
def result_of(run):
    """Return a function that runs a script which must end well; return its last line."""

    def result(script, **environment):
        outcome = run(script, **environment)
        assert outcome.code == 0, outcome.errors
        return outcome.lines[-1]

    return result


@pytest.fixture(scope="module")
def run_all(run):
    """Return a function that runs scripts by name, several at a time, and returns what gives the outcome of each.

    None of them outlives the module: the next one may measure what is free of the device.
    """
    executor = ThreadPoolExecutor(AT_ONCE)

    def begin(scripts):
        futures = {name: executor.submit(run, script) for name, script in scripts.items()}
        return lambda name: futures[name].result()

    yield begin
    executor.shutdown(wait=True, cancel_futures=True)
