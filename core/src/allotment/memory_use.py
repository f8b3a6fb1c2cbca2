"""What an allocator hands out and keeps, and how much it may: the names that MLX gives these questions and limits.

They speak of the allocator in force on a device, unless another is named.
"""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING

from allotment import registry as registries
from allotment._wording import listed
from allotment.allocator import SupportsLimits
from allotment.device import find_device
from allotment.errors import UnsupportedError
from allotment.layers.accounting import AccountedAllocator
from allotment.selection import account_of, allocator_in_force, named_allocator, usable_on
from allotment.units import MemoryAmount

if TYPE_CHECKING:
    from allotment.device import Device, DeviceLike
    from allotment.selection import AllocatorLike


# ---------------------------------------------------------------------------------------------------------------------
# What is used


def get_active_memory(device: DeviceLike = None, allocator: AllocatorLike = None) -> int:
    """Return the bytes that an allocator has handed out, as they were asked for.

    Parameters
    ----------
    device
        The device; the default device if not given.
    allocator
        A name, or an object; the allocator in force on the device if not given. One that `get_allocator` gave means
        its own device.

    Raises
    ------
    DeviceNotFoundError
        If there is no such device.
    PluginError
        If the name cannot be used.
    ValueError
        If the allocator is of another device.
    """
    return _account(device, allocator).statistics().current


def get_peak_memory(device: DeviceLike = None, allocator: AllocatorLike = None) -> int:
    """Return the most bytes that an allocator had handed out at once since the last reset; see `get_active_memory`."""
    return _account(device, allocator).statistics().peak


def reset_peak_memory(device: DeviceLike = None, allocator: AllocatorLike = None) -> None:
    """Set the peaks of an allocator to their current values; see `get_active_memory` for the parameters.

    MLX sets the peak to zero, so that it can be below what is handed out. Here it cannot.

    Raises
    ------
    CaptureError
        If that would end the capture of a graph.
    """
    _account(device, allocator).reset_peak()


def get_cache_memory(device: DeviceLike = None, allocator: AllocatorLike = None) -> int:
    """Return the bytes that an allocator holds of the device and has not handed out.

    See `get_active_memory` for the parameters. What sizes are rounded up by is part of it. It is 0 for an allocator
    that does not say what it holds, and while a graph is captured, when it cannot be asked.
    """
    statistics = _account(device, allocator).statistics()
    return max(0, statistics.reserved - statistics.current)


def clear_cache(device: DeviceLike = None, allocator: AllocatorLike = None) -> int:
    """Give all idle memory of an allocator back to the device; return the bytes given back.

    See `get_active_memory` for the parameters. An allocator that keeps no idle memory gives back nothing.

    Raises
    ------
    CaptureError
        If that would end the capture of a graph.
    """
    return _account(device, allocator).trim()


# ---------------------------------------------------------------------------------------------------------------------
# What may be used


def get_memory_limit(device: DeviceLike = None, allocator: AllocatorLike = None) -> int:
    """Return the most bytes that an allocator may hold of the device; errors as `set_memory_limit`."""
    return _with_limits(_account(device, allocator)).get_memory_limit()


def set_memory_limit(
    limit: MemoryAmount | float | str,
    device: DeviceLike = None,
    allocator: AllocatorLike = None,
) -> int:
    """Set the most bytes that an allocator may hold of the device, handed out or idle; return what it was.

    Parameters
    ----------
    limit
        Bytes, a number up to 1 for that part of the device's memory (1 is all of it), or text such as ``"2 GiB"`` and
        ``"50%"``.
    device, allocator
        As for `get_active_memory`.

    Raises
    ------
    ValueError
        For a limit that is negative, or neither a fraction nor a whole number of bytes.
    TypeError
        For a limit that is neither a number nor text.
    UnsupportedError
        If the allocator has no limits. It says which ones have.
    CaptureError
        If that could end the capture of a graph.

    Notes
    -----
    The limit counts from the next request on. Idle memory is given back first; then a request that needs more is an
    `OutOfMemoryError`, except with an allocator that documents its limit as a guideline. Blocks handed out stay.
    """
    account = _account(device, allocator)
    limits, nbytes = _changeable(account), _bytes_of(limit, account.device)
    return limits.set_memory_limit(nbytes)


def get_cache_limit(device: DeviceLike = None, allocator: AllocatorLike = None) -> int:
    """Return the most bytes that an allocator may hold idle; errors as `set_memory_limit`."""
    return _with_limits(_account(device, allocator)).get_cache_limit()


def set_cache_limit(
    limit: MemoryAmount | float | str,
    device: DeviceLike = None,
    allocator: AllocatorLike = None,
) -> int:
    """Set the most bytes that an allocator may hold idle; return what it was.

    Parameters and errors are those of `set_memory_limit`. What is above the limit is given back in the course of calls;
    `clear_cache` does it at once. With 0 nothing is kept.
    """
    account = _account(device, allocator)
    limits, nbytes = _changeable(account), _bytes_of(limit, account.device)
    return limits.set_cache_limit(nbytes)


# ---------------------------------------------------------------------------------------------------------------------
# Which allocator, and how much


def _account(device: DeviceLike, allocator: AllocatorLike) -> AccountedAllocator:
    if isinstance(allocator, AccountedAllocator):
        if device is not None and allocator.device is not find_device(device):
            asked = find_device(device).alias
            raise ValueError(f"allocator {allocator.name!r} is of {allocator.device.alias!r}, not of {asked!r}")
        return allocator
    found = find_device(device)
    if allocator is None:
        return allocator_in_force(found)
    return named_allocator(allocator, found) if isinstance(allocator, str) else account_of(allocator, found)


def _with_limits(account: AccountedAllocator) -> SupportsLimits:
    if isinstance(account.allocator, SupportsLimits):
        return account.allocator
    alias, names = account.device.alias, _names_with_limits(account.device)
    remedy = (
        f"Choose one of them, for example with set_device_allocator({alias!r}, {names[0]!r})."
        if names
        else "Install a plugin with an allocator that has them."
    )
    raise UnsupportedError(
        f"allocator {account.name!r} on {alias!r} has no limits to ask for or to set. "
        f"Installed allocators that have, and can be used there: {listed(names)}. {remedy}"
    )


def _names_with_limits(device: Device) -> list[str]:
    made_by = {each.name: registries.current().get(each.qualified_name).factory for each in usable_on(device)}
    return [name for name, made in made_by.items() if isinstance(made, type) and issubclass(made, SupportsLimits)]


def _changeable(account: AccountedAllocator) -> SupportsLimits:
    limits = _with_limits(account)
    account.device.captures.refuse_unsafe(f"changing a limit of allocator {account.name!r}")  # it may give memory back
    return limits


def _bytes_of(limit: MemoryAmount | float | str, device: Device) -> int:
    if _is_negative(limit):
        raise ValueError(f"a limit cannot be negative: {limit!r}")
    amount = MemoryAmount.parse(limit)
    if amount.fraction is not None and device.is_cpu:
        raise ValueError(f"a limit of {amount} cannot be told in bytes for {device.alias!r}: say it in bytes")
    return amount.resolve(device.total_memory)


def _is_negative(limit: object) -> bool:
    if isinstance(limit, str):
        return limit.lstrip().startswith("-")
    return isinstance(limit, Real) and limit < 0
