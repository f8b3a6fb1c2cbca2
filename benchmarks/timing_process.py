"""A process of its own for calls of which a process can make one kind only; it times them when it is its turn."""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.measurement import time_loop
from benchmarks.process import TIME_LIMIT, PipedProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from multiprocessing.connection import Connection


class TimingProcess(PipedProcess):
    """The process as its maker sees it. It starts at once, and is idle between the rounds.

    Parameters
    ----------
    prepare
        A function of a module: it is called there and returns the calls, each by a name.
    *arguments
        What it is called with.
    """

    def __init__(self, prepare: Callable[..., Mapping[str, Callable[[], object]]], *arguments: str) -> None:
        super().__init__(serve, prepare, arguments)

    def wait_until_ready(self) -> None:
        """Wait until the calls are prepared.

        Raises
        ------
        RuntimeError
            If they could not be, or not within 120 s; in one line, why.
        """
        self._answer()

    def time(self, name: str, times: int) -> int:
        """Return the nanoseconds that ``times`` calls take there.

        Raises
        ------
        RuntimeError
            If a call failed, or the process is gone.
        """
        self._connection.send((name, times))
        return int(self._answer())

    def _answer(self) -> Any:
        if not self._connection.poll(TIME_LIMIT):
            self._process.kill()
            raise RuntimeError(f"it took more than {TIME_LIMIT} s")
        try:
            problem, answer = self._connection.recv()
        except EOFError:
            self._process.join()
            raise RuntimeError(f"its process ended with exit code {self._process.exitcode}") from None
        if problem:
            raise RuntimeError(problem)
        return answer


@contextmanager
def started(
    prepare: Callable[..., Mapping[str, Callable[[], object]]],
    contenders: Mapping[str, tuple[str, ...]],
    missing: dict[str, str],
) -> Iterator[dict[str, TimingProcess]]:
    """Start a process for each contender, all at once, and end them after the ``with`` block.

    Parameters
    ----------
    prepare
        See `TimingProcess`.
    contenders
        What it is called with, by contender.
    missing
        Is told of those that cannot run, and why.
    """
    processes = {name: TimingProcess(prepare, *arguments) for name, arguments in contenders.items()}
    try:
        for name, process in processes.items():
            try:
                process.wait_until_ready()
            except RuntimeError as error:
                missing[name] = str(error)
        yield {name: process for name, process in processes.items() if name not in missing}
    finally:
        for process in processes.values():
            process.close()


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A contender that is timed in another process.

    Parameters
    ----------
    process
        The process.
    name
        What the call is named there.
    """

    process: TimingProcess
    name: str

    def time(self, times: int) -> int:
        """Return the nanoseconds that ``times`` calls take."""
        return self.process.time(self.name, times)


def serve(
    connection: Connection, prepare: Callable[..., Mapping[str, Callable[[], object]]], arguments: tuple[str, ...]
) -> None:
    """Prepare the calls, and time them until told to stop."""
    sys.stdout = sys.stderr  # libraries greet
    try:
        calls = prepare(*arguments)
        gc.collect()
        gc.disable()
        connection.send(("", None))
        while (asked := connection.recv()) is not None:
            name, times = asked
            connection.send(("", time_loop(calls[name], times)))
    except EOFError:
        return
    except Exception as error:  # noqa: BLE001 - its maker is told
        connection.send((" ".join(f"{type(error).__name__}: {error}".split()), None))
