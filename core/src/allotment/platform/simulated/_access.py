"""Who may touch what: the rules of the hardware."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allotment.memory_kind import MemoryKind
from allotment.platform._values import HOST_LOCATION
from allotment.platform.simulated._errors import (
    ILLEGAL_ADDRESS,
    INVALID_DEVICE,
    NOT_SUPPORTED,
    SEGMENTATION_FAULT,
    Refused,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from allotment.platform.simulated._pointer import Allocation, Allocations
    from allotment.platform.simulated._pool import Pool
    from allotment.platform.simulated._profile import Profile


class Access:
    """The grants in force, and what follows from them and from what the devices can do.

    Parameters
    ----------
    profile
        The devices.
    allocations
        All live blocks.
    is_ours
        Says whether an address is one that the simulation hands out, live or not.
    """

    def __init__(self, profile: Profile, allocations: Allocations, is_ours: Callable[[int], bool]) -> None:
        self._profile = profile
        self._allocations = allocations
        self._is_ours = is_ours
        self._peers: set[tuple[int, int]] = set()

    # Peers

    def can_peer(self, ordinal: int, peer: int) -> bool:
        """Return whether the hardware lets ``ordinal`` reach the memory of ``peer``."""
        return self._profile.peers[ordinal][peer]

    def enable_peer(self, ordinal: int, peer: int) -> None:
        """Let ``ordinal`` touch memory of ``peer`` that is in no pool."""
        if not self.can_peer(ordinal, peer):
            raise Refused("cudaErrorPeerAccessUnsupported", f"device {ordinal} cannot reach device {peer}")
        if (ordinal, peer) in self._peers:
            raise Refused("cudaErrorPeerAccessAlreadyEnabled", f"device {ordinal} may touch device {peer} already")
        self._peers.add((ordinal, peer))

    def disable_peer(self, ordinal: int, peer: int) -> None:
        """Undo `enable_peer`."""
        if (ordinal, peer) not in self._peers:
            raise Refused("cudaErrorPeerAccessNotEnabled", f"device {ordinal} has no access to device {peer}")
        self._peers.remove((ordinal, peer))

    # Pools

    def grant_pool(self, pool: Pool, ordinal: int, *, granted: bool) -> None:
        """Let a device touch a pool's memory, or not (recorded: peer/pool-access-calls)."""
        if ordinal == HOST_LOCATION:
            raise Refused(NOT_SUPPORTED, "the host cannot be given access to a pool of device memory")
        self.check_ordinal(ordinal)
        if pool.kind is not MemoryKind.CUDA_MEMPOOL:
            (pool.readers.add if granted else pool.readers.discard)(ordinal)
            return
        if granted and ordinal != pool.ordinal and not self.can_peer(ordinal, pool.ordinal):
            raise Refused(INVALID_DEVICE, f"device {ordinal} cannot reach device {pool.ordinal}")
        if granted:
            pool.readers.add(ordinal)
        elif ordinal == pool.ordinal:
            raise Refused(INVALID_DEVICE, f"device {ordinal} cannot be kept out of its own pool")
        else:
            pool.readers.discard(ordinal)

    # Mappings

    def grant_mappings(self, mappings: Sequence[Allocation], ordinal: int, *, granted: bool) -> None:
        """Let a device touch mapped memory, or not; peer access neither helps nor is needed."""
        self.check_ordinal(ordinal)
        for mapping in mappings:
            if granted and ordinal != mapping.device and not self.can_peer(ordinal, mapping.device):
                raise Refused(INVALID_DEVICE, f"device {ordinal} cannot reach device {mapping.device}")
        for mapping in mappings:
            readers = mapping.readers or frozenset()
            mapping.readers = readers | {ordinal} if granted else readers - {ordinal}

    # Rules

    def can_touch(self, ordinal: int, block: Allocation) -> bool:
        """Return whether a kernel on a device may touch a block."""
        device = self._profile.devices[ordinal]
        if block.kind is MemoryKind.CUDA_MANAGED:
            return device.managed_memory
        if block.granted is not None:
            return ordinal in block.granted
        if block.kind is MemoryKind.PINNED:
            return device.unified_addressing or device.pageable_memory_access
        return block.device == ordinal or (ordinal, block.device) in self._peers

    def check_kernel(self, ordinal: int, ptr: int, nbytes: int) -> None:
        """Fault, as a kernel would, if a device cannot touch all of a range."""
        self.check_touch(ordinal, self._allocations.spanning(ptr, nbytes), ptr, nbytes)

    def check_mapped(self, ordinal: int, ptr: int, nbytes: int) -> None:
        """Fault if a range is not mapped for a device, whatever else it may reach."""
        block = self._allocations.spanning(ptr, nbytes)
        if block is None and nbytes > 0:
            raise Refused(ILLEGAL_ADDRESS, f"device {ordinal} touched {ptr:#x}, where nothing is mapped")
        self.check_touch(ordinal, block, ptr, nbytes)

    def check_touch(self, ordinal: int, block: Allocation | None, ptr: int, nbytes: int) -> None:
        """Fault if a device cannot touch a range of a block, which may have been freed behind the kernel since."""
        if nbytes <= 0:
            return
        if block is None:
            self._check_pageable(ordinal, ptr)
        elif ptr + nbytes > block.end:
            raise Refused(ILLEGAL_ADDRESS, f"a kernel ran past the block of {block.nbytes:,} bytes at {block.ptr:#x}")
        elif not self.can_touch(ordinal, block):
            raise Refused(
                ILLEGAL_ADDRESS,
                f"a kernel on device {ordinal} touched {block.kind.name} memory of device {block.device} at {ptr:#x}",
            )

    def check_host(self, ptr: int, nbytes: int, *, any_device_works: bool) -> None:
        """Refuse an access from host code that would end the process.

        Where managed memory is not concurrent, host code may touch it only while no device works.
        """
        block = self._allocations.spanning(ptr, nbytes)
        if block is None:
            if ptr == 0 or self._is_ours(ptr):
                raise Refused(SEGMENTATION_FAULT, f"host code touched {ptr:#x}, where nothing is live")
            return
        if ptr + nbytes > block.end:
            raise Refused(
                SEGMENTATION_FAULT, f"host code ran past the block of {block.nbytes:,} bytes at {block.ptr:#x}"
            )
        if block.on_device:
            raise Refused(SEGMENTATION_FAULT, f"host code touched memory of device {block.device} at {ptr:#x}")
        if block.kind is MemoryKind.CUDA_MANAGED and any_device_works and not self._is_concurrent(block):
            raise Refused(
                SEGMENTATION_FAULT, f"host code touched managed memory at {ptr:#x} while a device was at work"
            )

    def check_ordinal(self, ordinal: int) -> None:
        """Refuse a device that is not there."""
        count = len(self._profile.devices)
        if count == 0:
            raise Refused("cudaErrorNoDevice", "the profile has no devices")
        if not 0 <= ordinal < count:
            raise Refused(INVALID_DEVICE, f"there is no device {ordinal}, only 0 to {count - 1}")

    def _is_concurrent(self, block: Allocation) -> bool:
        device = self._profile.devices[block.device]
        return device.concurrent_managed_access or device.direct_managed_access_from_host

    def _check_pageable(self, ordinal: int, ptr: int) -> None:
        if ptr == 0:
            raise Refused(ILLEGAL_ADDRESS, f"a kernel on device {ordinal} followed a null pointer")
        if self._is_ours(ptr):
            raise Refused(ILLEGAL_ADDRESS, f"a kernel on device {ordinal} touched {ptr:#x}, where nothing is live")
        if not self._profile.devices[ordinal].pageable_memory_access:
            raise Refused(ILLEGAL_ADDRESS, f"a kernel on device {ordinal} touched pageable host memory at {ptr:#x}")
