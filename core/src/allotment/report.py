"""The startup report: which platform and devices there are, and what their memory can do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allotment._version import version
from allotment.device import device_registry
from allotment.units import format_bytes

if TYPE_CHECKING:
    from allotment.device import Device, DeviceRegistry

_ALIAS_WIDTH = 10
"""The width of an alias with its quotes."""


def startup_report() -> str:
    """Return the startup report of the platform in force, in the form that the guides show. Opens no context."""
    registry = device_registry()
    return "\n".join(
        [
            f"Allotment {version()} initialized:",
            f"   Platform: {registry.platform.description} ({registry.platform.why})",
            f"   {_versions(registry)}",
            "   Devices:",
            *(f"     {_quoted(device)} : {describe_device(device)}" for device in registry),
            *_peer_access(registry),
        ]
    )


def describe_device(device: Device) -> str:
    """Return what a device is and the state of its memory pool, in one line."""
    if device.is_cpu:
        return f'"{device.name}"'
    return f'"{device.name}" ({format_bytes(device.total_memory)}, sm_{device.arch}, mempool {mempool_state(device)})'


def mempool_state(device: Device) -> str:
    """Return ``enabled``, ``supported`` (but not enabled) or ``not supported``."""
    if not device.is_mempool_supported:
        return "not supported"
    return "enabled" if device.is_mempool_enabled else "supported"


def _quoted(device: Device) -> str:
    return f'"{device.alias}"'.ljust(_ALIAS_WIDTH)


def _versions(registry: DeviceRegistry) -> str:
    runtime, driver = registry.platform.versions()
    if not driver:
        return "CUDA not available"
    return f"CUDA Toolkit {_dotted(runtime)}, Driver {_dotted(driver)}"


def _dotted(version_number: int) -> str:
    return f"{version_number // 1000}.{version_number % 1000 // 10}"


def peer_matrix(registry: DeviceRegistry) -> list[list[int]]:
    """Return whose memory each CUDA device can be given access to: a row is a device, a column its peer.

    Row *i*, column *j* is 1 if device *j* can access memory of device *i*; the diagonal is 1.
    """
    can = registry.platform.can_access_peer
    return [
        [1 if peer is target else int(can(peer.ordinal, target.ordinal)) for peer in registry.cuda]
        for target in registry.cuda
    ]


def _peer_access(registry: DeviceRegistry) -> list[str]:
    if len(registry.cuda) < 2:
        return []
    matrix = peer_matrix(registry)
    granted = sum(map(sum, matrix)) - len(matrix)
    if granted == len(matrix) * (len(matrix) - 1):
        return ["   CUDA peer access:", "     Supported fully (all-directional)"]
    if not granted:
        return ["   CUDA peer access:", "     Not supported"]
    rows = (f"     {_quoted(device)} : {row}" for device, row in zip(registry.cuda, matrix, strict=True))
    return ["   CUDA peer access:", "     Supported partially (see access matrix)", *rows]
