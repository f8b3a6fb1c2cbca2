"""Allocators that are wrong on purpose, each with the rules of the contract by which the kit must catch it.

`test_wrong_allocators` runs the whole kit on each of them. The docstring is the fault, as the documentation shows it.
"""

import atexit
import os
import threading
import time
import weakref
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Lock, RLock

from right_allocators import (
    Apart,
    Books,
    Caching,
    FromPool,
    KeepsBooks,
    Mapped,
    Plain,
    RecordsUses,
    Rounds,
    ServesC,
    SetsApart,
)

from allotment import (
    AllocatorTraits,
    Availability,
    Device,
    InvalidPointerError,
    IpcKind,
    MemoryKind,
    PlatformError,
    Reservation,
)

WRONG = {}
"""What is wrong on purpose: each class with the rules that it breaks."""
STUCK = set()
"""Those that get stuck, so that a test of them is not waited for long."""


def breaks(*rules, stuck=False):
    """Note by which rules, and by no others, the kit must catch an allocator."""

    def note(allocator):
        WRONG[allocator] = set(rules)
        if stuck:
            STUCK.add(allocator)
        return allocator

    return note


# ---------------------------------------------------------------------------------------------------------------------
# Rules A, about the two methods


@breaks("A1")
class OnlyServesStreams(FromPool):
    """Has the two methods, and they do nothing, since core calls those with a stream."""

    def allocate(self, size_in_bytes):
        raise NotImplementedError

    def deallocate(self, ptr, size_in_bytes):
        raise NotImplementedError


class Address(int):
    """An int and more."""


@breaks("A2")
class ReturnsItsOwnIntegers(Plain):
    """Returns addresses of a class of its own, which is an int and more."""

    def allocate(self, size_in_bytes):
        return Address(super().allocate(size_in_bytes))


@breaks("A3")
class HandsOutTwice(Plain):
    """Gives every second request of a size the block of the first, if that is live."""

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


@breaks("A4")
class NeverReuses(Caching):
    """Keeps what is freed and asks the driver for more, until the driver has none."""

    def _allocate(self, size):
        try:
            return self._take(size)
        except (MemoryError, PlatformError):
            self._trim(0)
            return self._take(size)

    def largest_free(self):
        return 0


@breaks("A4", "E1", "L2")
class NeverFrees(Plain):
    """Takes nothing back."""

    def deallocate(self, ptr, size_in_bytes):
        pass


# ---------------------------------------------------------------------------------------------------------------------
# Rules S, about sizes


class _CountingZero(Books):
    def allocate(self, size):
        return self.allocate_for(self.answers.find_stream(), 1) if size == 0 else super().allocate(size)


@breaks("S1")
class TakesZeroForABlock(KeepsBooks):
    """Keeps the accounts itself, and hands out a block for zero bytes."""

    books_type = _CountingZero


class _TruncatingSizes(Books):
    def allocate(self, size):
        return super().allocate(int(size) if isinstance(size, float) else size)


@breaks("S2")
class TruncatesSizes(KeepsBooks):
    """Keeps the accounts itself, and takes 1024.5 for a size."""

    books_type = _TruncatingSizes


@breaks("S3")
class CountsWithThirtyTwoBits(Plain):
    """Forgets what of a size is above 4 GiB."""

    def allocate(self, size_in_bytes):
        return super().allocate(size_in_bytes % 2**32 or 1)


# ---------------------------------------------------------------------------------------------------------------------
# Rules O, about ownership


class _WithoutSizes(Books):
    def leave(self, ptr, size):
        return super().leave(ptr, self._live.get(ptr, (size, None))[0])


@breaks("O1")
class ComparesNoSizes(KeepsBooks):
    """Keeps the accounts itself, and takes a block back whatever size is given."""

    books_type = _WithoutSizes


class _WithoutOwners(Books):
    def leave(self, ptr, size):
        if ptr and ptr not in self._live:
            raise InvalidPointerError(pointer=ptr, allocator="mine", owner=None, history=None)
        return super().leave(ptr, size)


@breaks("O2")
class NamesNoOwner(KeepsBooks):
    """Keeps the accounts itself, and does not say whose pointer it was given."""

    books_type = _WithoutOwners


