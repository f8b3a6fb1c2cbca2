"""The allocator contract: what a plugin implements, declares and may offer more.

The contract page of the documentation states the rules one by one; `allotment.testing` checks them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, Protocol, runtime_checkable

from allotment.memory_kind import MemoryKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextvars import ContextVar

    from allotment.device import Device
    from allotment.stream import Stream

API_VERSION: Final = (1, 0)
"""The version of this contract: a plugin with the same major and no newer minor version is accepted."""


@runtime_checkable
class Allocator(Protocol):
    """The two methods that every allocator has.

    Both are called with the device of the array current; the stream in force is ``allotment.get_stream()``. An object
    with ``deallocate_requires_context_guard = False`` is freed without its device being made current.
    """

    def allocate(self, size_in_bytes: int, /) -> int:
        """Return the address of a new block of ``size_in_bytes`` > 0 bytes."""
        ...

    def deallocate(self, ptr: int, size_in_bytes: int, /) -> None:
        """Take back the block at ``ptr``, which was allocated with ``size_in_bytes``."""
        ...


class IpcKind(Enum):
    """How another process can map an allocator's memory."""

    NONE = "none"
    """It cannot."""
    LEGACY = "legacy"
    """By the 64-byte handle of ``cudaIpcGetMemHandle``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorTraits:
    """What an allocator declares about its memory and itself. Every trait declared is checked by the conformance kit.

    Parameters
    ----------
    memory_kind
        The kind of memory it hands out.
    alignment
        The alignment in bytes that every block has, a power of two.
    stream_ordered
        Blocks are allocated and freed in the order of a stream's work, without waiting for the device.
    capturable
        It may be called while a graph is captured.
    ipc
        How its memory can be shared with other processes.
    host_accessible
        Host code may touch its memory on every system that supports the allocator.
    device_bound
        One instance serves one device. ``False``: one instance serves all, under whichever is current.
    straight_from_pool
        Its stream-aware calls are ``cudaMallocFromPoolAsync`` from `SupportsPool.pool_handle` and ``cudaFreeAsync``,
        and nothing more: core may make them itself.
    mapped
        Its memory is mapped (``cuMemMap``): another device reaches it only where the mapping says so, whatever peer
        access is enabled. `SupportsPeers` makes it follow peer access.
    """

    memory_kind: MemoryKind = MemoryKind.UNKNOWN
    alignment: int = 256
    stream_ordered: bool = False
    capturable: bool = False
    ipc: IpcKind = IpcKind.NONE
    host_accessible: bool = False
    device_bound: bool = True
    straight_from_pool: bool = False
    mapped: bool = False


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether an allocator can be used on a device, and if not, why.

    Parameters
    ----------
    ok
        It can.
    reason
        What is missing and how to get it; empty when it can be used.
    """

    ok: bool
    reason: str = ""

    def __bool__(self) -> bool:
        return self.ok


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """The accounts of an allocator on a device, in bytes and in calls.

    Parameters
    ----------
    current, peak
        Bytes handed out now and at most. A request counts with the size that was asked for.
    reserved, peak_reserved
        Bytes that the allocator holds of the device, handed out or not. Where the allocator keeps no such figure,
        what it handed out.
    allocations, frees
        Calls that succeeded.
    failed_allocations, failed_frees
        Calls that did not.
    """

    current: int = 0
    peak: int = 0
    reserved: int = 0
    peak_reserved: int = 0
    allocations: int = 0
    frees: int = 0
    failed_allocations: int = 0
    failed_frees: int = 0

    @property
    def live(self) -> int:
        """The number of blocks handed out now."""
        return self.allocations - self.frees


@dataclass(frozen=True, slots=True)
class Reservation:
    """What an allocator holds of the device, in bytes.

    Parameters
    ----------
    current, peak
        Held now, and at most since the last reset.
    """

    current: int
    peak: int


@runtime_checkable
class SupportsStreams(Protocol):
    """An allocator that takes the stream with each call; its block is freed on the stream it was allocated on."""

    def allocate_on(self, size_in_bytes: int, stream: Stream, /) -> int:
        """Return the address of a new block, usable by work queued on ``stream`` from now on."""
        ...

    def deallocate_on(self, ptr: int, size_in_bytes: int, stream: Stream, /) -> None:
        """Take back a block once the work queued on ``stream`` so far is done."""
        ...


