"""Bridges deliver memory to other libraries: what they are, installing them, and how libraries stand."""

from allotment.bridges._bridge import Bridge
from allotment.bridges._callbacks import CallbackReceiver, CCallbacks, c_callbacks, has_compiled_callbacks
from allotment.bridges._delivery import Delivery, captured_unknown_to_us
from allotment.bridges._devices import require_devices
from allotment.bridges._installation import (
    BridgeState,
    BridgeStatus,
    install,
    install_configured,
    uninstall,
)
from allotment.bridges._installation import status as status

__all__ = [
    "Bridge",
    "BridgeState",
    "BridgeStatus",
    "CCallbacks",
    "CallbackReceiver",
    "Delivery",
    "c_callbacks",
    "captured_unknown_to_us",
    "has_compiled_callbacks",
    "install",
    "install_configured",
    "require_devices",
    "status",
    "uninstall",
]
