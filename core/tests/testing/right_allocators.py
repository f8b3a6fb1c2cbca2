"""Allocators that keep the contract, each as simple as what it offers lets it be. The wrong ones are made from them.

This file and `wrong_allocators` import public names only and nothing of the kit, so that processes of their own, which
some rules need, begin quickly.
"""

import ctypes
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from threading import RLock

from allotment import (
    AllocatorTraits,
    Availability,
    CaptureMode,
    CClient,
    CFunctions,
    IpcKind,
    MemoryKind,
    PlatformError,
    PoolAccess,
    PoolAttribute,
    Reservation,
    ScopedDevice,
    Stream,
    get_stream,
)

MAX_BYTES = 2**63 - 1


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


class AcceptsUnknownPointers(Plain):
    """Takes back what it never gave: core refuses a wrong free before the allocator hears of it."""

    def deallocate(self, ptr, size_in_bytes):
        if self.platform.pointer_attributes(ptr).base == ptr:
            super().deallocate(ptr, size_in_bytes)


class Shareable(Plain):
    """Memory of which another process may have a handle."""

    traits = replace(Plain.traits, ipc=IpcKind.LEGACY)

    @classmethod
    def availability(cls, device):
        return Availability(device.is_ipc_supported is not False, "no handles for other processes")


class ServesAllDevices(Plain):
    """One object for all devices, freed with any of them current."""

    traits = replace(Plain.traits, device_bound=False)
    deallocate_requires_context_guard = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounding:
    """How much of a block is rounded up to."""

    multiple: int = 512