class _LastOpened(Books):
    def __init__(self, allocator, answers):
        super().__init__(allocator, answers)
        self.place = answers.device.platform.__dict__.setdefault("last_opened", {})
        self.place[answers.device.ordinal] = self

    def leave(self, ptr, size):
        stream = super().leave(ptr, size)
        if stream is not None:
            self.frees -= 1
            self.place[self.answers.device.ordinal].frees += 1
        return stream


@breaks("O3")
class CountsFreesWhereItOpenedLast(KeepsBooks):
    """Keeps the accounts itself, and books a free on those that were opened last."""

    books_type = _LastOpened


# ---------------------------------------------------------------------------------------------------------------------
# Rules M, about the memory behind a block


@breaks("M1")
class DeclaresTheWrongKind(Plain):
    """Declares managed memory, and hands out device memory."""

    traits = replace(Plain.traits, memory_kind=MemoryKind.CUDA_MANAGED)


@breaks("M2")
class Misaligns(Plain):
    """Puts eight bytes of its own before each block."""

    def allocate(self, size_in_bytes):
        return super().allocate(size_in_bytes + 8) + 8

    def deallocate(self, ptr, size_in_bytes):
        super().deallocate(ptr - 8, size_in_bytes)


@breaks("M3")
class Overlaps(Plain):
    """Gives each block a page of one slab, however large it is."""

    def __init__(self, *, device):
        super().__init__(device=device)
        self._slab, self._count = 0, 0

    def allocate(self, size_in_bytes):
        if size_in_bytes > 2**24:
            return super().allocate(size_in_bytes)
        self._slab = self._slab or self.platform.malloc(2**26)
        self._count += 1
        return self._slab + 4096 * (self._count % 8000)

    def deallocate(self, ptr, size_in_bytes):
        self.platform.synchronize_device(self.device.ordinal)
        if not self._slab <= ptr < self._slab + 2**26:
            super().deallocate(ptr, size_in_bytes)

    def close(self):
        if self._slab:
            self.platform.free(self._slab)


@breaks("M4")
class ClaimsHostAccess(Plain):
    """Says that host code may touch device memory."""

    traits = AllocatorTraits(alignment=512, host_accessible=True)


@breaks("M5")
class ClaimsToBeShareable(Mapped):
    """Says that there are handles of memory that it maps itself."""

    traits = replace(Mapped.traits, ipc=IpcKind.LEGACY)


@breaks("M6")
class NamesAnotherPool(FromPool):
    """Names the device's default pool, and draws from one of its own."""

    def __init__(self, *, device):
        named = device.platform.default_pool(device.ordinal)
        super().__init__(device=device)
        self._own, self.pool_handle = self.pool_handle, named

    def allocate_on(self, size_in_bytes, stream):
        return self.platform.malloc_from_pool(size_in_bytes, self._own, stream.handle)

    def trim(self, keep_bytes=0):
        named, self.pool_handle = self.pool_handle, self._own
        try:
            return super().trim(keep_bytes)
        finally:
            self.pool_handle = named

    def close(self):
        self.pool_handle = self._own
        super().close()


# ---------------------------------------------------------------------------------------------------------------------
# Rules D, about devices


@breaks("D1")
class KnowsOneDevice(Mapped):
    """Maps memory of the first device, whichever it serves."""

    physical_ordinal = 0


@breaks("D1")
class WakesTheFirstDevice(Plain):
    """Asks the first device how much memory it has, whichever it serves."""

    def __init__(self, *, device):
        super().__init__(device=device)
        self.platform.memory_info(0)


@breaks("D2")
class LeavesItsOwnDeviceCurrent(Plain):
    """Makes its device current for a free, and leaves it so."""

    deallocate_requires_context_guard = False

    def deallocate(self, ptr, size_in_bytes):
        self.platform.set_current_device(self.device.ordinal)
        super().deallocate(ptr, size_in_bytes)


@breaks("D1", "D2", "D3", "P4")
class ClaimsToServeAllDevices(Plain):
    """Says that one object serves all devices, and refuses all but its own."""

    traits = replace(Plain.traits, device_bound=False)

    def allocate(self, size_in_bytes):
        if self.platform.current_device() != self.device.ordinal:
            raise RuntimeError("not my device")
        return super().allocate(size_in_bytes)


