"""The kinds of accounts, and which of them an allocator gets."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from allotment._locks import RenewedLock
from allotment.allocator import AccountAnswers, KeepsAccounts, SupportsPool, SupportsStreams
from allotment.layers.accounting import AccountedAllocator
from allotment.layers.ledger import HAS_INTERPRETER_LOCK, IS_COMPILED, Ledger, StreamLedger
from allotment.platform import driver_functions
from allotment.stream import stream_in_force, stream_scopes

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment.allocator import Allocator
    from allotment.device import Device
    from allotment.errors import ForkedProcessError, ShuttingDownError
    from allotment.layers.layer import Calls, Layer
    from allotment.stream import Stream

_SLOTS = (
    "__weakref__",
    "_failed_allocations",
    "_failed_frees",
    "_hooks",
    "_is_observed",
    "_own_calls",
    "_retired",
    "_seen_by",
    "allocator",
    "declared_kind",
    "graph_blocks",
    "layers",
    "memory_kind",
    "name",
    "proved_access",
    "public",
    "traits",
)


_POOL_FUNCTIONS = ("cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuCtxGetDevice")
"""The driver's functions that the compiled ledger calls for a pool, in the order in which it knows them."""


_ONLY_DEVICE = -1
"""Tells the compiled ledger that no other device can be current."""


class Account(AccountedAllocator, Ledger):
    """An account around an allocator with two methods."""

    __slots__ = _SLOTS


