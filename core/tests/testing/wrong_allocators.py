"""Allocators that are wrong on purpose, each with the rules of the contract that it breaks, and four that are right.

`test_wrong_allocators` runs the kit on all of them.
"""

import atexit
import inspect
import os
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from threading import Lock, RLock

import numpy as np

from allotment import AllocatorTraits, Availability, MemoryKind, PlatformError, PoolAccess, Reservation
from allotment.testing import RULES, AllocatorConformance
from allotment.testing._rule import check_of

_IN_OTHER_PROCESSES = {"L3", "L4"}


def breaks(*rules: str):
    """Adopt, for an allocator, the tests of the rules that it breaks; those of all rules for one that breaks none."""

    def decorate(factory):
        wanted = set(rules or RULES.keys() - _IN_OTHER_PROCESSES)
        left_out = {"test_any_sequence_of_calls_keeps_contents_and_accounts": None} if rules else {}
        checks = {name: check_of(test) for name, test in inspect.getmembers(AllocatorConformance, inspect.isfunction)}
        left_out |= {name: None for name, check in checks.items() if check and not wanted & set(check.rules)}
        name = f"Test{factory.__name__}"
        adopted = {"allocator_name": name.lower(), "allocator_factory": factory}
        if rules in (("T2",), ("T3",)):
            adopted["deadline"] = 0.5  # these do get stuck
        globals()[name] = type(name, (AllocatorConformance,), {**left_out, **adopted, "__module__": __name__})
        return factory

    return decorate


# ---------------------------------------------------------------------------------------------------------------------
# Right ones


@breaks()
class Plain:
    """Memory straight from the driver."""

    traits = AllocatorTraits(memory_kind=MemoryKind.CUDA_DEVICE, alignment=512)

    def __init__(self, *, device):
        self.device, self.platform = device, device.platform

    def allocate(self, size_in_bytes):
        return self.platform.malloc(size_in_bytes)

    def deallocate(self, ptr, size_in_bytes):
        self.platform.free(ptr)

    @classmethod
    def availability(cls, device):
        return Availability(device.is_cuda, "" if device.is_cuda else "it is memory of a CUDA device")


@breaks()
class Caching(Plain):
    """A free list a size, under a lock. A finaliser that frees in the middle of a call only leaves a note."""

    def __init__(self, *, device):
        super().__init__(device=device)
        self._lock, self._busy, self._noted = RLock(), False, []
        self._idle, self._held, self._peak = {}, 0, 0
        self._memory_limit = self._cache_limit = device.total_memory

    def allocate(self, size_in_bytes):
        return self._alone(self._allocate, size_in_bytes)

    def deallocate(self, ptr, size_in_bytes):
        self.platform.synchronize_device(self.device.ordinal)
        self._alone(self._put, ptr, size_in_bytes)

    def trim(self, keep_bytes=0):
        return self._alone(self._trim, keep_bytes)

    def reservation(self):
        return Reservation(self._held, self._peak)

    def reset_peak_reservation(self):
        self._peak = self._held

    def get_memory_limit(self):
        return self._memory_limit

    def set_memory_limit(self, limit):
        before, self._memory_limit = self._memory_limit, limit
        return before

    def get_cache_limit(self):
        return self._cache_limit

    def set_cache_limit(self, limit):
        before, self._cache_limit = self._cache_limit, limit
        return before

    def close(self):
        self.trim(0)

    def _alone(self, call, *args):
        with self._lock:
            if self._busy:
                self._noted.append((call, args))
                return None
            self._busy = True
            try:
                return call(*args)
            finally:
                while self._noted:
                    noted, its_args = self._noted.pop()
                    noted(*its_args)
                self._busy = False

    def _allocate(self, size):
        if self._idle.get(size):
            return self._idle[size].pop()
        self._make_room(size)
        ptr = self.platform.malloc(size)
        self._held += size
        self._peak = max(self._peak, self._held)
        return ptr

    def _make_room(self, size):
        if self._held + size > self._memory_limit:
            self._trim(self._memory_limit - size)
        if self._held + size > self._memory_limit:
            raise MemoryError("the limit is in the way")

    def _put(self, ptr, size):
        self._idle.setdefault(size, []).append(ptr)
        if (excess := self._idle_bytes() - self._cache_limit) > 0:
            self._trim(self._held - excess)

    def _idle_bytes(self):
        return sum(size * len(pointers) for size, pointers in self._idle.items())

    def _trim(self, keep_bytes):
        before = self._held
        for size, pointers in self._idle.items():
            while pointers and self._held > keep_bytes:
                self.platform.free(pointers[-1])
                pointers.pop()
                self._held -= size
        return before - self._held


