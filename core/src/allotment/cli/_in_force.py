"""Which allocator a device's arrays draw from, and what became of the choice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from allotment import configuration, registry
from allotment.configuration import BUILT_IN
from allotment.errors import AllotmentError, UnknownAllocatorError
from allotment.selection import get_allocator

if TYPE_CHECKING:
    from allotment.device import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """The allocator of a device.

    Parameters
    ----------
    device
        The device's alias.
    asked
        The name that was asked for, or that is built in.
    origin
        Who asks for it.
    configured
        Whether somebody does: it is not built in.
    got
        The name of the allocator that was made; ``None`` if none was, or it was not tried.
    error
        Why none could be made.
    """

    device: str
    asked: str
    origin: str
    configured: bool = False
    got: str | None = None
    error: str | None = None


def choice_for(device: Device) -> InForce:
    """Return the allocator that a device is going to have. Imports no plugin and makes nothing."""
    setting = configuration.current().allocator_for(device.alias)
    if setting is not None and (device.is_cuda or setting.key.startswith("devices.")):
        origin = f"{setting.key} in {setting.origin}"
        return InForce(device=device.alias, asked=setting.value, origin=origin, configured=True)
    name, reason = _built_in(device)
    return InForce(device=device.alias, asked=name, origin=f"built in, {reason}")


def _built_in(device: Device) -> tuple[str, str]:
    if device.is_cpu:
        return BUILT_IN.host, "for the host"
    if not device.is_mempool_supported:
        return BUILT_IN.plain, "the device has no memory pools"
    if not device.is_mempool_enabled:
        return BUILT_IN.plain, "memory pools are not enabled"
    if not is_installed(BUILT_IN.pool):
        return BUILT_IN.plain, f"{BUILT_IN.pool} is not installed"
    return BUILT_IN.pool, "memory pools are enabled"


def is_installed(name: str) -> bool:
    """Return whether something has the name, usable or not. Imports nothing."""
    try:
        registry.current().find(name)
    except UnknownAllocatorError:
        return False
    except AllotmentError:
        return True
    return True


def made_for(device: Device) -> InForce:
    """Return the allocator of a device after making it, as the first array would."""
    choice = choice_for(device)
    try:
        return replace(choice, got=get_allocator(None, device).name)
    except Exception as error:  # noqa: BLE001 - a plugin's constructor may raise anything, and it is the answer
        return replace(choice, error=str(error) or repr(error))
