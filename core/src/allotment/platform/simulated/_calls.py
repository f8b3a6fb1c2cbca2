"""Every call to the simulation: its log, failures on demand, and what errors leave behind."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial, wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Protocol, TypeAlias, TypeVar, cast

from allotment._locks import RenewedLock
from allotment._wording import nearest
from allotment.errors import PlatformError
from allotment.platform._values import CaptureMode, StridedMemory
from allotment.platform.simulated._errors import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LOG_LENGTH: Final = 2**16
_SUCCESS: Final = "cudaSuccess"
_NOT_COUNTED: Final = ("cudaGetDevice", "cudaSetDevice", "cuCtxSetCurrent")
"""Calls that the driver answers from the thread's own state."""
_PARAMETERS: Final[dict[str, tuple[str, ...]]] = {}
"""The names of the parameters of each recorded call, in order."""

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Call:
    """One call to the platform.

    Parameters
    ----------
    name
        The method of `Platform`.
    arguments
        The arguments by name.
    device
        The device that was current.
    result
        What it returned; ``None`` where it failed.
    error
        CUDA's name for the error; ``None`` where it succeeded.
    after_shutdown
        Whether it came after `SimulatedPlatform.mark_shutdown`.
    """

    name: str
    arguments: dict[str, Any]
    device: int
    result: Any
    error: str | None
    after_shutdown: bool


_Entry: TypeAlias = tuple[str, tuple[Any, ...], dict[str, Any] | None, int, Any, str | None, bool]
"""A call as it is logged on the hot path: the fields of `Call`, arguments still apart."""


def _as_call(entry: _Entry) -> Call:
    name, args, kwargs, *rest = entry
    arguments = dict(zip(_PARAMETERS[name], args, strict=False)) | (kwargs or {})
    return Call(name, arguments, *rest)


class CallLog:
    """The latest calls, oldest first."""

    def __init__(self) -> None:
        self.entries: deque[_Entry] = deque(maxlen=_LOG_LENGTH)

    def __iter__(self) -> Iterator[Call]:
        return map(_as_call, tuple(self.entries))

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, index: int) -> Call:
        return _as_call(self.entries[index])

    def named(self, *names: str) -> list[Call]:
        """Return the calls of these names."""
        return [_as_call(entry) for entry in tuple(self.entries) if entry[0] in names]

    def clear(self) -> None:
        """Forget all calls."""
        self.entries.clear()


class _Thread(threading.local):
    device = 0
    last_error = _SUCCESS
    capture_mode = CaptureMode.GLOBAL


@dataclass(slots=True)
class _Injection:
    nth: int
    times: int
    code: str

    def strikes(self) -> bool:
        self.nth -= 1
        return -self.times < self.nth <= 0

    @property
    def is_over(self) -> bool:
        return self.nth <= 1 - self.times


