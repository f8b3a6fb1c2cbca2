"""The way out of a shortage of memory, rung by rung."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from threading import local
from typing import TYPE_CHECKING, ClassVar

from allotment.layers.capture_status import is_captured
from allotment.layers.layer import MemoryShortageError, Place, is_shortage
from allotment.layers.observe import OUT_OF_MEMORY, TOLD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from allotment.device import Device
    from allotment.layers.accounting import AccountedAllocator
    from allotment.layers.layer import Calls
    from allotment.stream import Stream


class Rung(Enum):
    """What can be done to get memory."""

    OBSERVERS = TOLD
    """Observers are told, who may drop what they hold (``allotment_on_out_of_memory``)."""
    TRIM = "trim"
    """The allocator gives idle memory back, so that it can be cut anew."""
    NEIGHBOURS = "neighbours"
    """The other allocators of the device do."""
    GARBAGE = "garbage"
    """Python collects what is held in circles only."""
    STREAMS = "streams"
    """All work of the device is waited for, and what was freed in the order of it is given back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderOptions:
    """Options of the layer ``ladder``.

    Parameters
    ----------
    rungs
        What is tried, in this order. After each the request is made once more.
    """

    rungs: tuple[Rung, ...] = tuple(Rung)

    def __post_init__(self) -> None:
        if len(set(self.rungs)) < len(self.rungs):
            raise ValueError("a rung is there twice")


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderFigures:
    """What came of the requests that could not be met at once.

    Parameters
    ----------
    helped
        How many were met after each rung.
    in_vain
        How many were not met.
    """

    helped: Mapping[Rung, int]
    in_vain: int


class Ladder:
    """Tries again what failed for want of memory, whether a limit or the driver refused it.

    A request climbs each rung once at most, and none while a graph is captured, which most rungs would end. What a rung
    allocates itself does not climb again.

    Parameters
    ----------
    options
        See `LadderOptions`.
    device
        The device of the account.
    """

    name: ClassVar = "ladder"
    Options: ClassVar = LadderOptions
    place: ClassVar = Place.LADDER

    def __init__(self, options: LadderOptions, device: Device) -> None:
        self.rungs, self._device = options.rungs, device
        self._helped = dict.fromkeys(options.rungs, 0)
        self._in_vain = 0

    @property
    def figures(self) -> LadderFigures:
        """What came of the shortages so far."""
        return LadderFigures(helped=dict(self._helped), in_vain=self._in_vain)

    def wrap(self, calls: Calls, account: AccountedAllocator) -> Calls:
        """Return the calls with another attempt after each rung."""
        inner = calls.allocate

        def allocate(size: int, *stream: Stream) -> int:
            try:
                return inner(size, *stream)
            except Exception as error:
                if not self._may_climb(error, *stream):
                    raise
                return self._climb(partial(inner, size, *stream), error, account, size)

        return calls._replace(allocate=allocate)

    def _may_climb(self, error: Exception, *stream: Stream) -> bool:
        return (
            is_shortage(error, self._device.platform)
            and not getattr(_climbing, "is_thread", False)
            and not is_captured(self._device, *stream)
        )

    def _climb(self, attempt: Callable[[], int], shortage: Exception, account: AccountedAllocator, size: int) -> int:
        tried: list[str] = []
        try:
            with _on_the_ladder():
                for rung in self.rungs:
                    tried.append(_done(rung, account, size))
                    try:
                        ptr = attempt()
                    except Exception as error:
                        if not is_shortage(error, self._device.platform):
                            raise
                        shortage = error
                    else:
                        self._helped[rung] += 1
                        return ptr
            self._in_vain += 1
            raise MemoryShortageError.after(shortage, *tried) from shortage
        finally:
            del shortage  # its traceback has this frame: a circle, which would keep what the callers hold


_climbing = local()
"""Whether the thread is on a ladder, of whatever account."""


@contextmanager
def _on_the_ladder() -> Iterator[None]:
    _climbing.is_thread = True
    try:
        yield
    finally:
        _climbing.is_thread = False


def _done(rung: Rung, account: AccountedAllocator, size: int) -> str:
    """Do what a rung says; return how it is told. Its failure is told, and is not that of the request."""
    try:
        _STEPS[rung](account, size)
    except Exception as error:  # noqa: BLE001 - see above
        return f"{rung.value} (failed: {error})"
    return rung.value


def _tell_observers(account: AccountedAllocator, size: int) -> None:
    if account.is_watched_for(OUT_OF_MEMORY):
        account.out_of_memory(size)


def _trim(account: AccountedAllocator, size: int) -> None:  # noqa: ARG001 - all steps are called alike
    account.trim()


def _trim_neighbours(account: AccountedAllocator, size: int) -> None:  # noqa: ARG001
    for other in list(account.device.accounts.values()):
        if other is not account:
            other.trim()


def _collect(account: AccountedAllocator, size: int) -> None:  # noqa: ARG001
    gc.collect()


def _wait(account: AccountedAllocator, size: int) -> None:  # noqa: ARG001
    account.device.synchronize()
    account.trim()


_STEPS: Mapping[Rung, Callable[[AccountedAllocator, int], None]] = {
    Rung.OBSERVERS: _tell_observers,
    Rung.TRIM: _trim,
    Rung.NEIGHBOURS: _trim_neighbours,
    Rung.GARBAGE: _collect,
    Rung.STREAMS: _wait,
}