class StreamOrderedAccount(AccountedAllocator, StreamLedger):
    """An account around an allocator that takes the stream with each call.

    A block is allocated on the stream in force and freed in the order of that same stream, which is kept alive.
    """

    __slots__ = _SLOTS
    takes_streams = True
    allocate_on = StreamLedger.allocate_on  # with the stream as an argument; `AccountedAllocator` enters a scope for it
    _allocate_unusual_on = AccountedAllocator.allocate_on

    def restore_calls(self) -> None:
        """Let the ledger call the allocator itself again, through its layers, or the pool that it draws from."""
        self._stream_scopes, self._find_stream = stream_scopes, stream_in_force
        if IS_COMPILED and self.traits.straight_from_pool and not self._layers_in_force():
            self._draw_from_pool()
        elif not self._retired:
            own = self.own_calls()
            self._put_calls(own.allocate, own.deallocate)

    def _draw_from_pool(self) -> None:
        """Let the compiled ledger call the pool: the driver itself where there is one, else the platform."""
        platform = self.device.platform
        assert isinstance(self.allocator, SupportsPool)
        calls = self._guarded(platform.malloc_from_pool, platform.free_async)
        self._ordinal = self.device.ordinal if platform.device_count() > 1 else _ONLY_DEVICE
        functions = driver_functions(platform, *_POOL_FUNCTIONS) or (0, 0, 0)
        self._malloc_from_pool, self._free_async, self._current_device = functions
        if not self._retired:
            self._put(self.allocator.pool_handle, *calls)

    def _put_calls(self, allocate: Callable[..., Any], deallocate: Callable[..., Any]) -> None:
        self._put(None, allocate, deallocate)  # they get the stream as an argument

    def _put(self, pool: int | None, allocate: Callable[..., Any], deallocate: Callable[..., Any]) -> None:
        # No other thread may see one of them without the others: nothing is called in between.
        self._pool = pool
        self._allocate = allocate
        self._deallocate = deallocate

    def bare_calls(self) -> Calls:
        """Return the calls with the stream as an argument, also where the ledger calls a pool itself."""
        return self._as_calls(*(self._calls_to_pool() if self.traits.straight_from_pool else self._allocator_calls()))

    def _allocator_calls(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        allocator: Any = self.allocator
        return allocator.allocate_on, allocator.deallocate_on

    def _calls_to_pool(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        platform, allocator = self.device.platform, self.allocator
        assert isinstance(allocator, SupportsPool)
        malloc, free, pool = platform.malloc_from_pool, platform.free_async, allocator.pool_handle
        return (
            lambda size, stream: malloc(size, pool, stream.handle),
            lambda ptr, _, stream: free(ptr, stream.handle),
        )


class OwnAccount(AccountedAllocator):
    """The account of an allocator that keeps the accounts itself: its calls are the allocator's own."""

    __slots__ = (*_SLOTS, "_allocate_unbooked", "_books", "allocate", "deallocate", "device", "is_direct")
    takes_streams = True

    def __init__(self, allocator: KeepsAccounts, device: Device, name: str, public: object | None = None) -> None:
        self.device = device
        self._books = allocator.open_accounts(
            AccountAnswers(
                device=device,
                stream_scopes=stream_scopes,
                find_stream=partial(stream_in_force, device),
                unusual_size=self._allocate_unusual,
                failed_allocation=self._refuse,
                wrong_free=self._refuse_free,
                failed_free=self._free_failed,
            )
        )
        super().__init__(allocator, device, name, public)

    def bare_calls(self) -> Calls:
        """Return the allocator's calls that book nothing."""
        allocator: Any = self.allocator
        return self._as_calls(allocator.allocate_on, allocator.deallocate_on)

    def _guarded(
        self, allocate: Callable[..., Any], deallocate: Callable[..., Any]
    ) -> tuple[Callable[..., Any], Callable[..., Any]]:
        return allocate, deallocate  # it makes the device current itself, where it needs that

    def restore_calls(self) -> None:
        """Let users call the allocator itself again, unless somebody observes it."""
        own = self.own_calls()
        if self._layers_in_force():
            self.interpose(own.allocate, own.deallocate)
        elif not self._retired:
            self._allocate_unbooked = own.allocate
            self._put_calls(self._books.allocate, self._books.deallocate)
            self.is_direct = True

    def allocate_on(self, size_in_bytes: int, stream: Stream, /) -> int:
        """Return the address of a new block for work on a stream of the device, whatever stream is in force."""
        if type(size_in_bytes) is not int or not 0 < size_in_bytes <= self._largest:
            return super().allocate_on(size_in_bytes, stream)
        return self._allocate_by(self._allocate_unbooked, size_in_bytes, stream)

    def interpose(self, allocate: Callable[..., Any], deallocate: Callable[..., Any]) -> None:
        """Put other calls in the place of the allocator's, between them and the accounts."""
        if not self._retired:
            self._allocate_unbooked = allocate
            self._put_calls(partial(self._allocate_in_force, allocate), partial(self._deallocate_by, deallocate))

    def retire(self, error: type[ShuttingDownError | ForkedProcessError]) -> None:
        """Never call the allocator again: allocation raises ``error`` and frees do nothing."""
        super().retire(error)
        self._allocate_unbooked = self.allocate

    def _allocate_in_force(self, allocate: Callable[..., int], size: int, /) -> int:
        if type(size) is not int or not 0 < size <= self._largest:
            return self._allocate_unusual(size)
        return self._allocate_by(allocate, size, stream_in_force(self.device))

    def _allocate_by(self, allocate: Callable[..., int], size: int, stream: Stream) -> int:
        try:
            ptr = allocate(size, stream)
        except Exception as error:  # noqa: BLE001 - any fault is told as such
            self._refuse(error, size)
        self._books.enter(ptr, size)
        return ptr

    def _deallocate_by(self, deallocate: Callable[..., object], ptr: int, size: int, /) -> None:
        stream = self._books.leave(ptr, size)
        if stream is None:
            return
        try:
            deallocate(ptr, size, stream)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the block is not lost
            self._books.enter(ptr, size)
            self._free_failed(error)

    def _put_calls(self, allocate: Callable[..., Any], deallocate: Callable[..., Any]) -> None:
        self.is_direct = False
        self.allocate, self.deallocate = allocate, deallocate  # type: ignore[method-assign]

    def blocks(self) -> list[tuple[int, int]]:
        """Return the address of each block that is handed out, and its size in bytes."""
        return self._books.blocks()

    if not TYPE_CHECKING:  # what the ledger keeps of other allocators
        _live = property(attrgetter("_books"))
        _current = property(attrgetter("_books.current"))
        _allocations = property(attrgetter("_books.allocations"))
        _frees = property(attrgetter("_books.frees"))
        _peak = property(attrgetter("_books.peak"), lambda self, _: self._books.reset_peak())
        _largest = property(attrgetter("_books.largest"), lambda self, size: setattr(self._books, "largest", size))


class _Locked(AccountedAllocator):
    """A lock around each call, for builds without an interpreter lock; a finaliser may free within a call."""

    __slots__ = ()
    _lock: RenewedLock

    def allocate(self, size_in_bytes: int, /) -> int:
        with self._lock():
            return super().allocate(size_in_bytes)

    def allocate_on(self, size_in_bytes: int, stream: Stream, /) -> int:
        with self._lock():
            return super().allocate_on(size_in_bytes, stream)

    def deallocate(self, ptr: int, size_in_bytes: int, /) -> None:
        with self._lock():
            super().deallocate(ptr, size_in_bytes)


class LockedAccount(_Locked, Account):
    """`Account` with a lock."""

    __slots__ = ("_lock",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._lock = RenewedLock()
        super().__init__(*args, **kwargs)


class LockedStreamOrderedAccount(_Locked, StreamOrderedAccount):
    """`StreamOrderedAccount` with a lock."""

    __slots__ = ("_lock",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._lock = RenewedLock()
        super().__init__(*args, **kwargs)


def account(
    allocator: Allocator,
    device: Device,
    name: str,
    public: object | None = None,
    layers: tuple[Layer, ...] = (),
) -> AccountedAllocator:
    """Put accounts around an allocator; see `AccountedAllocator` for the parameters.

    Accounts that the allocator keeps itself are not used where layers stand before it: they would not be asked.
    """
    with_streams = device.is_cuda and isinstance(allocator, SupportsStreams)
    if with_streams and isinstance(allocator, KeepsAccounts) and not layers:
        return OwnAccount(allocator, device, name, public)
    kind: Callable[..., AccountedAllocator]
    if HAS_INTERPRETER_LOCK:
        kind = StreamOrderedAccount if with_streams else Account
    else:
        kind = LockedStreamOrderedAccount if with_streams else LockedAccount
    return kind(allocator, device, name, public, layers)
