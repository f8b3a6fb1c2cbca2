"""One allocator on trial: chosen by a file, checked, and given the trace."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from allotment import configuration, registry
from allotment.cli._in_force import made_for
from allotment.cli.demo._checks import Bench, Check, run_checks
from allotment.cli.demo._file import ConfigFile
from allotment.configuration import BUILT_IN
from allotment.device import find_device
from allotment.factories import empty
from allotment.registry import PluginStatus
from allotment.selection import get_allocator
from allotment.trace import replay, shrink, summarize

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from allotment.cli.demo._stage import Stage
    from allotment.configuration import PluginValues
    from allotment.device import Device
    from allotment.registry import PluginRecord
    from allotment.trace import ReplayResult, TraceEvent

_HOST_SHARE: Final = 2**30
"""What the demo takes of the host's memory in bytes: more of it page-locked would be missed by other programs."""
_DEVICE_SHARE: Final = 0.5
"""The part of a device's free memory that the demo takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How an allocator did, as ``--json`` prints it.

    Parameters
    ----------
    allocator, device
        Its name and the device that drew from it.
    memory_kind
        The kind of its memory.
    config
        What the file that chose it says.
    seconds, allocations, failures
        The time of the replay, and the allocations that succeeded and did not.
    allocations_per_second
        Allocations in a second, frees included in the time.
    peak_requested, peak_reserved
        The most bytes that were handed out at once, and that the allocator held of the device.
    size_divisor
        What the sizes of the trace were divided by to fit this machine.
    checks_passed, checks
        How many checks came out right, of how many.
    failed_checks
        The checks that did not.
    """

    allocator: str
    device: str
    memory_kind: str
    config: str
    seconds: float
    allocations: int
    failures: int
    allocations_per_second: float
    peak_requested: int
    peak_reserved: int
    size_divisor: int
    checks_passed: int
    checks: int
    failed_checks: list[Check] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Candidate:
    """An allocator that can be used here.

    Parameters
    ----------
    name
        What chooses it in a file.
    device
        The first device that can use it, a CUDA device before the host.
    others
        The other devices that can be copied to and from.
    """

    name: str
    device: Device
    others: tuple[Device, ...]


def candidates(stage: Stage) -> tuple[list[Candidate], dict[str, str]]:
    """Return the allocators that can be used here, and for the others the reason by name. Loads them all."""
    usable, passed_over = [], {}
    for record in registry.list_allocators():
        name = record.qualified_name if record.status is PluginStatus.CONFLICT else record.name
        devices = _devices_for(record, stage)
        if devices:
            others = tuple(device for device in _may_copy_with(devices, stage) if device is not devices[0])
            usable.append(Candidate(name, devices[0], others))
        else:
            passed_over[name] = _reason(record, stage)
    return usable, passed_over


def _devices_for(record: PluginRecord, stage: Stage) -> list[Device]:
    ask = registry.current().availability
    return [device for device in _gpus_first(stage) if record.usable and ask(record, device).ok]


def _gpus_first(stage: Stage) -> list[Device]:
    return [*stage.registry.cuda, stage.registry.cpu]


def _may_copy_with(devices: list[Device], stage: Stage) -> list[Device]:
    """Return the devices of a trial: of several GPUs, those that can have the allocator, and the host."""
    if devices[0].is_cpu:
        return [stage.registry.cpu, *(gpu for gpu in stage.registry.cuda[:1] if made_for(gpu).error is None)]
    return [*(device for device in devices if device.is_cuda), stage.registry.cpu]


def _reason(record: PluginRecord, stage: Stage) -> str:
    if not record.usable:
        return record.error or record.status.value
    return registry.current().availability(record, _gpus_first(stage)[0]).reason