@runtime_checkable
class SupportsTrim(Protocol):
    """An allocator that can give idle memory back."""

    def trim(self, keep_bytes: int = 0, /) -> int:
        """Give idle memory back until at most ``keep_bytes`` are reserved; return the bytes given back."""
        ...


@runtime_checkable
class SupportsReservation(Protocol):
    """An allocator that knows how much of the device it holds."""

    def reservation(self) -> Reservation:
        """Return what is held of the device."""
        ...

    def reset_peak_reservation(self) -> None:
        """Set the peak to the current value."""
        ...


@runtime_checkable
class SupportsLargestFree(Protocol):
    """An allocator that knows how large its largest idle block is."""

    def largest_free(self) -> int:
        """Return the bytes of the largest request that needs no memory to be moved or made. The driver is not asked."""
        ...


@runtime_checkable
class SupportsLimits(Protocol):
    """An allocator that holds no more of the device than it is told, at the latest from the next request on."""

    def get_memory_limit(self) -> int:
        """Return the most bytes to hold of the device."""
        ...

    def set_memory_limit(self, limit: int, /) -> int:
        """Set the most bytes to hold; return what it was. A request that needs more is out of memory."""
        ...

    def get_cache_limit(self) -> int:
        """Return the most bytes to hold idle."""
        ...

    def set_cache_limit(self, limit: int, /) -> int:
        """Set the most bytes to hold idle; return what it was. What is above is given back in the course of calls."""
        ...


@runtime_checkable
class SupportsPool(Protocol):
    """An allocator that draws from one CUDA memory pool, whose settings and grants then concern its memory."""

    @property
    def pool_handle(self) -> int:
        """The ``cudaMemPool_t``."""
        ...


@runtime_checkable
class SupportsUse(Protocol):
    """An allocator whose blocks may be used by streams that it cannot know of."""

    def record_use(self, ptr: int, stream: Stream, /) -> None:
        """Note that the present work of ``stream`` uses the live block at ``ptr``: it is not reused before."""
        ...


@runtime_checkable
class SupportsPeers(Protocol):
    """An allocator that says itself which other devices reach its memory, as one that maps it must."""

    def set_peer_access(self, peer: Device, /, *, enable: bool) -> None:
        """Let a device touch all its memory of the current device, present and future, or not.

        If it raises, what devices may touch is as it was before.
        """
        ...


@runtime_checkable
class SupportsClose(Protocol):
    """An allocator with something to give back when nobody uses it any more."""

    def close(self) -> None:
        """Give everything back. Called once, when no block is live; not at interpreter shutdown."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountAnswers:
    """What core answers where an allocator that keeps its own accounts meets what is unusual.

    Parameters
    ----------
    device
        The device of the account.
    stream_scopes
        The context variable of the scopes that are entered: while it holds an empty tuple, ``device.stream_in_place``
        is the stream in force, unless that is ``None``.
    find_stream
        Returns the stream in force, always.
    unusual_size
        Called with what is not a plain int from 1 to the largest size; returns what ``allocate`` is to return.
    failed_allocation
        Called with the exception and the size; raises what it means.
    wrong_free
        Called with the address, the size of the live block there or ``None``, and the size given; raises, or returns
        where there is nothing to do.
    failed_free
        Called with the exception of a free that failed, when the block is on the books again; raises what it means.
    """

    device: Device
    stream_scopes: ContextVar[tuple[Any, ...]]
    find_stream: Callable[[], Stream]
    unusual_size: Callable[[object], int]
    failed_allocation: Callable[[BaseException, int], NoReturn]
    wrong_free: Callable[[int, int | None, int], None]
    failed_free: Callable[[BaseException], NoReturn]


class OwnAccounts(Protocol):
    """Accounts that an allocator keeps itself, with every check of the contract."""

    largest: int
    """The largest size that is usual; larger ones are left to `AccountAnswers.unusual_size`."""
    current: int
    """Bytes handed out now, as they were asked for."""
    peak: int
    """The most of them."""
    allocations: int
    """Calls that succeeded, and likewise ``frees``."""
    frees: int

    def allocate(self, size_in_bytes: int, /) -> int:
        """Return a new block for work on the stream in force, and book it."""
        ...

    def deallocate(self, ptr: int, size_in_bytes: int, /) -> None:
        """Take a booked block back in the order of the stream it was allocated on."""
        ...

    def enter(self, ptr: int, size_in_bytes: int, /) -> None:
        """Book a block that ``allocate_on`` of the allocator gave."""
        ...

    def leave(self, ptr: int, size_in_bytes: int, /) -> Stream | None:
        """Take a block off the books and return its stream; ``None`` if `AccountAnswers.wrong_free` let it pass."""
        ...

    def __len__(self) -> int:
        """Return how many blocks are booked."""
        ...

    def __contains__(self, ptr: object, /) -> bool:
        """Return whether a block at an address is booked."""
        ...

    def blocks(self) -> list[tuple[int, int]]:
        """Return the address of each booked block, and the size that was asked for."""
        ...

    def reset_peak(self) -> None:
        """Set the peak to what is handed out now."""
        ...


@runtime_checkable
class KeepsAccounts(Allocator, SupportsStreams, Protocol):
    """An allocator that keeps the accounts itself: core's calls are its own, with nothing in between.

    Its ``allocate_on`` and ``deallocate_on`` book nothing.
    """

    def open_accounts(self, answers: AccountAnswers, /) -> OwnAccounts:
        """Return the accounts. Called once."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CFunctions:
    """Functions in C that serve one device without the interpreter lock, by their addresses.

    Parameters
    ----------
    allocate
        ``void *(ssize_t size, int device, cudaStream_t stream)``; null if the memory is not to be had.
    free
        ``void (void *ptr, ssize_t size, int device, cudaStream_t stream)``.
    """

    allocate: int
    free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CClient:
    """Functions in C that serve one caller, who finds the stream itself, by their addresses.

    Parameters
    ----------
    param
        What both are given first.
    allocate
        ``void *(void *param, size_t size, int device)``; null if the memory is not to be had.
    free
        ``void (void *param, void *ptr, int device)``.
    """

    param: int
    allocate: int
    free: int