@breaks()
class AcceptsUnknownPointers(Plain):
    """Core refuses a wrong free before the allocator hears of it, so it need not check."""

    def deallocate(self, ptr, size_in_bytes):
        if self.platform.pointer_attributes(ptr).base == ptr:
            super().deallocate(ptr, size_in_bytes)


@breaks()
class Mapped(Plain):
    """Memory that it maps itself, which follows peer access."""

    traits = replace(Plain.traits, mapped=True)

    def __init__(self, *, device):
        super().__init__(device=device)
        self._granule = self.platform.mapping_granularity(device.ordinal)
        self._readers, self._blocks = [device.ordinal], {}

    def allocate(self, size_in_bytes):
        nbytes = -(-size_in_bytes // self._granule) * self._granule
        with ExitStack() as undo:
            handle = self.platform.create_physical(self.device.ordinal, nbytes)
            undo.callback(self.platform.release_physical, handle)
            ptr = self.platform.address_range(nbytes)
            undo.callback(self.platform.free_address_range, ptr, nbytes)
            self.platform.map_physical(ptr, nbytes, handle)
            undo.callback(self.platform.unmap_physical, ptr, nbytes)
            for reader in self._readers:
                self.platform.set_mapping_access(ptr, nbytes, reader, PoolAccess.READ_WRITE)
            self.platform.release_physical(handle)
            undo.pop_all()
        self._blocks[ptr] = nbytes
        return ptr

    def deallocate(self, ptr, size_in_bytes):
        self.platform.synchronize_device(self.device.ordinal)
        self.platform.unmap_physical(ptr, self._blocks[ptr])
        self.platform.free_address_range(ptr, self._blocks.pop(ptr))

    def set_peer_access(self, peer, *, enable):
        (self._readers.append if enable else self._readers.remove)(peer.ordinal)
        for ptr, nbytes in self._blocks.items():
            access = PoolAccess.READ_WRITE if enable else PoolAccess.NONE
            self.platform.set_mapping_access(ptr, nbytes, peer.ordinal, access)

    @classmethod
    def availability(cls, device):
        return Availability(device.is_virtual_memory_supported, "" if device.is_virtual_memory_supported else "no VMM")


# ---------------------------------------------------------------------------------------------------------------------
# Rules A, about the two methods


@breaks("A1")
class HasNoDeallocate:
    def allocate(self, size_in_bytes):
        return 512


@breaks("A1")
class WantsKeywords(Plain):
    def __init__(self, *, device):
        super().__init__(device=device)
        self.allocate = lambda *, size_in_bytes: self.platform.malloc(size_in_bytes)


@breaks("A2")
class ReturnsZero(Plain):
    def allocate(self, size_in_bytes):
        return 0


@breaks("A2")
class ReturnsNone(Plain):
    def allocate(self, size_in_bytes):
        super().allocate(size_in_bytes)


@breaks("A2")
class ReturnsNumpyIntegers(Plain):
    def allocate(self, size_in_bytes):
        return np.int64(super().allocate(size_in_bytes))


@breaks("A3", "T1")
class HandsOutTwice(Plain):
    """Every second request of a size gets the block of the first, if that is live."""

    def __init__(self, *, device):
        super().__init__(device=device)
        self._last, self._live = {}, Counter()

    def allocate(self, size_in_bytes):
        ptr = self._last.pop(size_in_bytes, 0)
        if not self._live[ptr]:
            ptr = self._last[size_in_bytes] = super().allocate(size_in_bytes)
        self._live[ptr] += 1
        return ptr

    def deallocate(self, ptr, size_in_bytes):
        self._live[ptr] -= 1
        if not self._live[ptr]:
            super().deallocate(ptr, size_in_bytes)


@breaks("A4", "E1", "L2")
class NeverFrees(Plain):
    def deallocate(self, ptr, size_in_bytes):
        pass


# ---------------------------------------------------------------------------------------------------------------------
# Rules S and M, about sizes, and the memory behind a block


@breaks("S3")
class CountsWithThirtyTwoBits(Plain):
    def allocate(self, size_in_bytes):
        return super().allocate(size_in_bytes % 2**32 or 1)


@breaks("M1")
class DeclaresTheWrongKind(Plain):
    traits = replace(Plain.traits, memory_kind=MemoryKind.CUDA_MANAGED)


@breaks("M2")
class Misaligns(Plain):
    def allocate(self, size_in_bytes):
        return super().allocate(size_in_bytes + 8) + 8

    def deallocate(self, ptr, size_in_bytes):
        super().deallocate(ptr - 8, size_in_bytes)


@breaks("M3")
class UnderAllocates(Plain):
    def allocate(self, size_in_bytes):
        return super().allocate(max(size_in_bytes // 2, 1))


@breaks("M3")
class Overlaps(Plain):
    """Cuts blocks from one slab without a look at their size."""

    def __init__(self, *, device):
        super().__init__(device=device)
        self._slab, self._count = 0, 0

    def allocate(self, size_in_bytes):
        if size_in_bytes > 2**24:
            return super().allocate(size_in_bytes)
        self._slab = self._slab or self.platform.malloc(2**26)
        self._count += 1
        return self._slab + 512 * (self._count % 60_000)

    def deallocate(self, ptr, size_in_bytes):
        if not self._slab <= ptr < self._slab + 2**26:
            super().deallocate(ptr, size_in_bytes)

    def close(self):
        if self._slab:
            self.platform.free(self._slab)


@breaks("M4")
class ClaimsHostAccess(Plain):
    traits = AllocatorTraits(alignment=512, host_accessible=True)


# ---------------------------------------------------------------------------------------------------------------------
# Rules D, about devices


@breaks("D1")
class KnowsOneDevice(Plain):
    def allocate(self, size_in_bytes):
        before = self.platform.current_device()
        self.platform.set_current_device(0)
        try:
            return super().allocate(size_in_bytes)
        finally:
            self.platform.set_current_device(before)


@breaks("D1")
class WakesTheFirstDevice(Plain):
    def __init__(self, *, device):
        super().__init__(device=device)
        self.platform.memory_info(0)


@breaks("D2")
class LeavesAnotherDeviceCurrent(Plain):
    def allocate(self, size_in_bytes):
        ptr = super().allocate(size_in_bytes)
        self.platform.set_current_device(1 - self.device.ordinal)
        return ptr


@breaks("D3")
class ClaimsToServeAllDevices(Plain):
    traits = replace(Plain.traits, device_bound=False)

    def allocate(self, size_in_bytes):
        if self.platform.current_device() != self.device.ordinal:
            raise RuntimeError("not my device")
        return super().allocate(size_in_bytes)


@breaks("D3")
class OptsOutOfTheGuardAndNeedsIt(Plain):
    deallocate_requires_context_guard = False

    def deallocate(self, ptr, size_in_bytes):
        if self.platform.current_device() != self.device.ordinal:
            raise RuntimeError("another device is current")
        super().deallocate(ptr, size_in_bytes)


@breaks("D4")
class ForgetsWhatWasAllocatedBefore(Mapped):
    def set_peer_access(self, peer, *, enable):
        (self._readers.append if enable else self._readers.remove)(peer.ordinal)


@breaks("D4")
class GrantsForEver(Mapped):
    def set_peer_access(self, peer, *, enable):
        if enable:
            super().set_peer_access(peer, enable=True)


# ---------------------------------------------------------------------------------------------------------------------
# Rules W, about work in flight


class _ReusesAtOnce(Caching):
    def deallocate(self, ptr, size_in_bytes):
        self._alone(self._put, ptr, size_in_bytes)


@breaks("W3")
class ReusesAtOnce(_ReusesAtOnce):
    pass


@breaks("W1")
class ClaimsStreamOrderAndReusesAtOnce(_ReusesAtOnce):
    traits = replace(Caching.traits, stream_ordered=True)


@breaks("W1")
class ClaimsStreamOrderAndWaits(Plain):
    traits = replace(Plain.traits, stream_ordered=True)


@breaks("W2")
class ForgetsRecordedUses(_ReusesAtOnce):
    def record_use(self, ptr, stream):
        pass


# ---------------------------------------------------------------------------------------------------------------------
# Rules T, about threads


@breaks("T1")
class Races(Plain):
    """Looks at a free list and takes from it later."""

    def __init__(self, *, device):
        super().__init__(device=device)
        self._idle = {}

    def allocate(self, size_in_bytes):
        idle = self._idle.setdefault(size_in_bytes, [])
        if idle:
            ptr = idle[-1]
            time.sleep(0)
            with suppress(ValueError):
                idle.remove(ptr)
            return ptr
        return super().allocate(size_in_bytes)

    def deallocate(self, ptr, size_in_bytes):
        self.platform.synchronize_device(self.device.ordinal)
        self._idle[size_in_bytes].append(ptr)

    def close(self):
        for pointers in self._idle.values():
            while pointers:
                self.platform.free(pointers.pop())


@breaks("T2")
class KeepsItsLockWhenItFails(Plain):
    def __init__(self, *, device):
        super().__init__(device=device)
        self._lock = RLock()

    def allocate(self, size_in_bytes):
        self._lock.acquire()
        ptr = super().allocate(size_in_bytes)
        self._lock.release()
        return ptr


@breaks("T3")
class LocksOutItsOwnThread(Plain):
    def __init__(self, *, device):
        super().__init__(device=device)
        self._lock = Lock()

    def allocate(self, size_in_bytes):
        with self._lock:
            return super().allocate(size_in_bytes)

    def deallocate(self, ptr, size_in_bytes):
        with self._lock:
            super().deallocate(ptr, size_in_bytes)


# ---------------------------------------------------------------------------------------------------------------------
# Rules R, about what is held


@breaks("R2")
class HoldsMoreThanItSays(Caching):
    def reservation(self):
        return Reservation(self._held // 2, self._peak // 2)


@breaks("R2")
class ForgetsItsPeak(Caching):
    def reservation(self):
        return Reservation(self._held, self._held)


@breaks("R3")
class TrimsNothing(Caching):
    def trim(self, keep_bytes=0):
        return self._idle_bytes()

    def close(self):
        super().trim(0)


@breaks("R3")
class TrimsLiveBlocks(Caching):
    def __init__(self, *, device):
        super().__init__(device=device)
        self._live = {}

    def allocate(self, size_in_bytes):
        ptr = super().allocate(size_in_bytes)
        self._live[ptr] = size_in_bytes
        return ptr

    def deallocate(self, ptr, size_in_bytes):
        if self._live.pop(ptr, None):
            super().deallocate(ptr, size_in_bytes)

    def trim(self, keep_bytes=0):
        if keep_bytes < self._held:
            for ptr, size in list(self._live.items()):
                self.deallocate(ptr, size)
        return super().trim(keep_bytes)


@breaks("R4")
class IgnoresItsMemoryLimit(Caching):
    def _make_room(self, size):
        pass


@breaks("R4")
class RefusesBeforeItGivesBack(Caching):
    def _trim(self, keep_bytes):
        return super()._trim(keep_bytes) if keep_bytes == 0 else 0


@breaks("R4")
class SaysTheNewLimit(Caching):
    def set_memory_limit(self, limit):
        super().set_memory_limit(limit)
        return limit


@breaks("R4")
class KeepsItsLimitToItself(Caching):
    def get_cache_limit(self):
        return self.device.total_memory


@breaks("R4")
class KeepsMoreThanItsCacheLimit(Caching):
    def _put(self, ptr, size):
        self._idle.setdefault(size, []).append(ptr)


@breaks("R4")
class FreesWhatIsAboveItsLimit(TrimsLiveBlocks):
    def set_memory_limit(self, limit):
        self.trim(limit)
        return super().set_memory_limit(limit)


# ---------------------------------------------------------------------------------------------------------------------
# Rules E, about failures


@breaks("E1")
class BreaksWhenMemoryRunsOut(Plain):
    broken = False

    def allocate(self, size_in_bytes):
        if self.broken:
            raise MemoryError
        try:
            return super().allocate(size_in_bytes)
        except PlatformError:
            self.broken = True
            raise


@breaks("E1")
class CallsEveryFailureOutOfMemory(Plain):
    def allocate(self, size_in_bytes):
        try:
            return super().allocate(size_in_bytes)
        except PlatformError:
            raise MemoryError from None


@breaks("E2")
class LeaksWhenItFails(Plain):
    """Has a block for notes beside each block, and forgets it if there is no second one to be had."""

    def __init__(self, *, device):
        super().__init__(device=device)
        self._notes = {}

    def allocate(self, size_in_bytes):
        notes = self.platform.malloc(64)
        ptr = self.platform.malloc(size_in_bytes)
        self._notes[ptr] = notes
        return ptr

    def deallocate(self, ptr, size_in_bytes):
        super().deallocate(ptr, size_in_bytes)
        self.platform.free(self._notes.pop(ptr))


@breaks("E3")
class SwallowsFreeErrors(Plain):
    def deallocate(self, ptr, size_in_bytes):
        with suppress(PlatformError):
            super().deallocate(ptr, size_in_bytes)


@breaks("E3")
class LosesBlocksWhenTrimFails(Caching):
    def _trim(self, keep_bytes):
        before = self._held
        for size, pointers in self._idle.items():
            while pointers and self._held > keep_bytes:
                self._held -= size
                self.platform.free(pointers.pop())
        return before - self._held


# ---------------------------------------------------------------------------------------------------------------------
# Rules L, about the end


@breaks("L2")
class ClosesNothing(Caching):
    def close(self):
        pass


@breaks("L2")
class WorksOnce(Plain):
    """Notes on the platform that one of them was closed."""

    def allocate(self, size_in_bytes):
        if getattr(self.platform, "was_closed", False):
            raise RuntimeError("the library was closed: restart the process")
        return super().allocate(size_in_bytes)

    def close(self):
        self.platform.was_closed = True


@breaks("L3")
class GivesBackWhenItIsCollected(Caching):
    def __del__(self):
        self.close()


@breaks("L3")
class GivesBackAtExit(Caching):
    def __init__(self, *, device):
        super().__init__(device=device)
        atexit.register(self.close)


@breaks("L4")
class GivesBackInTheChild(Caching):
    def __init__(self, *, device):
        super().__init__(device=device)
        os.register_at_fork(after_in_child=lambda: self.platform.free(self.platform.malloc(64)))


# ---------------------------------------------------------------------------------------------------------------------
# Rules P, about what is declared


@breaks("P1")
class AlignsToNoPowerOfTwo(Plain):
    traits = replace(Plain.traits, alignment=384)


@breaks("P1")
class IsMadeForAnotherCore(Plain):
    api_version = (2, 0)


@breaks("P1")
class TakesStreamsHalfWay(Plain):
    def allocate_on(self, size_in_bytes, stream):
        return self.allocate(size_in_bytes)


@breaks("P1")
class HasOtherTraitsThanItsClass(Plain):
    def __init__(self, *, device):
        super().__init__(device=device)
        self.traits = replace(type(self).traits, alignment=256)


@dataclass(frozen=True, kw_only=True)
class _Fixed:
    size: int = 1


@breaks("P1")
class HasOtherTraitsThanItsClassByDefault(HasOtherTraitsThanItsClass):
    Options = _Fixed

    def __init__(self, *, device, options=None):
        super().__init__(device=device)

    @classmethod
    def traits_for(cls, options):
        return replace(cls.traits, alignment=256)


@dataclass
class _Changeable:
    size: int = 1


@breaks("P2")
class HasChangeableOptions(Plain):
    Options = _Changeable

    def __init__(self, *, device, options=None):
        super().__init__(device=device)


@dataclass(frozen=True)
class _Positional:
    size: int = 1


@breaks("P2")
class HasPositionalOptions(HasChangeableOptions):
    Options = _Positional


@breaks("P3")
class RaisesWhenAsked(Plain):
    @classmethod
    def availability(cls, device):
        raise OSError("libmine.so is missing")


@breaks("P3")
class AllocatesWhenAsked(Plain):
    @classmethod
    def availability(cls, device):
        if device.is_cuda:
            device.platform.free(device.platform.malloc(64))
        return super().availability(device)


@breaks("P3")
class GivesNoReason(Plain):
    @classmethod
    def availability(cls, device):
        return Availability(device.is_cuda)


@breaks("P4")
class ClaimsToBeAvailable(Plain):
    @classmethod
    def availability(cls, device):
        return Availability(ok=True)
