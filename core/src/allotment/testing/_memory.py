"""The contents of memory, read and written through the platform and never through the allocator under test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from allotment.platform import StridedMemory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from allotment.device import Device

_SEED: Final = 0x5EED
_BYTE: Final = np.dtype(np.uint8)


def pattern(nbytes: int, seed: int) -> NDArray[np.uint8]:
    """Return bytes that differ from those of any other seed in nearly every place."""
    return np.random.default_rng((_SEED, seed)).integers(0, 256, nbytes, dtype=np.uint8)


class Memory:
    """Copies between memory of a device and NumPy arrays, on the device's null stream.

    Parameters
    ----------
    device
        The device. Memory of the host is copied on the first CUDA device, which reaches page-locked and managed memory.
    """

    def __init__(self, device: Device) -> None:
        self._platform = device.platform
        self._ordinal = max(device.ordinal, 0)
        self._has_streams = self._platform.device_count() > 0

    def write(self, ptr: int, data: NDArray[np.uint8]) -> None:
        """Put bytes into memory."""
        self._platform.copy(ptr, data.ctypes.data, data.nbytes, 0, self._ordinal)
        self.wait()

    def read(self, ptr: int, nbytes: int) -> NDArray[np.uint8]:
        """Return bytes of memory."""
        data = np.empty(nbytes, np.uint8)
        self._platform.copy(data.ctypes.data, ptr, nbytes, 0, self._ordinal)
        self.wait()
        return data

    def fill_by_kernel(self, ptr: int, nbytes: int, byte: int, ordinal: int) -> None:
        """Set bytes by work that a device does itself, as a kernel does."""
        whole = StridedMemory(ptr, (nbytes,), (1,), _BYTE, ordinal, None)
        self._platform.fill_elements(whole, np.uint8(byte), 0, ordinal)
        self._platform.synchronize_device(ordinal)

    def wait(self) -> None:
        """Wait for the copies so far."""
        if self._has_streams:
            self._platform.synchronize_stream(0, self._ordinal)
