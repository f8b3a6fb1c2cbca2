"""The accounts and checks around every allocator.

The hot path, one call in and one call to the plugin, is the ledger's; what is unusual, and what users ask, is here.
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter, index
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

from allotment.allocator import (
    AccountAnswers,
    AllocatorTraits,
    KeepsAccounts,
    Statistics,
    SupportsClose,
    SupportsLimits,
    SupportsPool,
    SupportsReservation,
    SupportsStreams,
    SupportsTrim,
    SupportsUse,
)
from allotment.errors import (
    AllocatorContractError,
    ForkedProcessError,
    InvalidPointerError,
    OutOfMemoryError,
    ShuttingDownError,
    SizeMismatchError,
    UnsupportedError,
)
from allotment.layers.ledger import HAS_INTERPRETER_LOCK, IS_COMPILED, Ledger, StreamLedger
from allotment.memory_kind import MemoryKind
from allotment.stream import stream_in_force, stream_scopes
from allotment.units import check_range

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment._graph_blocks import GraphBlocks
    from allotment.allocator import Allocator
    from allotment.device import Device
    from allotment.stream import Stream


T = TypeVar("T")


class AccountedAllocator:
    """An allocator on one device, with its accounts.

    It has the two methods of every allocator, and is what `get_allocator` gives out and what arrays draw from.

    Parameters
    ----------
    allocator
        The plugin's object, or any with the two methods.
    device
        The device it serves here.
    name
        What it is called in figures and errors.
    public
        The object that users know it by: itself, unless they brought their own object.

    Attributes
    ----------
    allocator, device, name
        As given.
    traits : AllocatorTraits
        What the allocator declares.
    memory_kind : MemoryKind
        The kind of its memory; `MemoryKind.UNKNOWN` if it does not say.
    """

    takes_streams: ClassVar = False
    """Whether its allocator takes the stream with each call."""

    if not TYPE_CHECKING:  # the slots are those of the classes below, which mypy cannot know
        __slots__ = ()
    else:
        _retired: bool
        _failed_allocations: int
        _failed_frees: int
        allocator: Allocator
        device: Device
        name: str
        public: object
        traits: AllocatorTraits
        memory_kind: MemoryKind
        proved_access: dict[Device, int]
        graph_blocks: GraphBlocks | None
        _allocate: Callable[..., Any]
        _deallocate: Callable[..., Any]
        _live: dict[int, Any]
        _largest: int
        _current: int
        _peak: int
        _allocations: int
        _frees: int

        def allocate(self, size_in_bytes: int, /) -> int:
            """Return the address of a new block.

            Parameters
            ----------
            size_in_bytes
                The size, anything with ``__index__``. Zero gives 0, a block that holds nothing, without asking the
                allocator.

            Raises
            ------
            TypeError, ValueError
                For a size that is no integer, negative, or above 2^63 - 1. Nothing was called.
            OutOfMemoryError
                If the memory is not to be had.
            AllocatorContractError
                If the allocator returned what cannot be a new block.
            """
            raise NotImplementedError

        def deallocate(self, ptr: int, size_in_bytes: int, /) -> None:
            """Take back a block.

            Parameters
            ----------
            ptr
                Its address. 0 with size 0 does nothing.
            size_in_bytes
                The size that was asked for.

            Raises
            ------
            InvalidPointerError
                If the block is not live here: freed before, or of another allocator, which is named.
            SizeMismatchError
                If it was allocated with another size. It stays live.
            """

    def __init__(self, allocator: Allocator, device: Device, name: str, public: object | None = None) -> None:
        self.allocator, self.device, self.name = allocator, device, name
        self.public = self if public is None else public
        self.traits: AllocatorTraits = getattr(allocator, "traits", None) or AllocatorTraits()
        self.memory_kind = _declared_kind(allocator, self.traits, device)
        self._retired = False
        self.restore_calls()
        if self.memory_kind in _ON_DEVICE:
            # Refused here, because a driver may first reserve all it has for a request that it cannot meet.
            self._largest = device.total_memory
        self._failed_allocations = self._failed_frees = 0
        self.proved_access = {}  # the access engine's: by which device, at which version of the grants
        self.graph_blocks = None  # the memory of it that graphs own; see `allotment.capture`
        device.captures.settle(self)

    def __repr__(self) -> str:
        return (
            f"<allocator {self.name!r} on {self.device.alias!r}: {self._current:,} bytes in {len(self._live)} blocks>"
        )

    def own_calls(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """Return the allocator's two calls, as whoever stands between them and the ledger calls them."""
        return self._guarded(self.allocator.allocate, self.allocator.deallocate)

    def interpose(self, allocate: Callable[..., Any], deallocate: Callable[..., Any]) -> None:
        """Put other calls in the place of the allocator's, until `restore_calls`."""
        if not self._retired:
            self._put_calls(allocate, deallocate)

    def restore_calls(self) -> None:
        """Let the ledger call the allocator itself again."""
        if not self._retired:
            self._put_calls(*self.own_calls())

    def _put_calls(self, allocate: Callable[..., Any], deallocate: Callable[..., Any]) -> None:
        self._allocate, self._deallocate = allocate, deallocate

    def _guarded(
        self, allocate: Callable[..., Any], deallocate: Callable[..., Any]
    ) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """Return the two calls, with the device made current around them where that is needed."""
        free_needs_guard = getattr(self.allocator, "deallocate_requires_context_guard", True)
        return self._guard(allocate, needed=True), self._guard(deallocate, needed=free_needs_guard)

    def _guard(self, call: Callable[..., Any], *, needed: bool) -> Callable[..., Any]:
        several_devices = self.device.is_cuda and self.device.platform.device_count() > 1
        return with_device_current(call, self.device) if needed and several_devices else call

    # What the ledger leaves to this class

    def _allocate_unusual(self, size_in_bytes: object) -> int:
        if isinstance(size_in_bytes, bool):
            raise TypeError(f"a size in bytes is an integer, not {size_in_bytes!r}")
        size = check_range(index(size_in_bytes))  # type: ignore[arg-type]
        if size > self._largest:
            self._failed_allocations += 1
            raise self.out_of_memory(size, hint="That is more than the device has in all.")
        return self.allocate(size) if size else 0

    def _refuse(self, error: BaseException, size: int) -> NoReturn:
        """Raise what a failed allocation means to the user."""
        self._failed_allocations += 1
        if isinstance(error, OutOfMemoryError | ShuttingDownError | ForkedProcessError):
            raise error  # from an allocator of ours behind this one, or already all that can be said
        platform_error = self.device.platform.error_from(error)
        if isinstance(error, MemoryError) or (platform_error is not None and platform_error.is_out_of_memory):
            raise self.out_of_memory(size, hint=str(error) if platform_error is None else None) from error
        raise platform_error or error

    def out_of_memory(self, size: int, hint: str | None = None) -> OutOfMemoryError:
        """Return the error for a request of ``size`` bytes, with what is known about the device's memory."""
        info = _known(lambda: self.device.memory_info if self.device.is_cuda else None)
        limit = _known(self.allocator.get_memory_limit) if isinstance(self.allocator, SupportsLimits) else None
        if limit is not None and limit < min(self._current + size, self._largest):
            hint = hint or "Raise the limit, free arrays that are no longer needed, or ask for less."
        return OutOfMemoryError(
            requested=size,
            in_use=self._current,
            reserved=_known(lambda: self.statistics().reserved),
            free=info and info.free,
            total=info and info.total,
            limit=limit,
            device=self.device.alias,
            allocator=self.name,
            hint=hint,
        )

    def _reject(self, ptr: object) -> NoReturn:
        self._failed_allocations += 1
        if type(ptr) is not int:
            raise AllocatorContractError(
                allocator=self.name, rule="A2", problem=f"allocate returned {ptr!r}, which is not a plain int"
            )
        if ptr <= 0:
            raise AllocatorContractError(
                allocator=self.name, rule="A2", problem=f"allocate returned the address {ptr}, which is not above 0"
            )
        raise AllocatorContractError(
            allocator=self.name, rule="A3", problem=f"allocate returned {ptr:#x}, where a block is live already"
        )

    def _refuse_free(self, ptr: int, size: int | None, given: int) -> None:
        """Say why a block cannot be freed; a null pointer of size 0, and anything after shutdown began, is let pass."""
        if size is not None:
            raise SizeMismatchError(pointer=ptr, allocator=self.name, allocated=size, given=index(given))
        if not self._retired and (ptr, given) != (0, 0):
            raise InvalidPointerError(pointer=index(ptr), allocator=self.name, owner=self._owner_of(ptr))

    def _owner_of(self, ptr: int) -> str | None:
        accounts = [account for device in self.device.registry for account in list(device.accounts.values())]
        owner = next((account for account in accounts if account.is_live(ptr)), None)
        if owner is None:
            return None
        return owner.name if owner.device is self.device else f"{owner.name} on {owner.device.alias}"

    def _free_failed(self, error: BaseException) -> NoReturn:
        """Raise why the allocator failed to take back a block, which stays on the books."""
        self._failed_frees += 1
        raise self.device.platform.error_from(error) or error

    def is_live(self, ptr: int) -> bool:
        """Return whether a block at this address is handed out."""
        return ptr in self._live

    def retire(self, error: type[ShuttingDownError | ForkedProcessError]) -> None:
        """Never call the allocator again: allocation raises ``error`` and frees do nothing."""

        def refuse(*_: object) -> NoReturn:
            raise error()

        self._retired = True
        self._put_calls(refuse, _do_nothing)

    # What users ask

    def statistics(self) -> Statistics:
        """Return the accounts as they stand."""
        held = None
        # Asking a pool while a graph is captured would end the capture.
        is_askable = not self._retired and not self.device.captures.on_devices
        if is_askable and isinstance(self.allocator, SupportsReservation):
            held = self.allocator.reservation()
        # Other threads may have allocated since: what is handed out is held in any case.
        current, peak = self._current, self._peak
        reserved = current if held is None or held.current < current else held.current
        return Statistics(
            current=current,
            peak=peak,
            reserved=reserved,
            peak_reserved=max(reserved, peak if held is None else held.peak),
            allocations=self._allocations,
            frees=self._frees,
            failed_allocations=self._failed_allocations,
            failed_frees=self._failed_frees,
        )

    def reset_peak(self) -> None:
        """Set the peaks to the current values; the counts stay."""
        if isinstance(self.allocator, SupportsReservation) and not self._retired:
            self.device.captures.refuse_unsafe(f"resetting the peak of allocator {self.name!r}")
        self._peak = self._current
        if isinstance(self.allocator, SupportsReservation) and not self._retired:
            self.allocator.reset_peak_reservation()

    def trim(self, keep_bytes: int = 0) -> int:
        """Give idle memory back until at most ``keep_bytes`` are reserved; return the bytes given back.

        An allocator that keeps no idle memory gives back nothing.
        """
        keep = check_range(index(keep_bytes))
        if not isinstance(self.allocator, SupportsTrim) or self._retired:
            return 0
        self.device.captures.refuse_unsafe(f"trimming allocator {self.name!r}")
        return self.allocator.trim(keep)

    def record_use(self, ptr: int, stream: Stream) -> None:
        """Tell the allocator that work on ``stream`` uses a live block, so that it is not reused too early."""
        if isinstance(self.allocator, SupportsUse) and not self._retired:
            self.allocator.record_use(ptr, stream)

    def close(self) -> None:
        """Give everything back. Call it when the allocator is not needed any more.

        Raises
        ------
        UnsupportedError
            If blocks are live.
        """
        if self._live:
            raise UnsupportedError(
                f"allocator {self.name!r} on {self.device.alias!r} cannot be closed: {len(self._live)} blocks with "
                f"{self._current:,} bytes are live. Drop the arrays that hold them first."
            )
        if isinstance(self.allocator, SupportsClose) and not self._retired:
            self.device.captures.refuse_unsafe(f"closing allocator {self.name!r}")
            self.allocator.close()


