"""What a layer is: it stands between an account and its allocator, and sees every call."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from allotment.errors import OutOfMemoryError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from allotment.allocator import AllocatorTraits
    from allotment.device import Device
    from allotment.layers.accounting import AccountedAllocator
    from allotment.memory_kind import MemoryKind
    from allotment.platform import Platform
    from allotment.stream import Stream

    FindAllocator: TypeAlias = Callable[[str, Device], AccountedAllocator]


class Calls(NamedTuple):
    """The calls to an allocator, through the layers that stand before it.

    Each takes the stream as its last argument where the allocator takes streams, and no stream where it does not:
    write ``*stream`` and pass it on.
    """

    allocate: Callable[..., int]
    """``allocate(size, *stream)`` returns the address of a new block."""
    deallocate: Callable[..., object]
    """``deallocate(ptr, size, *stream)`` takes it back."""
    record_use: Callable[[int, Stream], object]
    """``record_use(ptr, stream)`` tells that present work of a stream uses a live block."""


class Place(IntEnum):
    """Where the layers of core stand: the one with the smaller number is nearer to the user and wraps the others."""

    TRACE = 10
    """It sees what the program does."""
    TRACK = 20
    """Likewise."""
    GUARD = 30
    """What it adds to a block is seen by those behind it only, and all memory is guarded, wherever it comes from."""
    FALLBACK = 40
    """It is asked when all else has been tried."""
    LADDER = 50
    """It rescues from a limit and from the driver alike."""
    LIMIT = 60
    """It counts what the device gives, not what another allocator gives instead."""
    PREFETCH = 70
    """It has to do with memory of the allocator itself."""
    FAULT = 80
    """It plays the driver."""


class Wraps(Protocol):
    """What can stand between an account and its allocator."""

    def wrap(self, calls: Calls, account: AccountedAllocator, /) -> Calls:
        """Return the calls that stand before ``calls``; those that it lets through are the same objects."""
        ...


class Layer(Wraps, Protocol):
    """What a layer offers. It is made as ``cls(options, device)`` for each account that it is to stand before.

    Notes
    -----
    What a layer remembers is its own, not that of the functions that `wrap` returns: `wrap` is called again when the
    calls below it are other ones.
    """

    name: ClassVar[str]
    """What a user types."""
    Options: ClassVar[type]
    """A frozen, slotted, keyword-only dataclass of what can be said about it, the main option first."""
    place: ClassVar[int]
    """Where it stands among others; see `Place`. A layer with a smaller number is nearer to the user."""


@runtime_checkable
class UsesAllocators(Protocol):
    """A layer that draws from other allocators too."""

    def connect(self, find: FindAllocator, /) -> None:
        """Take what returns the allocator of a name that can serve arrays of a device. Called once, before `wrap`."""
        ...


@runtime_checkable
class ChangesKind(Protocol):
    """A layer behind which memory may be of another kind than the allocator's."""

    def kind_before(self, kind: MemoryKind, traits: AllocatorTraits, /) -> MemoryKind:
        """Return the kind of all memory that comes through it, `MemoryKind.UNKNOWN` if each block has its own.

        Parameters
        ----------
        kind
            The kind of all memory behind it.
        traits
            What the allocator declares.
        """
        ...


@runtime_checkable
class SeesRefusals(Protocol):
    """A layer that hears of requests that are refused before any call is made."""

    def refused(self, account: AccountedAllocator, size: int, /) -> None:
        """Take note of a request for more than the device has."""
        ...


class MemoryShortageError(MemoryError):
    """What a layer raises where memory is not to be had; the account makes an `OutOfMemoryError` of it.

    Parameters
    ----------
    reason
        Why not, and what can be done, in sentences.
    limit
        The limit in bytes that is reached, if one is.
    tried
        What was tried to get memory all the same.
    """

    def __init__(self, reason: str | None = None, *, limit: int | None = None, tried: tuple[str, ...] = ()) -> None:
        super().__init__(reason or "")
        self.reason, self.limit, self.tried = reason, limit, tried

    @classmethod
    def after(cls, error: BaseException, *tried: str) -> MemoryShortageError:
        """Return the shortage that is left when something was tried against ``error`` in vain."""
        known: Any = error
        if isinstance(error, cls):
            return cls(known.reason, limit=known.limit, tried=(*known.tried, *tried))
        if isinstance(error, OutOfMemoryError):
            return cls(known.hint, limit=known.limit, tried=(*(known.tried or ()), *tried))
        return cls(str(error) if isinstance(error, MemoryError) else None, tried=tried)


def is_shortage(error: BaseException, platform: Platform) -> bool:
    """Return whether a call failed because memory is not to be had, and for no other reason."""
    if isinstance(error, MemoryError):
        return True
    platform_error = platform.error_from(error)
    return platform_error is not None and platform_error.is_out_of_memory
