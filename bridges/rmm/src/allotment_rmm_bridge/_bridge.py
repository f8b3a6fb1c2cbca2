"""The bridge: it makes a resource that draws from Allotment the current one of every device."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Final

from allotment import Availability, BridgeError, ScopedDevice
from allotment.bridges import require_devices

if TYPE_CHECKING:
    from allotment import Delivery, Device
    from allotment_rmm_bridge._resource import AllotmentResource

ALIGNMENT: Final = 256
"""The alignment in bytes that RMM promises for every block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RmmBridgeOptions:
    """Options of the bridge to RMM: there are none."""


class RmmBridge:
    """Makes the users of RMM draw from Allotment, by a callback resource for each device.

    Parameters
    ----------
    options
        None so far.
    """

    name: ClassVar = "rmm"
    Options: ClassVar = RmmBridgeOptions

    def __init__(self, options: RmmBridgeOptions) -> None:
        self.options = options
        self._before: dict[int, Any] = {}
        self._ours: dict[int, AllotmentResource] = {}

    @classmethod
    def availability(cls) -> Availability:
        """Tell whether RMM is installed."""
        if find_spec("rmm") is not None:
            return Availability(ok=True)
        return Availability(ok=False, reason="RMM is not installed: pip install rmm-cu13, or rmm-cu12 (Linux only)")

    def install(self, delivery: Delivery) -> None:
        """Make our resource the current one of each device.

        Raises
        ------
        BridgeError
            If Allotment has no memory that RMM's users could use, an allocator that would be drawn from draws from
            RMM's current resource itself, or one aligns its blocks to less than RMM promises. Nothing is changed then.
        """
        devices = require_devices(self.name, "RMM", sees_devices)
        for device in devices:
            _require_use(delivery, device)
        from rmm import mr

        from allotment_rmm_bridge._resource import resource_of

        for device in devices:
            self._before[device.ordinal] = mr.get_per_device_resource(device.ordinal)
            with ScopedDevice(device):  # RMM takes the current device for that of a new resource
                ours = self._ours[device.ordinal] = resource_of(delivery, device.ordinal)
                mr.set_per_device_resource(device.ordinal, ours)

    def uninstall(self) -> None:
        """Give each device the resource back that it had; one that somebody has set since is left alone.

        Raises
        ------
        BridgeError
            If somebody has put a resource over ours, such as one that keeps statistics.
        """
        from rmm import mr

        current = {ordinal: mr.get_per_device_resource(ordinal) for ordinal in self._ours}
        for ordinal, found in current.items():
            if found is not self._ours[ordinal] and self._is_under(found, ordinal):
                raise BridgeError(
                    bridge=self.name,
                    cause=f"{type(found).__name__} was put over the resource of Allotment on device {ordinal}",
                    remedy="Take it off first.",
                )
        for ordinal, found in current.items():
            if found is self._ours[ordinal]:
                mr.set_per_device_resource(ordinal, self._before[ordinal])

    def describe(self) -> str | None:
        """Return what RMM draws from on the devices where that is not our resource, also under others."""
        from rmm import mr

        current = {ordinal: mr.get_per_device_resource(ordinal) for ordinal in self._ours}
        others = [
            f"{type(found).__name__} on device {ordinal}"
            for ordinal, found in current.items()
            if not self._is_under(found, ordinal)
        ]
        return ", ".join(others) or None

    def _is_under(self, resource: Any, ordinal: int) -> bool:
        """Return whether a resource is ours, or draws from ours."""
        while resource is not None and resource is not self._ours[ordinal]:
            upstream = getattr(resource, "get_upstream", None)
            resource = upstream() if upstream is not None else None
        return resource is not None


def sees_devices() -> bool:
    """Return whether RMM has devices to work on. It calls CUDA through ``cuda.bindings``."""
    from cuda.bindings import runtime

    error, count = runtime.cudaGetDeviceCount()
    return bool(error == runtime.cudaError_t.cudaSuccess and count > 0)


def _require_use(delivery: Delivery, device: Device) -> None:
    account = delivery.account(device)
    if getattr(account.allocator, "follows_current_resource", False):
        cause = (
            f"allocator {account.name!r}, which it would draw from on {device.alias!r}, draws from RMM's current "
            "resource itself, so that each would ask the other for memory"
        )
        remedy = "Choose another allocator, or let 'rmm' make a resource of its own: resource = 'pool' for one."
        raise BridgeError(bridge=RmmBridge.name, cause=cause, remedy=remedy)
    if account.traits.alignment < ALIGNMENT:
        cause = (
            f"allocator {account.name!r} on {device.alias!r} aligns to {account.traits.alignment} bytes, and RMM "
            f"promises {ALIGNMENT}"
        )
        raise BridgeError(bridge=RmmBridge.name, cause=cause)
