"""What the devices that PyTorch uses may do with each other's memory."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from allotment import (
    AllotmentError,
    is_mempool_access_supported,
    is_peer_access_supported,
    set_mempool_access_enabled,
    set_peer_access_enabled,
)

if TYPE_CHECKING:
    from allotment import Device


class Neighbours:
    """Lets each device that PyTorch uses touch the memory of the others, where the hardware connects them.

    PyTorch copies from device to device as if its memory were plain, and enables peer access for that, which helps
    neither memory of pools nor such as is mapped.
    """

    def __init__(self) -> None:
        self._met: list[Device] = []

    def meet(self, device: Device) -> None:
        """Make a device known that PyTorch uses from now on. No other device gets a context for it."""
        if device in self._met:
            return
        self._met.append(device)
        for other in self._met[:-1]:
            for target, peer in ((device, other), (other, device)):
                _open(target, peer)


def _open(target: Device, peer: Device) -> None:
    with suppress(AllotmentError):  # who needs the access is told
        if is_peer_access_supported(target, peer):
            set_peer_access_enabled(target, peer, True)
        if is_mempool_access_supported(target, peer):
            set_mempool_access_enabled(target, peer, True)
