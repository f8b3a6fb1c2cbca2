"""Devices: which there are, what they can do, which is current."""

from __future__ import annotations

import os
from enum import IntEnum
from typing import Any, Final
from uuid import UUID
from warnings import warn

from allotment.errors import ConfigWarning, UnsupportedError
from allotment.platform._values import DeviceProperties, MemoryInfo
from allotment.platform.cuda._availability import VISIBLE_DEVICES
from allotment.platform.cuda._calls import Calls
from allotment.platform.cuda._errors import platform_error, reports

_UUID_SIZE: Final = 16


class DeviceAttribute(IntEnum):
    """Attributes of a device, with the driver's values (``CUdevice_attribute``)."""

    INTEGRATED = 18
    UNIFIED_ADDRESSING = 41
    MANAGED_MEMORY = 83
    HOST_NATIVE_ATOMIC_SUPPORTED = 86
    PAGEABLE_MEMORY_ACCESS = 88
    CONCURRENT_MANAGED_ACCESS = 89
    DIRECT_MANAGED_MEM_ACCESS_FROM_HOST = 101
    VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102
    MEMORY_POOLS_SUPPORTED = 115
    IPC_EVENT_SUPPORTED = 125


class Devices(Calls):
    """The calls about devices."""

    def __init__(self) -> None:
        super().__init__()
        self._visible_at_first = os.environ.get(VISIBLE_DEVICES)

    @reports("cudaGetDeviceCount")
    def device_count(self) -> int:
        """Return the number of CUDA devices that the driver found when it was initialised. Opens no context."""
        if os.environ.get(VISIBLE_DEVICES) != self._visible_at_first:
            warn(
                f"{VISIBLE_DEVICES} was changed after the CUDA driver had read it, which has no effect in this process",
                ConfigWarning,
                stacklevel=3,
            )
            self._visible_at_first = os.environ.get(VISIBLE_DEVICES)
        return int(self._runtime.getDeviceCount())

    @reports("cudaGetDeviceProperties")
    def device_properties(self, ordinal: int) -> DeviceProperties:
        """Return what a device is and can do. Opens no context."""
        found: dict[str, Any] = self._runtime.getDeviceProperties(ordinal)
        return DeviceProperties(
            name=found["name"].decode(),
            total_memory=found["totalGlobalMem"],
            compute_capability=(found["major"], found["minor"]),
            sm_count=found["multiProcessorCount"],
            max_shared_memory_per_block=found["sharedMemPerBlock"],
            uuid=self._uuid(ordinal, bytes(found["uuid"])),
            pci_bus_id=f"{found['pciDomainID']:08X}:{found['pciBusID']:02X}:{found['pciDeviceID']:02X}",
            unified_addressing=self._has(ordinal, DeviceAttribute.UNIFIED_ADDRESSING),
            pageable_memory_access=self._has(ordinal, DeviceAttribute.PAGEABLE_MEMORY_ACCESS),
            direct_managed_access_from_host=self._has(ordinal, DeviceAttribute.DIRECT_MANAGED_MEM_ACCESS_FROM_HOST),
            host_native_atomic=self._has(ordinal, DeviceAttribute.HOST_NATIVE_ATOMIC_SUPPORTED),
            managed_memory=self._has(ordinal, DeviceAttribute.MANAGED_MEMORY),
            concurrent_managed_access=self._has(ordinal, DeviceAttribute.CONCURRENT_MANAGED_ACCESS),
            memory_pools=self._has(ordinal, DeviceAttribute.MEMORY_POOLS_SUPPORTED),
            virtual_memory=self._has(ordinal, DeviceAttribute.VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
            integrated=self._has(ordinal, DeviceAttribute.INTEGRATED),
            ipc=self._attribute(ordinal, DeviceAttribute.IPC_EVENT_SUPPORTED),
        )

    def versions(self) -> tuple[int, int]:
        """Return the CUDA versions of the runtime in CuPy and of the driver, as 1000 × major + 10 × minor."""
        return self._runtime.runtimeGetVersion(), self._runtime.driverGetVersion()

    def has_context(self, ordinal: int) -> bool:
        """Return whether a device's primary context is open. Opens none."""
        return self._bindings.context_is_open(ordinal)

    @reports("cudaMemGetInfo")
    def memory_info(self, ordinal: int) -> MemoryInfo:
        """Return a device's free and total memory. Opens its context."""
        with self._on(ordinal):
            return MemoryInfo(*self._runtime.memGetInfo())

    @reports("cudaDeviceSynchronize")
    def synchronize_device(self, ordinal: int) -> None:
        """Wait for all work on a device."""
        with self._on(ordinal):
            self._runtime.deviceSynchronize()

    @reports("cudaDeviceCanAccessPeer")
    def can_access_peer(self, ordinal: int, peer: int) -> bool:
        """Return whether the hardware lets device ``ordinal`` touch memory of ``peer``. Opens no context."""
        return bool(self._runtime.deviceCanAccessPeer(ordinal, peer))

    @reports("cudaDeviceEnablePeerAccess")
    def enable_peer_access(self, ordinal: int, peer: int) -> None:
        """Let device ``ordinal`` touch cudaMalloc memory of ``peer``."""
        with self._on(ordinal):
            self._runtime.deviceEnablePeerAccess(peer)

    @reports("cudaDeviceDisablePeerAccess")
    def disable_peer_access(self, ordinal: int, peer: int) -> None:
        """Undo `enable_peer_access`."""
        with self._on(ordinal):
            self._runtime.deviceDisablePeerAccess(peer)

    def _has(self, ordinal: int, attribute: DeviceAttribute) -> bool:
        return bool(self._attribute(ordinal, attribute))

    def _attribute(self, ordinal: int, attribute: DeviceAttribute) -> bool | None:
        """Return a flag of a device, ``None`` if the driver is older than the attribute."""
        try:
            return bool(self._runtime.deviceGetAttribute(int(attribute), ordinal))
        except self._runtime.CUDARuntimeError as error:
            failure = platform_error(error)
            if failure is not None and failure.code == "cudaErrorInvalidValue":
                return None
            raise

    def _uuid(self, ordinal: int, from_cupy: bytes) -> str:
        """Return the identifier. CuPy's is cut at the first zero byte; if no other is to be had, it is padded."""
        try:
            identifier = self._bindings.uuid(ordinal)
        except UnsupportedError:
            identifier = from_cupy[:_UUID_SIZE].ljust(_UUID_SIZE, b"\0")
        return f"GPU-{UUID(bytes=identifier)}"
