"""How the memory of this process stands, read without disturbing it."""

from __future__ import annotations

import os
import shlex
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from allotment.allocator import SupportsReservation
from allotment.device import registry_in_use
from allotment.errors import AllotmentError
from allotment.platform import CaptureMode
from allotment.serving._service import guard
from allotment.statistics import accounts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allotment.device import Device, DeviceRegistry
    from allotment.layers.accounting import AccountedAllocator


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceStatus:
    """How much memory a CUDA device has.

    Parameters
    ----------
    device, name
        Its alias, and the product's name.
    total
        Its memory in bytes.
    free
        What of it is free, for all processes together; ``None`` while it has no context or a graph is captured.
    """

    device: str
    name: str
    total: int
    free: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorStatus:
    """How an allocator stands on a device: the fields of `Statistics`, in bytes and calls.

    Parameters
    ----------
    device, allocator
        The device's alias, and the allocator's name; of several with one name, the later ones with a number,
        ``"mempool#2"``.
    current, peak, reserved, peak_reserved, allocations, frees, failed_allocations, failed_frees
        See `Statistics`. What an allocator cannot be asked while a graph is captured is ``None``.
    largest_free
        The bytes of the largest request that needs no more of the device; ``None`` if the allocator does not say.
    problem
        Why the figures could not be had, all of which are ``None`` then.
    """

    device: str
    allocator: str
    current: int | None = None
    peak: int | None = None
    reserved: int | None = None
    peak_reserved: int | None = None
    largest_free: int | None = None
    allocations: int | None = None
    frees: int | None = None
    failed_allocations: int | None = None
    failed_frees: int | None = None
    problem: str | None = None

    @property
    def failed(self) -> int | None:
        """The calls that failed, of both kinds."""
        if self.failed_allocations is None or self.failed_frees is None:
            return None
        return self.failed_allocations + self.failed_frees


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStatus:
    """How the memory of a process stands at a moment.

    Parameters
    ----------
    pid, program
        The process, and the command line that it was started with.
    time
        Seconds since 1970.
    clock
        Seconds on a clock that is never set, for differences.
    platform
        The platform's name; ``None`` while no device was used.
    devices
        Its CUDA devices.
    allocators
        The allocators that were used.
    """

    pid: int
    program: str
    time: float
    clock: float
    platform: str | None = None
    devices: tuple[DeviceStatus, ...] = ()
    allocators: tuple[AllocatorStatus, ...] = ()


def read_status() -> ProcessStatus:
    """Return how the memory of this process stands.

    It chooses no platform, opens no context, ends no capture, and raises nothing for an allocator that fails to answer.
    """
    registry = registry_in_use()
    program = shlex.join(getattr(sys, "argv", ()))
    status = ProcessStatus(pid=os.getpid(), program=program, time=time.time(), clock=time.monotonic())
    if registry is None:
        return status
    with _harmless(registry):
        return replace(
            status,
            platform=registry.serves.name,
            devices=tuple(_device_status(device) for device in registry.cuda),
            allocators=tuple(_allocator_status(account) for each in registry for account in accounts_of(each, None)),
        )


@contextmanager
def _harmless(registry: DeviceRegistry) -> Iterator[None]:
    """Let no call of this thread end a capture of another one, also one by another library that we know nothing of."""
    is_asked = not registry.captures.on_devices and any(map(_has_context, registry.cuda))
    before = _capture_mode(registry, CaptureMode.RELAXED) if is_asked else None
    try:
        yield
    finally:
        if before is not None:
            _capture_mode(registry, before)


def _capture_mode(registry: DeviceRegistry, mode: CaptureMode) -> CaptureMode | None:
    """Set which captures calls of this thread may end; return what was set, ``None`` if the driver is gone."""
    try:
        return registry.platform.exchange_capture_mode(mode)
    except AllotmentError:
        return None


def _has_context(device: Device) -> bool:
    try:
        return not device.is_retired and device.has_context
    except AllotmentError:
        return False


def _device_status(device: Device) -> DeviceStatus:
    return DeviceStatus(device=device.alias, name=device.name, total=device.total_memory, free=_free_memory(device))


def _free_memory(device: Device) -> int | None:
    if device.captures.on_devices or not _has_context(device):
        return None
    try:
        return device.free_memory
    except AllotmentError:  # the device is lost, or the process has begun to exit
        return None


def _allocator_status(account: AccountedAllocator) -> AllocatorStatus:
    device, allocator = account.device.alias, _names.of(account)
    captures = account.device.captures
    was_capturing = bool(captures.on_devices)
    try:
        statistics = account.statistics()
        largest_free = None if was_capturing else account.largest_free()
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything, and the others are told all the same
        return AllocatorStatus(device=device, allocator=allocator, problem=f"{type(error).__name__}: {error}")
    # The accounts give what is handed out in place of what they must not ask for.
    is_held_known = not (was_capturing or captures.on_devices) or not isinstance(account.allocator, SupportsReservation)
    return AllocatorStatus(
        device=device,
        allocator=allocator,
        current=statistics.current,
        peak=statistics.peak,
        reserved=statistics.reserved if is_held_known else None,
        peak_reserved=statistics.peak_reserved if is_held_known else None,
        largest_free=largest_free,
        allocations=statistics.allocations,
        frees=statistics.frees,
        failed_allocations=statistics.failed_allocations,
        failed_frees=statistics.failed_frees,
    )


class _Names:
    """Names that tell the allocators of a device apart, each of them kept as long as its account lives."""

    def __init__(self) -> None:
        self._given: WeakKeyDictionary[AccountedAllocator, str] = WeakKeyDictionary()

    def of(self, account: AccountedAllocator) -> str:
        """Return the name of an account: its allocator's, with a number if another of the device has it already."""
        with guard():
            name = self._given.get(account)
            if name is None:
                taken = {given for other, given in self._given.items() if other.device is account.device}
                name = self._given[account] = _free_name(account.name, taken)
            return name


def _free_name(name: str, taken: set[str]) -> str:
    number = 2
    found = name
    while found in taken:
        found, number = f"{name}#{number}", number + 1
    return found


_names: Final = _Names()