class TrialRun:
    """The trial of one allocator, step by step.

    Parameters
    ----------
    candidate
        The allocator.
    folder
        Where its file is written.
    trace
        What is replayed.
    plugins
        Which plugins the user allows.
    """

    def __init__(self, candidate: Candidate, folder: Path, trace: list[TraceEvent], plugins: PluginValues) -> None:
        self.candidate = candidate
        self.file = ConfigFile.naming(candidate.name, candidate.device, folder / "allotment.toml")
        self.checks: list[Check] = []
        self._trace = trace
        self._plugins = plugins
        self._peak = summarize(trace).peak_requested
        self.size_divisor = 1

    def run(self, on_checked: Callable[[list[Check]], None], on_progress: Callable[[int], None]) -> Trial:
        """Load the file, check arrays, replay the trace; tell of the checks when they are done, and of progress."""
        candidate = self.candidate
        with configuration.use(self.file.load(self._plugins)):
            self.checks += run_checks(
                Bench(
                    allocator=candidate.name,
                    device=candidate.device,
                    others=candidate.others,
                    has_pinned=_has_pinned(candidate.device),
                )
            )
            on_checked(self.checks)
            replayed = self._replay(on_progress)
            return self._result(replayed)

    def _replay(self, on_progress: Callable[[int], None]) -> ReplayResult | None:
        """Replay as much of each size as there is room for; what goes wrong is a check that failed."""
        device = self.candidate.device
        try:
            self.size_divisor = _divisor(self._peak, _room_on(device))
            trace = list(shrink(self._trace, self.size_divisor))
            account = get_allocator(None, device)
            replayed = replay(trace, account, device, on_progress)
            account.trim()
        except Exception as error:  # noqa: BLE001 - an allocator on trial may raise anything
            self.checks.append(Check(_TRACE, f"{type(error).__name__}: {error}", ok=False))
            return None
        expected, left = summarize(trace).peak_requested, account.statistics().live
        peak = f"peak requested is {replayed.peak_requested:,} bytes of {expected:,}"
        self.checks += [
            Check(_TRACE, f"{replayed.failures} allocations failed", replayed.failures == 0),
            Check(_TRACE, peak, replayed.peak_requested == expected),
            Check(_TRACE, f"{left} blocks are left", left == 0),
        ]
        return replayed

    def _result(self, replayed: ReplayResult | None) -> Trial:
        failed = [check for check in self.checks if not check.ok]
        return Trial(
            allocator=self.candidate.name,
            device=self.candidate.device.alias,
            memory_kind=_memory_kind(self.candidate),
            config=self.file.text,
            seconds=replayed.seconds if replayed else 0.0,
            allocations=replayed.allocations if replayed else 0,
            failures=replayed.failures if replayed else 0,
            allocations_per_second=replayed.allocations_per_second if replayed else 0.0,
            peak_requested=replayed.peak_requested if replayed else 0,
            peak_reserved=replayed.peak_reserved if replayed else 0,
            size_divisor=self.size_divisor,
            checks_passed=len(self.checks) - len(failed),
            checks=len(self.checks),
            failed_checks=failed,
        )


_TRACE: Final = "the trace is served in full"


def _memory_kind(candidate: Candidate) -> str:
    try:
        return empty(1, device=candidate.device).memory_kind.name
    except Exception:  # noqa: BLE001 - the checks have said what is wrong with it
        return "UNKNOWN"


def _room_on(device: Device) -> int:
    return _HOST_SHARE if device.is_cpu else int(device.free_memory * _DEVICE_SHARE)


def _divisor(peak: int, room: int) -> int:
    """Return the smallest power of two that makes the peak fit."""
    divisor = 1
    while peak > room * divisor and divisor < peak:
        divisor *= 2
    return divisor


def _has_pinned(device: Device) -> bool:
    """Return whether page-locked memory is to be had for a CUDA device."""
    current = registry.current()
    records = [record for record in current.records() if record.name == BUILT_IN.pinned and record.usable]
    return device.is_cuda and any(current.availability(record, find_device("cpu")).ok for record in records)
