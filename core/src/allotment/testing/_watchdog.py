"""Work that must come to an end."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from threading import Thread, current_thread, main_thread
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@contextmanager
def watchdog(deadline: float) -> Iterator[None]:
    """Fail what the main thread does in a ``with`` block if it is stuck, as in a lock that it holds itself.

    It needs the timer of a POSIX system, and leaves one that somebody else has set alone.

    Parameters
    ----------
    deadline
        The seconds after which it counts as stuck. It only bounds a failing test.
    """

    def bark(*_: object) -> None:
        pytest.fail(f"stuck: it did not come to an end in {deadline:g} s")

    if not _has_free_timer():
        yield
        return
    before = signal.signal(signal.SIGALRM, bark)
    signal.setitimer(signal.ITIMER_REAL, deadline, deadline)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _has_free_timer() -> bool:
    if not hasattr(signal, "setitimer") or current_thread() is not main_thread():
        return False
    return not any(signal.getitimer(signal.ITIMER_REAL))


def finish(works: Sequence[Callable[[], object]], deadline: float) -> None:
    """Do each work in a thread of its own, and wait for all.

    Parameters
    ----------
    works
        What to do.
    deadline
        The seconds after which a thread counts as stuck. It only bounds a failing test.

    Raises
    ------
    BaseException
        What the first of them raised; the test fails if one is stuck.
    """
    raised: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    threads = [Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(deadline)
    if raised:
        raise raised[0]
    if any(thread.is_alive() for thread in threads):
        pytest.fail(f"a thread is stuck: it did not come to an end in {deadline:g} s")
