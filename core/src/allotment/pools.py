"""The memory pool of a device, as the guides see it: its release threshold and what is used of it.

The pool is the one that arrays draw from, which Allotment owns; the device's default pool, which all libraries of the
process share, is left alone unless configuration says to share it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allotment.allocator import SupportsPool
from allotment.configuration import BUILT_IN
from allotment.device import find_device
from allotment.errors import UnsupportedError
from allotment.platform import PoolAttribute
from allotment.selection import named_allocator
from allotment.units import MemoryAmount

if TYPE_CHECKING:
    from allotment.device import Device, DeviceLike
    from allotment.layers.accounting import AccountedAllocator


def _device_with_pool(device: DeviceLike) -> Device:
    found = find_device(device)
    if found.is_cpu:
        raise ValueError("memory pools are a feature of CUDA devices: 'cpu' has none")
    if not found.is_mempool_supported:
        raise UnsupportedError(f"device {found.alias!r} does not support memory pools")
    return found


def _pool_of(device: Device) -> tuple[AccountedAllocator, int]:
    account = named_allocator(BUILT_IN.pool, device)
    if not isinstance(account.allocator, SupportsPool):
        raise UnsupportedError(f"allocator {account.name!r} draws from no CUDA memory pool")
    return account, account.allocator.pool_handle


def _pool_attribute(device: DeviceLike, attribute: PoolAttribute) -> int:
    found = _device_with_pool(device)
    found.captures.refuse_unsafe(f"asking the memory pool of {found.alias!r}")
    return found.platform.pool_attribute(_pool_of(found)[1], attribute)


def set_mempool_release_threshold(device: DeviceLike, threshold: MemoryAmount | float | str) -> None:
    """Say how much idle memory the pool of a device keeps when the device is synchronised.

    Parameters
    ----------
    device
        The device.
    threshold
        A number up to 1 is a fraction of the device's total memory (1 is all of it, also as an integer), a larger one
        is bytes, a negative one is 0; text such as ``"2 GiB"`` and ``"50%"`` is read too.

    Raises
    ------
    ValueError
        On the host, and for a threshold that is neither a fraction nor a whole number of bytes.
    UnsupportedError
        If the device does not support pools.
    """
    found = _device_with_pool(device)
    nbytes = MemoryAmount.parse(threshold).resolve(found.total_memory)
    found.captures.refuse_unsafe(f"changing the memory pool of {found.alias!r}")
    found.platform.set_pool_attribute(_pool_of(found)[1], PoolAttribute.RELEASE_THRESHOLD, nbytes)


def get_mempool_release_threshold(device: DeviceLike = None) -> int:
    """Return the release threshold of a device's pool in bytes; errors as `set_mempool_release_threshold`."""
    return _pool_attribute(device, PoolAttribute.RELEASE_THRESHOLD)


def get_mempool_used_mem_current(device: DeviceLike = None) -> int:
    """Return the bytes of a device's pool that are handed out now. What the pool holds in reserve is not counted."""
    return _pool_attribute(device, PoolAttribute.USED_CURRENT)


def get_mempool_used_mem_high(device: DeviceLike = None) -> int:
    """Return the most bytes of a device's pool that were handed out at once since the last reset."""
    return _pool_attribute(device, PoolAttribute.USED_HIGH)


def trim_mempool(device: DeviceLike = None, keep_bytes: int = 0) -> int:
    """Give idle memory of a device's pool back until at most ``keep_bytes`` are reserved; return how much that was."""
    account, _ = _pool_of(_device_with_pool(device))
    return account.trim(keep_bytes)
