"""Asking whether a device can touch an array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from allotment._array import Array
from allotment.access._arguments import arrays_in
from allotment.access._case import AccessCase
from allotment.access._rules import judge
from allotment.access._verdict import AccessReport, Verdict
from allotment.allocator import SupportsPool
from allotment.device import Device, find_device
from allotment.memory_kind import MemoryKind

if TYPE_CHECKING:
    from allotment.device import DeviceLike


def can_access(device: DeviceLike, array: Array) -> bool:
    """Return whether a device can touch an array's memory directly.

    Parameters
    ----------
    device
        The device whose code would touch it.
    array
        The array.

    Returns
    -------
    bool
        ``True`` only if it is proved; ``False`` if it cannot, and also if nobody knows.

    Raises
    ------
    TypeError
        For anything that is not an `Array`: see `asarray` for memory of other libraries.

    Notes
    -----
    It is about addresses alone: whether work on the memory is done, and where managed pages are, is not asked. A grant
    that was seen is taken to last; `explain_access` asks the driver each time.
    """
    if type(array) is not Array:
        raise TypeError(f"can_access is about an Array, not about a {type(array).__name__}: wrap it with asarray first")
    accessor = device if type(device) is Device else find_device(device)
    owner = array.device
    if accessor is owner:
        return True
    account, grants = array.account, owner.registry.grants
    if account is not None and account.proved_access.get(accessor) == grants.version:
        return True
    case = case_of(accessor, array)
    accessible = judge(case).verdict is Verdict.ACCESSIBLE
    if accessible and account is not None and case.is_ours and not case.is_empty:
        account.proved_access[accessor] = grants.version
    return accessible


def explain_access(device: DeviceLike, array: Any) -> AccessReport:
    """Return whether a device can touch an array's memory directly, with the rule, the reason and the remedy.

    Parameters
    ----------
    device
        The device whose code would touch it.
    array
        An `Array`, an object of another library that `asarray` takes, or a tuple, list, dictionary or object that holds
        several, such as data and its indices: then the worst of their verdicts is returned.

    Raises
    ------
    TypeError
        If there is no array in it.
    """
    accessor = find_device(device)
    reports = [judge(case_of(accessor, found)) for _, found in arrays_in(array, "")]
    if not reports:
        raise TypeError(f"there is no array in a {type(array).__name__}: it shares no memory")
    return max(reports, key=lambda report: report.verdict.severity)


def case_of(accessor: Device, array: Array) -> AccessCase:
    """Return the question whether a device can touch an array."""
    account, kind, owner = array.account, array.memory_kind, array.device
    if owner.is_cpu and accessor is not owner and not kind.on_host and array.ptr:
        owner = _device_behind(array.ptr, owner)
    if account is None or account.memory_kind is not kind:  # nobody declares it, or a layer gives other memory too
        return AccessCase(accessor, owner, kind, array.ptr, is_ours=False)
    pool = account.allocator.pool_handle if isinstance(account.allocator, SupportsPool) else 0
    is_ours = not account.traits.mapped and (kind is not MemoryKind.CUDA_MEMPOOL or pool != 0)
    return AccessCase(accessor, owner, kind, array.ptr, pool=pool, is_ours=is_ours)


def _device_behind(ptr: int, wrapped_as: Device) -> Device:
    """Return the device whose memory was wrapped as an array of the host, as NumPy views of managed memory are."""
    attributes = wrapped_as.platform.pointer_attributes(ptr)
    return wrapped_as if attributes.kind is MemoryKind.UNKNOWN else wrapped_as.registry.find(attributes.device)
