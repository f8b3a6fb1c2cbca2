"""Handles by which one simulated platform opens memory of another, as one process opens memory of another.

Simulated memory belongs to its process, so two platforms of one process stand for two processes on one machine.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import count
from secrets import token_bytes
from struct import Struct
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from allotment.errors import UnsupportedError
from allotment.memory_kind import MemoryKind
from allotment.platform.simulated._errors import (
    INVALID_DEVICE,
    INVALID_HANDLE,
    INVALID_VALUE,
    NOT_SUPPORTED,
    Refused,
)
from allotment.platform.simulated._owned_memory import OwnedBlock
from allotment.platform.simulated._pointer import Allocation, Foreign

if TYPE_CHECKING:
    from allotment.platform.simulated._memory import Memory
    from allotment.platform.simulated._simulation import Simulation

HANDLE_SIZE: Final = 64
"""CUDA_IPC_HANDLE_SIZE."""
_LAYOUT: Final = Struct("<16s16sQQQ8x")
_MAGIC: Final = b"allotment-sim-1\0"
_machines: Final[WeakValueDictionary[bytes, Exchange]] = WeakValueDictionary()
"""The platforms of this process that have handed handles out, while they live."""


@dataclass(slots=True, eq=False)
class Import(Foreign):
    """Memory of another platform: the source that an opened block stands for."""

    owner: Exchange
    serial: int
    opened: int = 1


class Exchange:
    """What one platform gives to others, and has of them.

    Parameters
    ----------
    platform
        The platform.
    memory
        Its memory.
    """

    def __init__(self, platform: Simulation, memory: Memory) -> None:
        self._token = token_bytes(16)
        self._profile = platform.profile
        self._memory = memory
        memory.on_release.append(self.withdraw)
        self._serials = count(1)
        self._exports: dict[int, tuple[Allocation, int]] = {}
        self._importers: list[tuple[Exchange, Allocation]] = []

    # Giving

    def export(self, ptr: int) -> bytes:
        """Return the handle of the cudaMalloc memory around an address; the same one each time."""
        block = self._memory.allocations.around(ptr)
        if block is None or block.kind is not MemoryKind.CUDA_DEVICE or isinstance(block.source, (OwnedBlock, Foreign)):
            raise Refused(INVALID_VALUE, f"{ptr:#x} is not memory of cudaMalloc, which is all that has a handle")
        if self._profile.devices[block.device].ipc is False:
            raise Refused(NOT_SUPPORTED, f"device {block.device} has no handles for other processes")
        exported = self._exports.get(block.ptr)
        if exported is None or exported[0] is not block:
            exported = block, next(self._serials)
            self._exports[block.ptr] = exported
            _machines[self._token] = self
        return _LAYOUT.pack(_MAGIC, self._token, os.getpid(), block.ptr, exported[1])

    def withdraw(self, block: Allocation) -> None:
        """Note that a block is freed: it is gone for those too who opened it."""
        exported = self._exports.get(block.ptr)
        if exported is not None and exported[0] is block:
            del self._exports[block.ptr]
            for importer, imported in self._importers:
                if imported.ptr == block.ptr:
                    importer.forget(imported)
            self._importers = [entry for entry in self._importers if entry[1].ptr != block.ptr]

    # Taking

    def open(self, handle: bytes, ordinal: int) -> int:
        """Return the address of the memory that a handle stands for; ``ordinal`` gets access to it."""
        owner, block, serial = self._find(handle)
        present = self._memory.allocations.at(block.ptr)
        if present is not None and isinstance(present.source, Import) and present.source.serial == serial:
            present.source.opened += 1
            return block.ptr
        device = self._ordinal_of(owner, block)
        imported = Allocation(block.ptr, block.nbytes, block.kind, device, Import(owner, serial))
        imported.readers = frozenset({device, ordinal})
        self._memory.allocations.add(imported)
        owner._importers.append((self, imported))
        return block.ptr

    def close_import(self, ptr: int) -> None:
        """Undo `open`, which may have been called more than once."""
        block = self._memory.allocations.at(ptr)
        if block is None or not isinstance(block.source, Import):
            raise Refused(INVALID_VALUE, f"{ptr:#x} was not opened with a handle")
        block.source.opened -= 1
        if block.source.opened == 0:
            self._memory.allocations.remove(block)
            owner = block.source.owner
            owner._importers = [entry for entry in owner._importers if entry[1] is not block]

    def forget(self, block: Allocation) -> None:
        """Forget memory that its owner freed."""
        if self._memory.allocations.at(block.ptr) is block:
            self._memory.allocations.remove(block)

    def close(self) -> None:
        """Take all memory back from others."""
        for block, _ in list(self._exports.values()):
            self.withdraw(block)
        _machines.pop(self._token, None)

    # How it is done

    def _find(self, handle: bytes) -> tuple[Exchange, Allocation, int]:
        if len(handle) != HANDLE_SIZE or not handle.startswith(_MAGIC):
            raise Refused(INVALID_HANDLE, "these bytes are not a handle of simulated memory")
        _, token, process, ptr, serial = _LAYOUT.unpack(handle)
        if token == self._token:
            raise Refused("cudaErrorDeviceUninitialized", "a process cannot open memory of its own")
        if process != os.getpid():
            raise UnsupportedError(
                f"the handle comes from process {process}, and simulated memory cannot be shared between processes. "
                "Two simulated platforms of one process can share it, as two processes share memory of a GPU."
            )
        owner = _machines.get(token)
        exported = owner._exports.get(ptr) if owner is not None else None
        if owner is None or exported is None or exported[1] != serial:
            raise Refused(INVALID_HANDLE, "the memory that the handle stands for is gone")
        return owner, exported[0], serial

    def _ordinal_of(self, owner: Exchange, block: Allocation) -> int:
        device = owner._profile.devices[block.device]
        if device not in self._profile.devices:
            raise Refused(INVALID_DEVICE, f"the memory is on device {device.uuid}, which is not simulated here")
        return self._profile.devices.index(device)