class Journal:
    """What calls go through: one at a time, logged, failing where a test wants it or after a fault."""

    def __init__(self) -> None:
        self.lock = RenewedLock()
        self.thread = _Thread()
        self.log = CallLog()
        self.record = self.log.entries.append
        self.made = 0
        self.shut_down = False
        self.is_clear = True
        self.busy = False
        self.postponed: list[tuple[Callable[[], object], int]] = []
        self.fault: str | None = None
        self._listener: Callable[[str], None] | None = None
        self._injections: dict[str, list[_Injection]] = {}

    def fail(self, name: str, nth: int, code: str, times: int) -> None:
        """Make calls of a kind fail; see `SimulatedPlatform.fail`."""
        if name not in _PARAMETERS:
            raise ValueError(f"the platform has no call {name!r}.{nearest(name, sorted(_PARAMETERS))}")
        if nth < 1 or times < 1:
            raise ValueError(f"nth and times count from 1, not {nth} and {times}")
        self._injections.setdefault(name, []).append(_Injection(nth, times, code))
        self.is_clear = False

    def tell(self, listener: Callable[[str], None]) -> None:
        """Call ``listener`` with the name of each call from now on, before anything is done."""
        self._listener = listener
        self.is_clear = False

    def stop_failing(self) -> None:
        """Forget the failures to come."""
        self._injections.clear()
        self._find_whether_clear()

    def break_down(self, code: str) -> None:
        """Let every later call that needs the GPU fail."""
        self.fault = code
        self.is_clear = False

    def admit(self, name: str, *, after_fault: bool) -> None:
        """Refuse a call that a test wants to fail, or that cannot succeed after a fault."""
        if self._listener is not None:
            self._listener(name)
        if self.fault is not None and not after_fault:
            raise Refused(self.fault, "an earlier kernel faulted, and the process cannot use any GPU any more")
        due = [injection for injection in self._injections.get(name, ()) if injection.strikes()]
        self._forget_spent(name)
        if due:
            raise Refused(due[0].code, "a test asked for this failure")

    def error(self, call: str, refused: Refused) -> PlatformError:
        """Return the error of a refused call, and remember it."""
        self.thread.last_error = refused.code
        return PlatformError(call=call, code=refused.code, detail=refused.detail)

    def catch_up(self) -> None:
        """Make the frees that finalisers asked for in the middle of another call."""
        while self.postponed:
            free, device = self.postponed.pop(0)
            present, self.thread.device = self.thread.device, device
            try:
                with suppress(PlatformError):  # it is in the log; who asked for it is gone
                    free()
            finally:
                self.thread.device = present

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Run code of others in the middle of a call: its own calls are made at once."""
        busy, self.busy = self.busy, False
        try:
            yield
        finally:
            self.busy = busy

    def _forget_spent(self, name: str) -> None:
        left = [injection for injection in self._injections.get(name, ()) if not injection.is_over]
        if left:
            self._injections[name] = left
        else:
            self._injections.pop(name, None)
        self._find_whether_clear()

    def _find_whether_clear(self) -> None:
        self.is_clear = self.fault is None and self._listener is None and not self._injections


class Journalled(Protocol):
    """Has a journal."""

    _journal: Journal


S = TypeVar("S", bound=Journalled)


def call(
    cuda_name: str, *, after_fault: bool = False, takes_arrays: bool = False, can_wait: bool = False
) -> Callable[[Callable[Concatenate[S, P], R]], Callable[Concatenate[S, P], R]]:
    """Return a decorator for a call of the platform.

    Parameters
    ----------
    cuda_name
        What CUDA calls it.
    after_fault
        Whether it still works after a kernel faulted (recorded: access/after-a-fault).
    takes_arrays
        Whether arguments have owners, which the log must not keep alive.
    can_wait
        Whether it is made later if a finaliser asks for it while another call is under way: the garbage collector may
        run in the middle of one.
    """

    def decorate(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
        name = method.__name__
        _PARAMETERS[name] = tuple(signature(method).parameters)[1:]
        count = 0 if cuda_name in _NOT_COUNTED else 1

        @wraps(method)
        def recorded(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
            journal = self._journal
            kept = _without_owners(args) if takes_arrays else args
            with journal.lock():
                device, busy = journal.thread.device, journal.busy
                if busy and can_wait:
                    journal.postponed.append((partial(recorded, self, *args, **kwargs), device))
                    return cast("R", None)
                journal.busy = True
                journal.made += count
                try:
                    if not journal.is_clear:
                        journal.admit(name, after_fault=after_fault)
                    result = method(self, *args, **kwargs)
                except Refused as refused:
                    journal.record((name, kept, kwargs or None, device, None, refused.code, journal.shut_down))
                    raise journal.error(cuda_name, refused) from None
                else:
                    journal.record((name, kept, kwargs or None, device, result, None, journal.shut_down))
                    return result
                finally:
                    journal.busy = busy
                    if journal.postponed and not busy:
                        journal.catch_up()

        return recorded

    return decorate


def _without_owners(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(replace(arg, owner=None) if isinstance(arg, StridedMemory) else arg for arg in args)
