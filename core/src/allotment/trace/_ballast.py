"""Less memory on a device than it has."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from allotment.device import find_device
from allotment.errors import UnsupportedError
from allotment.units import MemoryAmount, format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allotment.device import Device, DeviceLike

_PAGE: Final = 2 * 2**20
"""The bytes in which a driver gives memory of a device away: what is left is less than that above what was asked."""


@contextmanager
def leave_free(amount: MemoryAmount | float | str, device: DeviceLike = None) -> Iterator[int]:
    """Take up the free memory of a device for the length of a ``with`` block, but for an amount.

    It shows how allocators do on a device with less memory. Unlike the layer ``limit``, which bounds what is handed
    out, it bounds what allocators hold. Idle memory of the device's allocators is given back first: the driver would
    take it for others before it refuses them.

    Parameters
    ----------
    amount
        What is left: bytes, a number up to 1 for that part of the device's memory, or text such as ``"2 GiB"``.
    device
        The device; the default device if not given.

    Yields
    ------
    int
        The bytes that are left: what was asked for, or up to 2 MiB more.

    Raises
    ------
    UnsupportedError
        For the host.
    ValueError
        If the device has less free memory.
    """
    found = find_device(device)
    if found.is_cpu:
        raise UnsupportedError("the memory of the host cannot be taken up; only that of a CUDA device")
    left = MemoryAmount.parse(amount).resolve(found.total_memory)
    for account in list(found.accounts.values()):
        account.trim()
    surplus = found.free_memory - left
    if surplus < 0:
        free = format_bytes(found.free_memory)
        raise ValueError(f"{format_bytes(left)} cannot be left free on {found.alias!r}: it has {free} free")
    ballast = _allocate(surplus - surplus % _PAGE, found) if surplus >= _PAGE else None
    try:
        yield found.free_memory
    finally:
        if ballast is not None:
            found.platform.free(ballast)


def _allocate(nbytes: int, device: Device) -> int:
    before = device.platform.switch_device(device.ordinal)
    try:
        return device.platform.malloc(nbytes)
    finally:
        device.platform.restore_context(before)
