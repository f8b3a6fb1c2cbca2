"""Watched memory around each block and in freed ones, so that writes which go astray are found."""

from __future__ import annotations

import ctypes
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import numpy as np

from allotment._locks import RenewedLock
from allotment._process import on_shutdown
from allotment.allocator import SupportsTrim
from allotment.errors import GuardError, OutOfBoundsError, UseAfterFreeError
from allotment.layers.call_site import capture_site, read_site
from allotment.layers.capture_status import is_captured
from allotment.layers.holder import KnowsBlocks
from allotment.layers.layer import Calls, Place, is_shortage
from allotment.memory_kind import MemoryKind
from allotment.stream import stream_in_force
from allotment.units import MemoryAmount, positive

if TYPE_CHECKING:
    from allotment.device import Device
    from allotment.layers.accounting import AccountedAllocator
    from allotment.layers.call_site import RawSite
    from allotment.stream import Stream

ZONE_BYTE: Final = 0xA5
"""What is in the zones around a block."""
POISON_BYTE: Final = 0xDB
"""What is in a freed block; four or eight of them are no usual number and no address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardOptions:
    """Options of the layer ``guard``.

    Parameters
    ----------
    quarantine
        How much freed memory is kept from use for a while, so that late writes are found.
    zone
        The bytes that are watched behind each block, and before it at least: there they are a multiple of the
        allocator's alignment.
    """

    quarantine: MemoryAmount = MemoryAmount.parse("64 MiB")
    zone: Annotated[int, positive] = 256


@dataclass(slots=True, eq=False)
class _Guarded:
    """A block with its zones."""

    ptr: int
    nbytes: int
    base: int
    total: int
    stream: tuple[Stream, ...]
    allocated: RawSite
    freed: RawSite = ()
    is_told: bool = False


class Guard:
    """Finds writes before, behind and after the life of blocks.

    Zones around a block are filled on allocation and looked at when it is freed. A freed block is filled too and kept
    from use for a while; when it leaves the quarantine, whoever wrote to it meanwhile is found. All work of the device
    is waited for at each free, so this is for finding faults. While a graph is captured, blocks are not guarded.

    Parameters
    ----------
    options
        See `GuardOptions`.
    device
        The device of the account.

    Raises
    ------
    ValueError
        For a quarantine that is a fraction, on the host.
    """

    name: ClassVar = "guard"
    Options: ClassVar = GuardOptions
    place: ClassVar = Place.GUARD

    def __init__(self, options: GuardOptions, device: Device) -> None:
        if device.is_cpu and options.quarantine.nbytes is None:
            raise ValueError("a quarantine on the host is in bytes: it has no total to take a part of")
        self.quarantine, self.zone = options.quarantine.resolve(device.total_memory), options.zone
        self._device = device
        self._lock = RenewedLock()
        self._live: dict[int, _Guarded] = {}
        self._idle: deque[_Guarded] = deque()
        self._idle_bytes = 0
        self._findings: list[GuardError] = []
        on_shutdown(self._tell)

    @property
    def idle_bytes(self) -> int:
        """The memory in quarantine, zones included."""
        return self._idle_bytes

    def wrap(self, calls: Calls, account: AccountedAllocator) -> Calls:
        """Return the calls with zones around each block."""
        self._inner, self._account = calls, account
        self._front = -(-self.zone // account.traits.alignment) * account.traits.alignment
        tracker = next((layer for layer in account.layers if isinstance(layer, KnowsBlocks)), None)
        self._depth = 0 if tracker is None else tracker.depth
        return Calls(self._allocate, self._deallocate, self._record_use)

    def check(self) -> None:
        """Look at all blocks now, live and freed ones, and raise what is found.

        Raises
        ------
        GuardError
            The first finding. Others are raised by the next call.
        """
        self._device.captures.refuse_unsafe("a look at guarded memory")
        self._wait()
        with self._lock():
            for block in [*self._live.values(), *self._idle]:
                if not block.is_told:
                    self._note(self._fault_of(block, is_idle=block.ptr not in self._live), block)
        self._tell()

    def trim(self, keep_bytes: int) -> int:
        """Let blocks leave the quarantine until at most ``keep_bytes`` are in it; return the bytes given back.

        What is found then is raised by the next allocation or `check`: who trims should not be stopped by it.
        """
        before = self._idle_bytes
        self._release(keep_bytes)
        is_kept = isinstance(self._account.allocator, SupportsTrim)  # and it is asked next
        return 0 if is_kept else before - self._idle_bytes

    def close(self) -> None:
        """Let all blocks leave the quarantine.

        Raises
        ------
        GuardError
            If one of them was written to. Closing again goes on.
        """
        self._release(0)
        self._tell()

    # The calls

    def _allocate(self, size: int, *stream: Stream) -> int:
        if is_captured(self._device, *stream):
            return self._inner.allocate(size, *stream)
        self._tell()
        total = self._front + size + self.zone
        base = self._allocate_or_release(total, *stream)
        block = _Guarded(base + self._front, size, base, total, stream, capture_site(self._depth))
        try:
            self._fill(base, ZONE_BYTE, self._front, *stream)
            self._fill(block.ptr + size, ZONE_BYTE, self.zone, *stream)
        except BaseException:
            self._inner.deallocate(base, total, *stream)
            raise
        self._live[block.ptr] = block
        return block.ptr

    def _allocate_or_release(self, total: int, *stream: Stream) -> int:
        try:
            return self._inner.allocate(total, *stream)
        except Exception as error:
            if not self._idle or not is_shortage(error, self._device.platform):
                raise
        self._release(0)
        return self._inner.allocate(total, *stream)

    def _deallocate(self, ptr: int, size: int, *stream: Stream) -> None:
        block = self._live.get(ptr)
        if block is None:
            self._inner.deallocate(ptr, size, *stream)
        elif is_captured(self._device, *stream):
            self._forget(block)
            self._give_back(block)
        else:
            self._retire(block)

    def _record_use(self, ptr: int, stream: Stream) -> None:
        block = self._live.get(ptr)
        self._inner.record_use(ptr if block is None else block.base, stream)

    # The life of a block

    def _retire(self, block: _Guarded) -> None:
        self._wait()
        block.freed = capture_site(self._depth)
        if not block.is_told and (fault := self._fault_of(block, is_idle=False)) is not None:
            block.is_told = True  # it stays live; to free it again goes on
            raise fault
        self._fill(block.base, POISON_BYTE, block.total, *block.stream)
        self._wait()
        with self._lock():
            self._forget(block)
            block.is_told = False
            self._idle.append(block)
            self._idle_bytes += block.total
        self._release(self.quarantine)

    def _release(self, keep: int) -> None:
        is_waited_for = False
        while True:
            with self._lock():
                if self._idle_bytes <= keep or not self._idle:
                    return
                block = self._idle.popleft()
                self._idle_bytes -= block.total
            if not block.is_told and not is_captured(self._device, *block.stream):
                if not is_waited_for:
                    self._wait()
                    is_waited_for = True
                self._note(self._fault_of(block, is_idle=True), block)
            self._give_back(block)

    def _forget(self, block: _Guarded) -> None:
        del self._live[block.ptr]

    def _give_back(self, block: _Guarded) -> None:
        self._inner.deallocate(block.base, block.total, *block.stream)

    # What is found

    def _note(self, fault: GuardError | None, block: _Guarded) -> None:
        if fault is not None:
            block.is_told = True
            self._findings.append(fault)

    def _tell(self) -> None:
        with self._lock():
            finding = self._findings.pop(0) if self._findings else None
        if finding is not None:
            raise finding

    def _fault_of(self, block: _Guarded, *, is_idle: bool) -> GuardError | None:
        if is_idle:
            changed = np.flatnonzero(self._read(block, block.base, block.total) != POISON_BYTE)
            return self._fault(UseAfterFreeError, block, int(changed[0]) - self._front) if changed.size else None
        changed = np.flatnonzero(self._read(block, block.base, self._front) != ZONE_BYTE)
        if changed.size:
            return self._fault(OutOfBoundsError, block, int(changed[-1]) - self._front)
        changed = np.flatnonzero(self._read(block, block.ptr + block.nbytes, self.zone) != ZONE_BYTE)
        return self._fault(OutOfBoundsError, block, block.nbytes + int(changed[0])) if changed.size else None

    def _fault(self, kind: type[GuardError], block: _Guarded, offset: int) -> GuardError:
        sites = None
        if block.allocated:
            freed = f" and freed at {read_site(block.freed)}" if block.freed else ""
            sites = f"It was allocated at {read_site(block.allocated)}{freed}."
        return kind(
            problem=_problem(kind, offset),
            pointer=block.ptr,
            nbytes=block.nbytes,
            offset=offset,
            device=self._device.alias,
            allocator=self._account.name,
            sites=sites,
        )

    # Contents

    def _fill(self, ptr: int, byte: int, nbytes: int, *stream: Stream) -> None:
        if self._device.is_cpu:
            ctypes.memset(ptr, byte, nbytes)
            return
        on = stream[0] if stream else stream_in_force(self._device)
        self._device.platform.fill(ptr, byte, nbytes, on.handle, self._device.ordinal)

    def _read(self, block: _Guarded, ptr: int, nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        found = np.empty(nbytes, np.uint8)
        if self._device.is_cpu:
            ctypes.memmove(found.ctypes.data, ptr, nbytes)
            return found
        on = block.stream[0] if block.stream else stream_in_force(self._device)
        platform, ordinal = self._device.platform, self._device.ordinal
        platform.copy(found.ctypes.data, ptr, nbytes, on.handle, ordinal)
        platform.synchronize_stream(on.handle, ordinal)
        return found

    def _wait(self) -> None:
        """Wait for all work that may use a block: of the device, or of all where page-locked memory is theirs too."""
        if self._device.is_cuda:
            self._device.platform.synchronize_device(self._device.ordinal)
        elif self._account.declared_kind is MemoryKind.PINNED:
            for device in self._device.registry.cuda:
                if device.has_context:
                    device.platform.synchronize_device(device.ordinal)


def _problem(kind: type[GuardError], offset: int) -> str:
    if kind is UseAfterFreeError:
        return "a block was written after it was freed"
    return f"a write went {'before the start' if offset < 0 else 'beyond the end'} of a block"
