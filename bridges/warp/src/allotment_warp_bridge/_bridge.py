"""The bridge: it gives each of Warp's devices an allocator that draws from Allotment."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from allotment import Availability, BridgeError
from allotment.bridges import require_devices
from allotment_warp_bridge._allocator import AllotmentWarpAllocator

if TYPE_CHECKING:
    from allotment import Delivery


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpBridgeOptions:
    """There is nothing to say about it."""


class WarpBridge:
    """Makes NVIDIA Warp draw the memory of arrays on CUDA devices from Allotment.

    Parameters
    ----------
    options
        See `WarpBridgeOptions`.

    Notes
    -----
    The allocator is a device's custom one (``warp.set_device_allocator``), so whether Warp's own memory pool is enabled
    stays as it is and counts again after `uninstall`. What Warp allocates inside its native code stays Warp's own.
    """

    name: ClassVar[str] = "warp"
    Options: ClassVar[type] = WarpBridgeOptions

    def __init__(self, options: WarpBridgeOptions | None = None) -> None:
        self.options = options or WarpBridgeOptions()
        self._allocators: list[AllotmentWarpAllocator] = []
        self._before: list[Any] = []

    @classmethod
    def availability(cls) -> Availability:
        """Return whether Warp is installed."""
        if find_spec("warp") is not None:
            return Availability(ok=True)
        return Availability(ok=False, reason="warp is not installed: pip install warp-lang")

    def install(self, delivery: Delivery) -> None:
        """Give each CUDA device of Warp an allocator that draws from the delivery.

        Raises
        ------
        BridgeError
            If this Warp takes no allocators, sees no CUDA device or others than Allotment, or uses a context of its own
            on one.
        """
        import warp

        if not hasattr(warp, "set_device_allocator"):
            raise BridgeError(
                bridge=self.name,
                cause=f"Warp {getattr(warp, '__version__', '')} takes no allocators of others",
                remedy="Warp 1.19 does: pip install -U warp-lang.",
            )
        devices = warp.get_cuda_devices()
        _require_common_devices(devices)
        self._before = [_custom_allocator(warp, device) for device in devices]
        self._allocators = [AllotmentWarpAllocator(device, delivery, warp.MemoryKind) for device in devices]
        for allocator in self._allocators:
            warp.set_device_allocator(allocator.device, allocator)

    def uninstall(self) -> None:
        """Let each device have the allocator that it had before, unless somebody gave it another one since."""
        import warp

        for allocator, before in zip(self._allocators, self._before, strict=True):
            if warp.get_device_allocator(allocator.device) is allocator:
                warp.set_device_allocator(allocator.device, before)
            allocator.settle()

    def describe(self) -> str | None:
        """Return what a device of Warp draws from by now; ``None`` if that is the delivery, on all of them."""
        import warp

        for allocator in self._allocators:
            found = warp.get_device_allocator(allocator.device)
            if found is not allocator:
                return f"{type(found).__module__}.{type(found).__qualname__} on {allocator.device!s}"
        return None


def _require_common_devices(devices: list[Any]) -> None:
    if not devices:
        raise BridgeError(bridge=WarpBridge.name, cause="Warp sees no CUDA device")
    require_devices(WarpBridge.name, "Warp", lambda: True)
    for device in devices:
        if not device.is_primary:
            raise BridgeError(
                bridge=WarpBridge.name,
                cause=f"Warp uses {device!s} through a context of its own, and Allotment the primary one",
                remedy="Unmap it: warp.unmap_cuda_device.",
            )


def _custom_allocator(warp: Any, device: Any) -> Any:
    """Return the allocator that somebody gave to a device; ``None`` for Warp's own."""
    found = warp.get_device_allocator(device)
    return None if found is device.current_allocator else found