class Rounds(Plain):
    """Has an option, and a diagnosis."""

    Options = Rounding

    def __init__(self, *, device, options=None):
        super().__init__(device=device)
        self._multiple = (options or self.Options()).multiple

    def allocate(self, size_in_bytes):
        return super().allocate(-(-size_in_bytes // self._multiple) * self._multiple)

    @classmethod
    def diagnosis(cls):
        return None


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

    def largest_free(self):
        return max((size for size, pointers in self._idle.items() if pointers), default=0)

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
        return self._idle[size].pop() if self._idle.get(size) else self._take(size)

    def _take(self, size):
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


class RecordsUses(Caching):
    """Waits for recorded work when the block is freed, and for no other."""

    def __init__(self, *, device):
        super().__init__(device=device)
        self._uses = {}

    def record_use(self, ptr, stream):
        self._uses.setdefault(ptr, []).append(stream)

    def deallocate(self, ptr, size_in_bytes):
        for stream in self._uses.pop(ptr, ()):
            stream.synchronize()
        self._alone(self._put, ptr, size_in_bytes)


class Mapped(Plain):
    """Memory that it maps itself, which follows peer access."""

    traits = replace(Plain.traits, mapped=True)

    def __init__(self, *, device):
        super().__init__(device=device)
        self.physical_ordinal = getattr(self, "physical_ordinal", device.ordinal)
        self._granule = self.platform.mapping_granularity(device.ordinal)
        self._readers, self._blocks = [device.ordinal], {}

    def allocate(self, size_in_bytes):
        nbytes = -(-size_in_bytes // self._granule) * self._granule
        with ExitStack() as undo:
            handle = self.platform.create_physical(self.physical_ordinal, nbytes)
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
        with ExitStack() as undo:
            for ptr in self._blocks:
                self._let(peer, ptr, enable)
                undo.callback(self._let, peer, ptr, not enable)
            undo.pop_all()
        (self._readers.append if enable else self._readers.remove)(peer.ordinal)

    def _let(self, peer, ptr, enable):
        access = PoolAccess.READ_WRITE if enable else PoolAccess.NONE
        self.platform.set_mapping_access(ptr, self._blocks[ptr], peer.ordinal, access)

    @classmethod
    def availability(cls, device):
        return Availability(device.is_virtual_memory_supported, "" if device.is_virtual_memory_supported else "no VMM")


class FromPool(Plain):
    """Memory of a pool of its own, in the order of streams."""

    traits = AllocatorTraits(memory_kind=MemoryKind.CUDA_MEMPOOL, alignment=512, stream_ordered=True, capturable=True)

    def __init__(self, *, device):
        super().__init__(device=device)
        self.pool_handle = self.platform.create_pool(device.ordinal)

    def allocate_on(self, size_in_bytes, stream):
        return self.platform.malloc_from_pool(size_in_bytes, self.pool_handle, stream.handle)

    def deallocate_on(self, ptr, size_in_bytes, stream):
        self.platform.free_async(ptr, stream.handle)

    def allocate(self, size_in_bytes):
        return self.allocate_on(size_in_bytes, get_stream(self.device))

    def deallocate(self, ptr, size_in_bytes):
        self.deallocate_on(ptr, size_in_bytes, get_stream(self.device))

    def trim(self, keep_bytes=0):
        before = self._reserved()
        if before <= keep_bytes:
            return 0
        self.device.synchronize()
        self.platform.trim_pool(self.pool_handle, keep_bytes)
        return before - self._reserved()

    def _reserved(self):
        return self.platform.pool_attribute(self.pool_handle, PoolAttribute.RESERVED_CURRENT)

    def close(self):
        self.device.synchronize()
        self.platform.destroy_pool(self.pool_handle)

    @classmethod
    def availability(cls, device):
        return Availability(device.is_mempool_supported, "" if device.is_mempool_supported else "it has no pools")


class Books:
    """The accounts of an allocator, kept by itself."""

    def __init__(self, allocator, answers):
        self.allocator, self.answers = allocator, answers
        self.largest = MAX_BYTES
        self.current = self.peak = self.allocations = self.frees = 0
        self._live = {}

    def allocate(self, size):
        if type(size) is not int or not 0 < size <= self.largest:
            return self.answers.unusual_size(size)
        return self.allocate_for(self.answers.find_stream(), size)

    def allocate_for(self, stream, size):
        try:
            with ScopedDevice(self.answers.device):
                ptr = self.allocator.allocate_on(size, stream)
        except Exception as error:
            self.answers.failed_allocation(error, size)
        self._book(ptr, size, stream)
        return ptr

    def deallocate(self, ptr, size):
        stream = self.leave(ptr, size)
        if stream is None:
            return
        try:
            with ScopedDevice(self.answers.device):
                self.allocator.deallocate_on(ptr, size, stream)
        except BaseException as error:
            self.frees -= 1
            self.allocations -= 1
            self._book(ptr, size, stream)
            self.answers.failed_free(error)

    def enter(self, ptr, size):
        self._book(ptr, size, self.answers.find_stream())

    def leave(self, ptr, size):
        booked, stream = self._live.get(ptr, (None, None))
        if booked != size:
            return self.answers.wrong_free(ptr, booked, size)
        del self._live[ptr]
        self.current -= size
        self.frees += 1
        return stream

    def _book(self, ptr, size, stream):
        self._live[ptr] = size, stream
        self.allocations += 1
        self.current += size
        self.peak = max(self.peak, self.current)

    def blocks(self):
        return [(ptr, size) for ptr, (size, _) in self._live.items()]

    def reset_peak(self):
        self.peak = self.current

    def __len__(self):
        return len(self._live)

    def __contains__(self, ptr):
        return ptr in self._live


class KeepsBooks(FromPool):
    """Keeps the accounts itself."""

    books_type = Books

    def open_accounts(self, answers):
        self.books = self.books_type(self, answers)
        return self.books


class ServesC(KeepsBooks):
    """Has functions in C, which are Python's in truth."""

    def c_functions(self):
        allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
        free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
        self._functions = (
            allocate(lambda size, device, stream: self._serve_or_none(size)),
            free(lambda ptr, size, device, stream: self.take_back(ptr)),
        )
        return CFunctions(allocate=_address(self._functions[0]), free=_address(self._functions[1]))

    def c_client(self, find_stream, find_owner=None):
        allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
        self._client = (
            allocate(lambda param, size, device: self._serve_or_none(size)),
            free(lambda param, ptr, device: self.take_back(ptr)),
        )
        return CClient(param=0, allocate=_address(self._client[0]), free=_address(self._client[1]))

    def serve(self, size):
        return self.books.allocate(size)

    def take_back(self, ptr):
        self.books.deallocate(ptr, dict(self.books.blocks())[ptr])

    def _serve_or_none(self, size):
        with suppress(MemoryError, PlatformError):
            return self.serve(size)


def _address(function):
    return ctypes.cast(function, ctypes.c_void_p).value


class SetsApart(FromPool):
    """Sets memory apart for graphs."""

    def __init__(self, *, device):
        super().__init__(device=device)
        self.apart = {}

    def open_private_pool(self):
        return Apart(self)

    def deallocate_on(self, ptr, size_in_bytes, stream):
        if ptr in self.apart:
            self.apart[ptr].take_back(ptr, size_in_bytes)
        else:
            super().deallocate_on(ptr, size_in_bytes, stream)


class Apart:
    """What is set apart for one graph."""

    def __init__(self, allocator):
        self._allocator, self._platform = allocator, allocator.platform
        self._idle, self._is_closed = {}, False

    def allocate_on(self, size_in_bytes, stream):
        if self._idle.get(size_in_bytes):
            return self._idle[size_in_bytes].pop()
        with self._relaxed():
            side = Stream(self._allocator.device, non_blocking=True)
            ptr = self._allocator.allocate_on(size_in_bytes, side)
            self._platform.synchronize_stream(side.handle, self._allocator.device.ordinal)
        self._allocator.apart[ptr] = self
        return ptr

    def take_back(self, ptr, size):
        self._idle.setdefault(size, []).append(ptr)
        if self._is_closed:
            self.close()

    def close(self):
        self._is_closed = True
        for pointers in self._idle.values():
            while pointers:
                ptr = pointers.pop()
                del self._allocator.apart[ptr]
                self._platform.synchronize_device(self._allocator.device.ordinal)
                self._platform.free_async(ptr, 0)

    @contextmanager
    def _relaxed(self):
        before = self._platform.exchange_capture_mode(CaptureMode.RELAXED)
        try:
            yield
        finally:
            self._platform.exchange_capture_mode(before)


RIGHT = (
    Plain,
    AcceptsUnknownPointers,
    Shareable,
    ServesAllDevices,
    Rounds,
    Caching,
    RecordsUses,
    Mapped,
    FromPool,
    KeepsBooks,
    ServesC,
    SetsApart,
)
"""All of them."""