@runtime_checkable
class SupportsCFunctions(Protocol):
    """An allocator that libraries can call in C. What they allocate is on its own accounts, past all layers."""

    def c_functions(self) -> CFunctions:
        """Return functions for a library that names device and stream, as PyTorch does. They serve for ever.

        Raises
        ------
        UnsupportedError
            If there are none here, or another allocator serves the device so.
        """
        ...

    def c_client(self, find_stream: int, find_owner: Callable[[int], object] | None = None, /) -> CClient:
        """Return functions for a library that has a current stream, as CuPy does. They serve for ever.

        Parameters
        ----------
        find_stream
            The address of ``intptr_t (void)``, which returns the ``cudaStream_t`` to allocate on. It is called with
            the interpreter lock as the library holds it.
        find_owner
            Given the ``cudaStream_t``, returns the library's object of that stream if it is the current one, else
            ``None``. The object, one for `Stream.from_external`, is kept alive as long as the allocator may ask
            whether the stream's work is done. Called where no memory is at hand; if it raises, there is none.

        Raises
        ------
        UnsupportedError
            If there are none here.
        """
        ...


@runtime_checkable
class SupportsPrivatePools(Protocol):
    """An allocator whose memory can be set apart for a graph: it stays where it is as long as the graph lives."""

    def open_private_pool(self) -> PrivatePool:
        """Return a new pool. No call that would end a capture is made for it."""
        ...


class PrivatePool(Protocol):
    """Memory that is set apart."""

    def allocate_on(self, size_in_bytes: int, stream: Stream, /) -> int:
        """Return a new block of it, which the allocator's ``deallocate_on`` takes back to it."""
        ...

    def close(self) -> None:
        """Let what is idle of it serve others again, and the rest when it is freed."""
        ...


class AllocatorPlugin(Allocator, Protocol):
    """What a published allocator class offers beside the two methods, all of it optional."""

    traits: ClassVar[AllocatorTraits]
    """What it declares; `AllocatorTraits()` if absent."""
    Options: ClassVar[type]
    """A frozen, slotted, keyword-only dataclass: what config may say about it; it accepts nothing if absent."""
    api_version: ClassVar[tuple[int, int]]
    """The version of the contract it was written for; `API_VERSION` if absent."""
    exempt_from: ClassVar[Mapping[str, str]]
    """The rules of the contract that it cannot keep, by their ids, each with the reason; every rule binds if absent."""

    @classmethod
    def availability(cls, device: Device) -> Availability:
        """Say whether it can be used on ``device``. Cheap; allocates nothing and raises nothing."""
        ...
