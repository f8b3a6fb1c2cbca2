"""Copies, fills and the movement of managed memory."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from allotment.memory_kind import MemoryKind
from allotment.platform._values import HOST_LOCATION, MemoryAdvice
from allotment.platform.simulated import _contents as contents
from allotment.platform.simulated._errors import (
    ILLEGAL_ADDRESS,
    INVALID_DEVICE,
    INVALID_VALUE,
    SEGMENTATION_FAULT,
    Refused,
)
from allotment.platform.simulated._pointer import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from allotment.platform._values import StridedMemory
    from allotment.platform.simulated._access import Access
    from allotment.platform.simulated._memory import Memory
    from allotment.platform.simulated._pointer import Allocation, ManagedState
    from allotment.platform.simulated._profile import Profile
    from allotment.platform.simulated._stream import Stream, Streams, Work

_NEEDS_PLACE = (MemoryAdvice.SET_PREFERRED_LOCATION, MemoryAdvice.SET_ACCESSED_BY, MemoryAdvice.UNSET_ACCESSED_BY)
"""Advice that is refused for a place that is not there (recorded: managed/advice)."""


class Transfers:
    """Moves data in the order of streams.

    Parameters
    ----------
    profile
        The devices.
    memory
        The live blocks.
    access
        Who may touch them.
    streams
        Where work is queued.
    launch
        Queues work on a stream; what it raises is a kernel's fault.
    """

    def __init__(
        self,
        profile: Profile,
        memory: Memory,
        access: Access,
        streams: Streams,
        launch: Callable[[Work, Stream], None],
    ) -> None:
        self._profile = profile
        self._memory = memory
        self._access = access
        self._streams = streams
        self._launch = launch

    # Copies

    def copy(self, dst: int, src: int, nbytes: int, stream: Stream) -> None:
        """Copy as cudaMemcpyAsync does: a pool that the stream's device may not touch is refused."""
        if nbytes == 0:
            return
        if self._is_gone(src, stream):
            raise Refused(SEGMENTATION_FAULT, f"CUDA ends a process that copies from {src:#x}, where nothing is live")
        for ptr in (dst, src):
            self._check_grant(ptr, self._span(ptr, nbytes, stream), stream.ordinal)
        self._queue(
            self._moving(dst, src, nbytes, stream), ((dst, stream.ordinal), (src, stream.ordinal)), nbytes, stream
        )

    def copy_node(self, dst: int, src: int, nbytes: int, ordinal: int) -> tuple[Work, frozenset[int], Work]:
        """Return a copy that a device makes as part of a graph: the work, what it follows, and what is checked."""
        for ptr in (dst, src):
            self._check_grant(ptr, self._span(ptr, nbytes), ordinal)
        work = self._guarded(partial(contents.move, dst, src, nbytes), [(ordinal, end, nbytes) for end in (dst, src)])
        return work, frozenset(), self._still_there((dst, src), nbytes)

    def copy_peer(self, dst: tuple[int, int], src: tuple[int, int], nbytes: int, stream: Stream) -> None:
        """Copy as cudaMemcpyPeerAsync does between an address and a device each.

        No grant is needed if these are the memory's own devices; pageable memory is refused.
        """
        if nbytes == 0:
            return
        for ptr, ordinal in (dst, src):
            block = self._span(ptr, nbytes)
            if block is None:
                raise Refused(INVALID_VALUE, f"{ptr:#x} is pageable host memory")
            self._check_grant(ptr, block, ordinal)
        self._queue(self._moving(dst[0], src[0], nbytes, stream), (dst, src), nbytes, stream)

    def copy_elements(self, dst: StridedMemory, src: StridedMemory, stream: Stream) -> tuple[Work, Work]:
        """Return the work of a kernel that copies elements, and what is checked before it."""

        def kernel() -> None:
            contents.view(dst)[...] = contents.view(src)

        return self.guarded(kernel, (dst, src), stream), self.touch((dst, src), stream)

    def touch(self, memories: Sequence[StridedMemory], stream: Stream) -> Work:
        """Return what faults if a kernel on a stream may not touch elements in memory."""
        checks = [self._checked(memory, stream) for memory in memories]

        def check() -> None:
            for touch in checks:
                touch()

        return check

    def guarded(self, work: Work, memories: Sequence[StridedMemory], stream: Stream) -> Work:
        """Return the work of a kernel that faults where memory it is given is not mapped when its turn comes."""
        return self._guarded(work, [(stream.ordinal, *contents.extent(memory)) for memory in memories])

    def fill(self, ptr: int, byte: int, nbytes: int, stream: Stream) -> None:
        """Set bytes as cudaMemsetAsync does: device memory of another device is refused, granted or not."""
        if nbytes == 0:
            return
        block = self._span(ptr, nbytes, stream)
        if block is None and not self._profile.devices[stream.ordinal].pageable_memory_access:
            raise Refused(INVALID_VALUE, f"{ptr:#x} is pageable host memory")
        if block is not None and block.on_device and block.device != stream.ordinal:
            raise Refused(INVALID_VALUE, f"{ptr:#x} belongs to device {block.device}, the stream to {stream.ordinal}")
        if block is not None and block.reservation is not None:
            self._check_grant(ptr, block, stream.ordinal)
        self._queue(partial(contents.set_bytes, ptr, byte & 0xFF, nbytes), ((ptr, stream.ordinal),), nbytes, stream)

    def fill_elements(self, dst: StridedMemory, value: np.generic, stream: Stream) -> tuple[Work, Work]:
        """Return the work of a kernel that sets elements, and what is checked before it."""

        def kernel() -> None:
            contents.view(dst)[...] = value

        return self.guarded(kernel, (dst,), stream), self._checked(dst, stream)

    # Managed memory

    def advise(self, ptr: int, nbytes: int, advice: MemoryAdvice, location: int) -> None:
        """Note advice about managed memory."""
        if advice in _NEEDS_PLACE and location != HOST_LOCATION:
            if not 0 <= location < len(self._profile.devices):
                raise Refused(INVALID_VALUE, f"there is no device {location}")
            self._check_concurrent(location)
        state = self._managed_state(ptr, nbytes, location)
        if state is None:
            return
        match advice:
            case MemoryAdvice.SET_READ_MOSTLY | MemoryAdvice.UNSET_READ_MOSTLY:
                state.read_mostly = advice is MemoryAdvice.SET_READ_MOSTLY
            case MemoryAdvice.SET_PREFERRED_LOCATION:
                state.preferred_location = location
            case MemoryAdvice.UNSET_PREFERRED_LOCATION:
                state.preferred_location = NOWHERE
            case MemoryAdvice.SET_ACCESSED_BY:
                state.accessed_by.add(location)
            case MemoryAdvice.UNSET_ACCESSED_BY:
                state.accessed_by.discard(location)

    def prefetch(self, ptr: int, nbytes: int, location: int, stream: Stream) -> None:
        """Move managed memory in the order of a stream; where its pages are changes nothing else."""
        if location != HOST_LOCATION:
            self._access.check_ordinal(location)
            self._check_concurrent(location)
        self._check_concurrent(stream.ordinal)
        state = self._managed_state(ptr, nbytes, location)
        if state is not None:
            state.last_prefetch = location
        self._streams.submit(stream, None)

    # How it is done

    def _moving(self, dst: int, src: int, nbytes: int, stream: Stream) -> Work:
        """Return the work of a copy; host memory that is not page-locked is read now, unless a graph will do it."""
        is_ours = self._memory.allocations.around(src) is not None
        if is_ours or stream.capture is not None or self._streams.is_idle(stream):
            return partial(contents.move, dst, src, nbytes)
        return partial(contents.write, dst, contents.snapshot(src, nbytes))

    def _queue(self, work: Work, ends: Sequence[tuple[int, int]], nbytes: int, stream: Stream) -> None:
        """Queue or capture work on addresses that a device each touches.

        Captured work faults at the launch if memory outside the graph is gone by then.
        """
        guarded = self._guarded(work, [(ordinal, ptr, nbytes) for ptr, ordinal in ends])
        if stream.capture is not None:
            stream.capture.add(stream, guarded, self._still_there([ptr for ptr, _ in ends], nbytes))
        elif guarded is work:
            self._streams.submit(stream, work)
        else:
            self._launch(guarded, stream)

    def _guarded(self, work: Work, ranges: Sequence[tuple[int, int, int]]) -> Work:
        """Return work that faults where nothing is mapped behind reserved addresses when its turn comes.

        Only unmapping takes memory away from work that is queued: all other frees wait for it or are queued behind it.
        """
        reserved = [each for each in ranges if self._memory.virtual.contains(each[1])]
        if not reserved:
            return work

        def guarded() -> None:
            for ordinal, ptr, nbytes in reserved:
                self._access.check_mapped(ordinal, ptr, nbytes)
            work()

        return guarded

    def _still_there(self, ends: Sequence[int], nbytes: int) -> Work:
        known = [ptr for ptr in ends if self._memory.allocations.around(ptr) is not None]

        def check() -> None:
            for ptr in known:
                block = self._memory.allocations.spanning(ptr, nbytes)
                if block is None or ptr + nbytes > block.end:
                    raise Refused(ILLEGAL_ADDRESS, f"a graph copied {nbytes:,} bytes at {ptr:#x}, which is gone")

        return check

    def _check_grant(self, ptr: int, block: Allocation | None, ordinal: int) -> None:
        if block is None or block.granted is None or block.kind is MemoryKind.CUDA_MANAGED:
            return
        if ordinal not in block.granted:
            raise Refused(
                INVALID_VALUE,
                f"device {ordinal} has no access to the {'pool' if block.reservation is None else 'mapping'} "
                f"of {ptr:#x} on device {block.device}",
            )

    def _around(self, ptr: int, stream: Stream | None, nbytes: int = 0) -> Allocation | None:
        """Return the block at an address: of the graph that a stream captures, or a live one."""
        own = stream.capture.block_around(ptr) if stream is not None and stream.capture is not None else None
        return self._memory.allocations.spanning(ptr, nbytes) if own is None else own

    def _is_gone(self, ptr: int, stream: Stream) -> bool:
        return self._around(ptr, stream) is None and self._memory.contains(ptr)

    def _span(self, ptr: int, nbytes: int, stream: Stream | None = None) -> Allocation | None:
        """Return the block that holds a range, or ``None`` for host memory that is not ours."""
        block = self._around(ptr, stream, nbytes)
        if block is None:
            if ptr == 0 or self._memory.contains(ptr):
                raise Refused(INVALID_VALUE, f"nothing is live at {ptr:#x}")
            return None
        if ptr + nbytes > block.end:
            raise Refused(INVALID_VALUE, f"{nbytes:,} bytes from {ptr:#x} run past a block of {block.nbytes:,} bytes")
        return block

    def _managed_state(self, ptr: int, nbytes: int, location: int) -> ManagedState | None:
        """Return the state of a managed range, or ``None`` for system memory that the place shares."""
        block = self._span(ptr, nbytes)
        if block is None and self._shares_system_memory(location):
            return None
        if block is None or block.managed is None:
            raise Refused(INVALID_VALUE, f"{ptr:#x} is not managed memory")
        return block.managed

    def _shares_system_memory(self, location: int) -> bool:
        devices = self._profile.devices
        if 0 <= location < len(devices):
            return devices[location].pageable_memory_access
        return all(device.pageable_memory_access for device in devices)

    def _checked(self, memory: StridedMemory, stream: Stream) -> Work:
        ptr, nbytes = contents.extent(memory)
        if self._memory.virtual.contains(ptr):
            return partial(self._access.check_mapped, stream.ordinal, ptr, nbytes)
        block = self._around(ptr, stream)
        if stream.capture is not None and stream.capture.block_around(ptr) is None:
            return partial(self._access.check_kernel, stream.ordinal, ptr, nbytes)
        return partial(self._access.check_touch, stream.ordinal, block, ptr, nbytes)

    def _check_concurrent(self, ordinal: int) -> None:
        if not self._profile.devices[ordinal].concurrent_managed_access:
            raise Refused(INVALID_DEVICE, f"device {ordinal} has no concurrent managed access")
