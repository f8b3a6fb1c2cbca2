"""The check of a launch's arrays, as ``config.launch_array_access_mode`` asks for it.

`RELAXED` has no check. `CHECKED` refuses what is known to fault and warns of what nobody knows. `STRICT` is a policy:
it refuses arrays of other devices, whether they could be touched or not.
"""

from __future__ import annotations

import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from allotment._locks import RenewedLock
from allotment.access._arguments import arrays_in
from allotment.access._query import case_of
from allotment.access._rules import judge
from allotment.access._verdict import AccessReport, Verdict
from allotment.configuration import LaunchArrayAccessMode
from allotment.errors import AccessError, AccessWarning

if TYPE_CHECKING:
    from allotment._array import Array
    from allotment.device import Device

Arguments: TypeAlias = Iterable[tuple[str, Any]]
"""The arguments of a launch, each with its path."""
LaunchCheck: TypeAlias = Callable[[str, "Device", Arguments], None]
"""A check: it takes the kernel's name, the device of the launch and the arguments, and raises `AccessError`."""

_STRICT: Final = AccessReport(
    Verdict.UNKNOWN,
    "strict",
    "launch_array_access_mode STRICT wants every array on the device of the launch: that is a policy, and says nothing "
    "about whether the device could touch it",
    'Copy it with .to("{device}"), or set config.launch_array_access_mode to CHECKED.',
)


class WarnedPatterns:
    """The launches that were warned of, so that each pattern is warned of once: the latest of them.

    Parameters
    ----------
    limit
        How many are kept.
    """

    def __init__(self, limit: int = 1024) -> None:
        self._limit = limit
        self._lock = RenewedLock()
        self._patterns: OrderedDict[tuple[str, ...], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._patterns)

    def is_new(self, *pattern: str) -> bool:
        """Return whether a pattern is met for the first time, and note it."""
        with self._lock():
            is_new = pattern not in self._patterns
            self._patterns[pattern] = None
            self._patterns.move_to_end(pattern)
            if len(self._patterns) > self._limit:
                self._patterns.popitem(last=False)
            return is_new

    def clear(self) -> None:
        """Forget all patterns."""
        with self._lock():
            self._patterns.clear()


warned_patterns: Final = WarnedPatterns()


def reset_access_warnings() -> None:
    """Let launches that were warned of be warned of again."""
    warned_patterns.clear()


def check_accessible(kernel: str, device: Device, arguments: Arguments) -> None:
    """Refuse a launch with an array that its device cannot touch; warn once of one that nobody knows about."""
    for path, array in _elsewhere(device, arguments):
        report = judge(case_of(device, array))
        if report.verdict is Verdict.INACCESSIBLE:
            raise _refusal(kernel, path, device, array, report)
        if report.verdict is Verdict.UNKNOWN and warned_patterns.is_new(kernel, path, array.device.alias, device.alias):
            warnings.warn(_doubt(kernel, path, device, array, report), AccessWarning, stacklevel=_depth_of_caller())


def check_same_device(kernel: str, device: Device, arguments: Arguments) -> None:
    """Refuse a launch with an array of another device."""
    for path, array in _elsewhere(device, arguments):
        raise _refusal(kernel, path, device, array, _STRICT)


CHECKS: Final[dict[LaunchArrayAccessMode, LaunchCheck | None]] = {
    LaunchArrayAccessMode.RELAXED: None,
    LaunchArrayAccessMode.CHECKED: check_accessible,
    LaunchArrayAccessMode.STRICT: check_same_device,
}
"""The check of each mode."""


def _elsewhere(device: Device, arguments: Arguments) -> Iterable[tuple[str, Array]]:
    for path, argument in arguments:
        for found, array in arrays_in(argument, path):
            if array.device is not device:
                yield found, array


def _depth_of_caller() -> int:
    """Return how many frames up the code is that called the library, for a warning to name its line."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("allotment."):
        depth, frame = depth + 1, frame.f_back
    return depth


def _refusal(kernel: str, path: str, device: Device, array: Array, report: AccessReport) -> AccessError:
    return AccessError(
        kernel=kernel,
        argument=path,
        device=device.alias,
        array_device=array.device.alias,
        memory_kind=array.memory_kind.name,
        rule=report.rule,
        reason=report.reason,
        remedy=report.remedy and report.remedy.format(device=device.alias),
    )


def _doubt(kernel: str, path: str, device: Device, array: Array, report: AccessReport) -> str:
    return (
        f"kernel {kernel!r} is launched on {device.alias!r} though nobody knows whether it can touch argument {path!r} "
        f"on {array.device.alias!r} (memory_kind={array.memory_kind.name}): {report.reason} (rule {report.rule}). "
        f"{report.remedy} This is said once."
    )
