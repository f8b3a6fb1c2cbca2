"""A process that has imported what some contenders need, and forks a child for each trial before CUDA is begun."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import warnings
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from benchmarks.allocators.catalogue import find
from benchmarks.allocators.cell import Cell, Outcome
from benchmarks.process import PipedProcess

if TYPE_CHECKING:
    from collections.abc import Iterable
    from multiprocessing.connection import Connection

    from benchmarks.allocators.contenders import Family
    from benchmarks.allocators.trial import Trial

NOT_INITIALIZED = 3
"""What the driver answers before ``cuInit``."""


class FamilyProcess(PipedProcess):
    """The process as its maker sees it.

    Parameters
    ----------
    family
        What it imports.
    workloads
        The workloads that it makes ready, so that its children have them.
    """

    def __init__(self, family: Family, workloads: Iterable[str]) -> None:
        super().__init__(serve, family, tuple(workloads), name=family.name)

    def wait_until_ready(self) -> str:
        """Wait until all is imported, and return what is amiss; nothing if its children can be forked."""
        with suppress(EOFError):  # the first trial will tell
            if not self._connection.recv():
                return (
                    f"importing for family {self._process.name!r} began CUDA: its children are spawned, which is slow"
                )
        return ""

    def run(self, trial: Trial) -> Cell:
        """Run a trial and return its cell, whatever happens to its process."""
        try:
            self._connection.send(trial)
            found = self._connection.recv()
        except (EOFError, OSError):
            return trial.ended(Outcome.FAILED, f"the process of family {self._process.name!r} is gone")
        assert isinstance(found, Cell)
        return found


def serve(connection: Connection, family: Family, workloads: tuple[str, ...]) -> None:
    """Run trials, one at a time, until told to stop."""
    gc.disable()  # it would go through the recorded traces again and again
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
    os.environ.update(family.environment)
    for library in family.libraries:
        with suppress(ImportError):
            import_module(library)
    for name in workloads:
        with suppress(Exception):  # the trial will say what is wrong with it
            find(name)
    gc.freeze()
    connection.send(can_fork())
    with suppress(EOFError):
        while (trial := connection.recv()) is not None:
            connection.send(run_apart(trial))


def run_apart(trial: Trial) -> Cell:
    """Run a trial in a child of this process, and end it when its time is over."""
    context: Any = multiprocessing.get_context("fork" if can_fork() else "spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=answer, args=(sender, trial))
    child.start()
    sender.close()
    try:
        if receiver.poll(trial.effort.timeout):
            found = receiver.recv()
            assert isinstance(found, Cell)
            return found
        return trial.ended(Outcome.FAILED, f"no answer in {trial.effort.timeout:g} s")
    except EOFError:
        child.join()
        return trial.ended(Outcome.FAILED, f"the process ended with exit code {child.exitcode}")
    finally:
        child.kill()
        child.join()
        receiver.close()


def answer(connection: Connection, trial: Trial) -> None:
    """Run a trial in this process and send its cell."""
    warnings.simplefilter("ignore")
    connection.send(trial.run())


def can_fork() -> bool:
    """Tell whether a child of this process could use CUDA: it cannot once the driver was initialised here."""
    if "fork" not in multiprocessing.get_all_start_methods():
        return False
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return True  # no driver, no state of it
    return bool(driver.cuCtxGetCurrent(ctypes.byref(ctypes.c_void_p())) == NOT_INITIALIZED)