@breaks("D3")
class OptsOutOfTheGuardAndNeedsIt(Plain):
    """Says that a free needs no current device, and needs it."""

    deallocate_requires_context_guard = False

    def deallocate(self, ptr, size_in_bytes):
        if self.platform.current_device() != self.device.ordinal:
            raise RuntimeError("another device is current")
        super().deallocate(ptr, size_in_bytes)


@breaks("D4")
class ForgetsWhatWasAllocatedBefore(Mapped):
    """Lets a peer touch what is allocated from now on, and nothing of before."""

    def set_peer_access(self, peer, *, enable):
        (self._readers.append if enable else self._readers.remove)(peer.ordinal)


@breaks("D4")
class GrantsForEver(Mapped):
    """Does not hear that peer access was disabled."""

    def set_peer_access(self, peer, *, enable):
        if enable:
            super().set_peer_access(peer, enable=True)


@breaks("D4")
class GrantsByHalves(Mapped):
    """Leaves a peer what it could grant before one call of the driver failed."""

    def set_peer_access(self, peer, *, enable):
        for ptr in self._blocks:
            self._let(peer, ptr, enable)
        (self._readers.append if enable else self._readers.remove)(peer.ordinal)


# ---------------------------------------------------------------------------------------------------------------------
# Rules W, about work in flight


class _ReusesAtOnce(Caching):
    def deallocate(self, ptr, size_in_bytes):
        self._alone(self._put, ptr, size_in_bytes)


@breaks("W1")
class ClaimsStreamOrderAndReusesAtOnce(_ReusesAtOnce):
    """Says that memory is reused in the order of streams, and knows no streams."""

    traits = replace(Caching.traits, stream_ordered=True)


@breaks("W1")
class ClaimsStreamOrderAndWaits(Plain):
    """Says that no call waits for the device, and each free does."""

    traits = replace(Plain.traits, stream_ordered=True)


@breaks("W2")
class ForgetsRecordedUses(RecordsUses):
    """Is told of uses and does not listen."""

    def record_use(self, ptr, stream):
        pass


@breaks("W3")
class ReusesAtOnce(_ReusesAtOnce):
    """Hands out what work in flight still reads."""


# ---------------------------------------------------------------------------------------------------------------------
# Rules C, about graph capture


@breaks("C1")
class ClaimsToBeCapturable(Plain):
    """Says that it may be captured, and calls cudaMalloc, which ends the capture."""

    traits = replace(Plain.traits, capturable=True)

    def allocate_on(self, size_in_bytes, stream):
        return self.allocate(size_in_bytes)

    def deallocate_on(self, ptr, size_in_bytes, stream):
        self.deallocate(ptr, size_in_bytes)


class _FreeingAtOnce(Books):
    def leave(self, ptr, size):
        stream = super().leave(ptr, size)
        if stream is not None and self.answers.device.captures.on_devices:
            self.allocator.deallocate_on(ptr, size, stream)
            return None
        return stream


@breaks("C2")
class FreesInTheMiddleOfACapture(KeepsBooks):
    """Keeps the accounts itself, and frees at once what core wants to be freed when the capture has ended."""

    books_type = _FreeingAtOnce


@breaks("C3")
class AsksTheDriverWhatIsFree(Caching):
    """Asks the driver for a figure that it could answer from its books."""

    def largest_free(self):
        self.platform.pool_attribute(self.platform.default_pool(self.device.ordinal), 5)
        return super().largest_free()


class _SharedPool(Apart):
    def take_back(self, ptr, size):
        del self._allocator.apart[ptr]
        self._platform.free_async(ptr, 0)


@breaks("C4")
class SetsNothingApart(SetsApart):
    """Gives what a graph freed to whoever asks next."""

    def __init__(self, *, device):
        super().__init__(device=device)
        self._common = {}

    def open_private_pool(self):
        return _SharedPool(self)

    def deallocate_on(self, ptr, size_in_bytes, stream):
        if ptr in self.apart:
            del self.apart[ptr]
        FromPool.deallocate_on(self, ptr, size_in_bytes, stream)


