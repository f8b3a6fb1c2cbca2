"""The accounts of all allocators, by device and allocator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allotment._names import normalise_name
from allotment.device import device_registry, find_device

if TYPE_CHECKING:
    from allotment.allocator import Statistics
    from allotment.device import Device, DeviceLike
    from allotment.layers.accounting import AccountedAllocator


def memory_stats(device: DeviceLike = None, allocator: str | None = None) -> dict[str, dict[str, Statistics]]:
    """Return the accounts of the allocators that were used, by device alias and allocator name.

    Parameters
    ----------
    device
        One device; all if not given.
    allocator
        The name of one allocator; all if not given.

    Returns
    -------
    dict
        An entry for each device asked about, also one that nothing was allocated on. Asking opens no context.
    """
    found: dict[str, dict[str, Statistics]] = {each.alias: {} for each in _devices(device)}
    for account in accounts_of(device, allocator):
        found[account.device.alias][account.name] = account.statistics()
    return found


def accounts_of(device: DeviceLike, allocator: str | None) -> list[AccountedAllocator]:
    """Return the accounts of the allocators that were used: of one device and of one name, where those are given."""
    wanted = None if allocator is None else normalise_name(allocator)
    return [
        account
        for each in _devices(device)
        for account in list(each.accounts.values())
        if wanted is None or normalise_name(account.name) == wanted
    ]


def _devices(device: DeviceLike) -> list[Device]:
    return list(device_registry()) if device is None else [find_device(device)]