_ON_DEVICE = (MemoryKind.CUDA_DEVICE, MemoryKind.CUDA_MEMPOOL)
"""The kinds of which there cannot be more than the device has memory."""

_SLOTS = (
    "__weakref__",
    "_failed_allocations",
    "_failed_frees",
    "_retired",
    "allocator",
    "graph_blocks",
    "memory_kind",
    "name",
    "proved_access",
    "public",
    "traits",
)


class Account(AccountedAllocator, Ledger):
    """An account around an allocator with two methods."""

    __slots__ = _SLOTS


class StreamOrderedAccount(AccountedAllocator, StreamLedger):
    """An account around an allocator that takes the stream with each call.

    A block is allocated on the stream in force and freed in the order of that same stream, which is kept alive.
    """

    __slots__ = _SLOTS
    takes_streams = True

    def restore_calls(self) -> None:
        """Let the ledger call the allocator itself again, or the pool that it draws from."""
        self._stream_scopes, self._find_stream = stream_scopes, stream_in_force
        if IS_COMPILED and self.traits.straight_from_pool:
            platform = self.device.platform
            assert isinstance(self.allocator, SupportsPool)
            calls = self._guarded(platform.malloc_from_pool, platform.free_async)
            self._put(self.allocator.pool_handle, *calls)
        else:
            self._put(None, *self.own_calls())

    def interpose(self, allocate: Callable[..., Any], deallocate: Callable[..., Any]) -> None:
        """Put other calls in the place of the allocator's; they get the stream as an argument."""
        self._put(None, allocate, deallocate)

    def _put(self, pool: int | None, allocate: Callable[..., Any], deallocate: Callable[..., Any]) -> None:
        if not self._retired:
            # No other thread may see one of them without the others: nothing is called in between.
            self._pool = pool
            self._allocate = allocate
            self._deallocate = deallocate

    def own_calls(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """Return the two calls with the stream as an argument, also where the ledger calls a pool itself."""
        straight = self.traits.straight_from_pool
        return self._guarded(*(self._calls_to_pool() if straight else self._allocator_calls()))

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

    __slots__ = (*_SLOTS, "_books", "allocate", "deallocate", "device")
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

    def own_calls(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """Return the allocator's two calls that book nothing."""
        allocator: Any = self.allocator
        return allocator.allocate_on, allocator.deallocate_on

    def restore_calls(self) -> None:
        """Let users call the allocator itself again."""
        if not self._retired:
            self._put_calls(self._books.allocate, self._books.deallocate)

    def interpose(self, allocate: Callable[..., Any], deallocate: Callable[..., Any]) -> None:
        """Put other calls in the place of the allocator's, between them and the accounts."""
        if not self._retired:
            self._put_calls(partial(self._allocate_by, allocate), partial(self._deallocate_by, deallocate))

    def _allocate_by(self, allocate: Callable[..., int], size: int, /) -> int:
        if type(size) is not int or not 0 < size <= self._largest:
            return self._allocate_unusual(size)
        try:
            ptr = allocate(size, stream_in_force(self.device))
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
        self.allocate, self.deallocate = allocate, deallocate  # type: ignore[method-assign]

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
    _lock: RLock

    def allocate(self, size_in_bytes: int, /) -> int:
        with self._lock:
            return super().allocate(size_in_bytes)

    def deallocate(self, ptr: int, size_in_bytes: int, /) -> None:
        with self._lock:
            super().deallocate(ptr, size_in_bytes)


class LockedAccount(_Locked, Account):
    """`Account` with a lock."""

    __slots__ = ("_lock",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._lock = RLock()
        super().__init__(*args, **kwargs)


class LockedStreamOrderedAccount(_Locked, StreamOrderedAccount):
    """`StreamOrderedAccount` with a lock."""

    __slots__ = ("_lock",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._lock = RLock()
        super().__init__(*args, **kwargs)


def account(allocator: Allocator, device: Device, name: str, public: object | None = None) -> AccountedAllocator:
    """Put accounts around an allocator; see `AccountedAllocator` for the parameters."""
    with_streams = device.is_cuda and isinstance(allocator, SupportsStreams)
    if with_streams and isinstance(allocator, KeepsAccounts):
        return OwnAccount(allocator, device, name, public)
    kind: Callable[..., AccountedAllocator]
    if HAS_INTERPRETER_LOCK:
        kind = StreamOrderedAccount if with_streams else Account
    else:
        kind = LockedStreamOrderedAccount if with_streams else LockedAccount
    return kind(allocator, device, name, public)


def with_device_current(call: Callable[..., Any], device: Device) -> Callable[..., Any]:
    """Return ``call`` with the device made current around it, if it is not, and the one before restored."""
    ordinal, platform = device.ordinal, device.platform
    current_device = platform.current_device

    def call_with_device_current(*args: Any) -> Any:
        if current_device() == ordinal:
            return call(*args)
        before = platform.switch_device(ordinal)
        try:
            return call(*args)
        finally:
            platform.restore_context(before)

    return call_with_device_current


def _declared_kind(allocator: Allocator, traits: AllocatorTraits, device: Device) -> MemoryKind:
    """Return the kind that the allocator's traits or its ``memory_kind`` attribute (as in Warp) declares."""
    if traits.memory_kind is not MemoryKind.UNKNOWN:
        return traits.memory_kind
    declared = getattr(allocator, "memory_kind", None)
    if isinstance(declared, MemoryKind):
        return declared
    return MemoryKind.HOST if device.is_cpu else MemoryKind.UNKNOWN


def _known(question: Callable[[], T | None]) -> T | None:
    """Return the answer, ``None`` if it cannot be had: a figure must not hide the error that it belongs to."""
    try:
        return question()
    except Exception:  # noqa: BLE001 - see above
        return None


def _do_nothing(*_: object) -> None:
    pass