# ---------------------------------------------------------------------------------------------------------------------
# Rules T, about threads


@breaks("T1")
class Races(Plain):
    """Looks at a free list, and takes from it a moment later."""

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


@breaks("T1")
class BelongsToOneThread(Caching):
    """Takes a block back only from the thread that asked for it."""

    def __init__(self, *, device):
        super().__init__(device=device)
        self._owners = {}

    def allocate(self, size_in_bytes):
        ptr = super().allocate(size_in_bytes)
        self._owners[ptr] = threading.get_ident()
        return ptr

    def deallocate(self, ptr, size_in_bytes):
        if self._owners[ptr] != threading.get_ident():
            raise RuntimeError("this block belongs to another thread")
        super().deallocate(ptr, size_in_bytes)


@breaks("T2", stuck=True)
class KeepsItsLockWhenItFails(Plain):
    """Lets go of its lock only if all went well."""

    def __init__(self, *, device):
        super().__init__(device=device)
        self._lock = RLock()

    def allocate(self, size_in_bytes):
        self._lock.acquire()
        ptr = super().allocate(size_in_bytes)
        self._lock.release()
        return ptr


@breaks("T3", stuck=True)
class LocksOutItsOwnThread(Plain):
    """Waits for ever where a finaliser frees in the middle of a call."""

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
# Rules R, about figures


class _ForgettingPeaks(Books):
    def reset_peak(self):
        self.peak = 0


@breaks("R1")
class ForgetsWhatIsHandedOut(KeepsBooks):
    """Keeps the accounts itself, and begins a new peak at zero while blocks are live."""

    books_type = _ForgettingPeaks


