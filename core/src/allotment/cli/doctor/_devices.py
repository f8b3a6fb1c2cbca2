"""What devices cannot do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allotment.cli.doctor._finding import ok, warning
from allotment.device import device_registry
from allotment.report import describe_device

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allotment.cli.doctor._finding import Finding
    from allotment.device import Device


def examine_devices() -> Iterator[Finding]:
    """Yield each device, and what it lacks that programs may count on."""
    for device in device_registry():
        lacking = list(_lacking(device)) if device.is_cuda else []
        yield ok(device.alias, f"the host, {device.name}" if device.is_cpu else describe_device(device))
        for text in lacking:
            yield warning(device.alias, text)


def _lacking(device: Device) -> Iterator[str]:
    if not device.is_mempool_supported:
        yield "no memory pools: allocation is not ordered by streams, and waits for the device"
    if not device.is_managed_memory_supported:
        yield "no managed memory"
    elif not device.is_concurrent_managed_access_supported:
        yield (
            "no concurrent managed access: the host must not touch managed memory while a kernel runs, and managed "
            "memory cannot exceed the device's"
        )
