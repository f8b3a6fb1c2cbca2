"""A process of its own for a measurement that changes a process for good."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

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


class PipedProcess:
    """A fresh process that answers through a pipe until it gets ``None``.

    Parameters
    ----------
    serve
        What it does: a function of a module, which is called with its end of the pipe and the arguments.
    *arguments
        The arguments.
    name
        What the process is called.
    """

    def __init__(self, serve: Callable[..., None], *arguments: object, name: str | None = None) -> None:
        context = multiprocessing.get_context("spawn")  # its maker may have begun CUDA
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, *arguments), name=name)
        self._process.start()
        theirs.close()

    def close(self) -> None:
        """End the process."""
        with suppress(OSError):
            self._connection.send(None)
        self._process.join(timeout=5)
        self._process.kill()
        self._connection.close()