@breaks("R2", "R3")
class HoldsMoreThanItSays(Caching):
    """Tells half of what it holds."""

    def reservation(self):
        return Reservation(self._held // 2, self._peak // 2)


@breaks("R2")
class ForgetsItsPeak(Caching):
    """Takes what it holds now for the most it held."""

    def reservation(self):
        return Reservation(self._held, self._held)


@breaks("R3", "E3")
class TrimsNothing(Caching):
    """Says what it could give back, and gives nothing."""

    def trim(self, keep_bytes=0):
        return self._idle_bytes()

    def close(self):
        super().trim(0)


@breaks("R3")
class TrimsAllOfIt(Caching):
    """Gives everything idle back, whatever it is told to keep."""

    def trim(self, keep_bytes=0):
        return super().trim(0)


class _TrimsLiveBlocks(Caching):
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

    def trim_live(self, keep_bytes):
        if keep_bytes < self._held:
            for ptr, size in list(self._live.items()):
                self.deallocate(ptr, size)
        return Caching.trim(self, keep_bytes)


@breaks("R3")
class TrimsLiveBlocks(_TrimsLiveBlocks):
    """Gives blocks back that somebody holds."""

    def trim(self, keep_bytes=0):
        return self.trim_live(keep_bytes)


@breaks("R4")
class IgnoresItsMemoryLimit(Caching):
    """Notes the memory limit, and goes on."""

    def _make_room(self, size):
        pass


@breaks("R4")
class RefusesBeforeItGivesBack(Caching):
    """Refuses a request although idle memory is in its way."""

    def _make_room(self, size):
        if self._held + size > self._memory_limit:
            raise MemoryError("the limit is in the way")


@breaks("R4")
class SaysTheNewLimit(Caching):
    """Returns the new limit where the old one is asked for."""

    def set_memory_limit(self, limit):
        super().set_memory_limit(limit)
        return limit


@breaks("R4")
class KeepsItsLimitToItself(Caching):
    """Says that there is no cache limit, whatever was set."""

    def get_cache_limit(self):
        return self.device.total_memory


@breaks("R4")
class KeepsMoreThanItsCacheLimit(Caching):
    """Gives nothing back above the cache limit."""

    def _put(self, ptr, size):
        self._idle.setdefault(size, []).append(ptr)


@breaks("R4")
class FreesWhatIsAboveItsLimit(_TrimsLiveBlocks):
    """Frees live blocks to meet a new memory limit."""

    def set_memory_limit(self, limit):
        self.trim_live(limit)
        return super().set_memory_limit(limit)


@breaks("R5")
class AddsUpWhatIsFree(Caching):
    """Takes the sum of what is idle for the largest request that it can serve."""

    def largest_free(self):
        return self._idle_bytes()


@breaks("R5")
class HidesWhatIsFree(Caching):
    """Says that nothing is idle, and serves it."""

    def largest_free(self):
        return 0


# ---------------------------------------------------------------------------------------------------------------------
# Rules E, about failures


@breaks("E1")
class BreaksWhenMemoryRunsOut(Plain):
    """Never serves again after memory ran out once."""

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
    """Says that memory ran out, whatever the driver said."""

    def allocate(self, size_in_bytes):
        try:
            return super().allocate(size_in_bytes)
        except PlatformError:
            raise MemoryError from None


@breaks("E2")
class LeaksWhenItFails(Plain):
    """Has a block for notes beside each block, and forgets it if the second is not to be had."""

    def __init__(self, *, device):
        super().__init__(device=device)
        self._notes = {}

    def allocate(self, size_in_bytes):
        notes = self.platform.malloc(64)
        ptr = self.platform.malloc(size_in_bytes)
        self._notes[ptr] = notes
        return ptr

    def deallocate(self, ptr, size_in_bytes):
        notes = self._notes[ptr]  # which another thread replaces once it has the address
        super().deallocate(ptr, size_in_bytes)
        self.platform.free(notes)


@breaks("E3")
class SwallowsFreeErrors(Plain):
    """Tells nobody that a free failed."""

    def deallocate(self, ptr, size_in_bytes):
        with suppress(PlatformError):
            super().deallocate(ptr, size_in_bytes)


@breaks("E3")
class LosesBlocksWhenTrimFails(Caching):
    """Strikes a block off its books before the driver has taken it back."""

    def _trim(self, keep_bytes):
        before = self._held
        for size, pointers in self._idle.items():
            while pointers and self._held > keep_bytes:
                self._held -= size
                self.platform.free(pointers.pop())
        return before - self._held


# ---------------------------------------------------------------------------------------------------------------------
# Rules L, about the end


class _ForgettingStreams(Books):
    def _book(self, ptr, size, stream):
        super()._book(ptr, size, weakref.ref(stream))

    def leave(self, ptr, size):
        stream = super().leave(ptr, size)
        return stream and (stream() or self.answers.find_stream())


@breaks("L1")
class LetsStreamsGo(KeepsBooks):
    """Keeps the accounts itself, and not the stream of a live block."""

    books_type = _ForgettingStreams


@breaks("L2")
class ClosesNothing(Caching):
    """Has a ``close`` that does nothing."""

    def close(self):
        pass


@breaks("L3")
class GivesBackWhenItIsCollected(Caching):
    """Frees in its finaliser, which may run when the driver is gone."""

    def __del__(self):
        self.close()


@breaks("L3")
class GivesBackAtExit(Caching):
    """Frees at exit, when the driver may be gone."""

    def __init__(self, *, device):
        super().__init__(device=device)
        atexit.register(_close_if_alive, weakref.ref(self))


def _close_if_alive(allocator):
    if (found := allocator()) is not None:
        found.close()


_FORK_NOTES = []


@breaks("L4")
class GivesBackInTheChild(Caching):
    """Calls the driver in a forked child."""

    def __init__(self, *, device):
        super().__init__(device=device)
        if not _FORK_NOTES:
            os.register_at_fork(after_in_child=_ask_the_driver)
        _FORK_NOTES[:] = [weakref.ref(self)]


def _ask_the_driver():
    if (found := _FORK_NOTES[0]()) is not None:
        found.platform.free(found.platform.malloc(64))


# ---------------------------------------------------------------------------------------------------------------------
# Rules P, about what is declared


@breaks("P1")
class AlignsToNoPowerOfTwo(Plain):
    """Declares an alignment of 384 bytes."""

    traits = replace(Plain.traits, alignment=384)

    def allocate(self, size_in_bytes):
        return -(-super().allocate(size_in_bytes + 384) // 384) * 384

    def deallocate(self, ptr, size_in_bytes):
        super().deallocate(self.platform.pointer_attributes(ptr).base, size_in_bytes)


@breaks("P1")
class IsMadeForAnotherCore(Plain):
    """Was written for version 2 of the contract."""

    api_version = (2, 0)


@breaks("P1")
class IsExemptFromARuleThatIsNone(Plain):
    """Says that it cannot keep a rule which the contract does not have."""

    exempt_from = {"Z1": "it is too hard"}


@breaks("P1")
class TakesStreamsHalfWay(Plain):
    """Allocates with a stream, and frees without."""

    def allocate_on(self, size_in_bytes, stream):
        return self.allocate(size_in_bytes)


@breaks("P1")
class HasOtherTraitsThanItsClass(Plain):
    """Has an object with other traits than the class."""

    def __init__(self, *, device):
        super().__init__(device=device)
        self.traits = replace(type(self).traits, alignment=256)


@breaks("P1")
class HasOtherTraitsByDefault(Rounds):
    """Says that its default options make other traits than the class has."""

    def __init__(self, *, device, options=None):
        super().__init__(device=device, options=options)
        self.traits = self.traits_for(options)

    @classmethod
    def traits_for(cls, options):
        return replace(cls.traits, alignment=256)


@breaks("P1")
class DrawsMoreThanItSays(FromPool):
    """Says that its calls are the pool's, and rounds sizes up itself."""

    traits = replace(FromPool.traits, straight_from_pool=True)

    def allocate_on(self, size_in_bytes, stream):
        return super().allocate_on(-(-size_in_bytes // 4096) * 4096, stream)


@dataclass(unsafe_hash=True, kw_only=True)
class Changeable:
    """Options that can be changed."""

    multiple: int = 512


@breaks("P2")
class HasChangeableOptions(Rounds):
    """Has options that can be changed once they are given."""

    Options = Changeable


@dataclass(frozen=True)
class Positional:
    """Options that are given by position."""

    multiple: int = 512


@breaks("P2")
class HasPositionalOptions(Rounds):
    """Has options that can be given by position."""

    Options = Positional


@breaks("P3")
class RaisesWhenAsked(Plain):
    """Raises where it is asked whether it is available."""

    @classmethod
    def availability(cls, device):
        if device.is_cuda:
            return super().availability(device)
        raise OSError("libmine.so is missing")


@breaks("P3", "D1")
class AllocatesWhenAsked(Plain):
    """Allocates to find out whether it is available."""

    @classmethod
    def availability(cls, device):
        if device.is_cuda:
            device.platform.free(device.platform.malloc(64))
        return super().availability(device)


@breaks("P3")
class GivesNoReason(Plain):
    """Refuses a device without a word."""

    @classmethod
    def availability(cls, device):
        return Availability(device.is_cuda)


@breaks("P3")
class DiagnosesByRaising(Plain):
    """Raises where it is asked what a user should know."""

    @classmethod
    def diagnosis(cls):
        raise ImportError("the compiled part is missing")


@breaks("P4")
class ClaimsToBeAvailable(Plain):
    """Says that it serves devices without memory pools, and refuses to be made for them."""

    def __init__(self, *, device: Device):
        super().__init__(device=device)
        if not device.is_mempool_supported:
            raise RuntimeError("this device has no pools")


class _Secret:
    def __reduce__(self):
        raise TypeError("a connection cannot be pickled")

    def __eq__(self, other):
        return isinstance(other, _Secret)

    def __hash__(self):
        return 0


@dataclass(frozen=True, kw_only=True)
class Connected:
    """Options that hold a connection."""

    multiple: int = 512
    connection: object = field(default_factory=_Secret)


@breaks("P6")
class HoldsAConnectionInItsOptions(Rounds):
    """Has options that cannot be sent to a worker process."""

    Options = Connected


# ---------------------------------------------------------------------------------------------------------------------
# Rules F, about functions in C


@breaks("F1")
class ServesCWithoutAccounts(ServesC):
    """Hands out memory in C past its own accounts."""

    def serve(self, size):
        return self.allocate(size)

    def take_back(self, ptr):
        self.deallocate(ptr, 0)
