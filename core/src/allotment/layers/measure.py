"""What counts blocks for scopes that measure. It stands before the allocators while such a scope is open."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from allotment._locks import RenewedLock
from allotment._scope import ScopeStack
from allotment.layers.onlookers import onlookers

if TYPE_CHECKING:
    from allotment.layers.accounting import AccountedAllocator
    from allotment.layers.layer import Calls
    from allotment.stream import Stream


@dataclass(slots=True, eq=False)
class Count:
    """Bytes and calls of a scope so far, of all devices or of one; `Measurement` says what each is."""

    current: int = 0
    peak: int = 0
    allocations: int = 0
    frees: int = 0
    allocated_bytes: int = 0
    freed_bytes: int = 0
    outside_frees: int = 0
    outside_freed_bytes: int = 0

    def allocate(self, size: int) -> None:
        """Count a new block. A finaliser that frees another in the middle does no harm: nothing is called here."""
        self.allocations += 1
        self.allocated_bytes += size
        self.current += size
        if self.current > self.peak:
            self.peak = self.current

    def free(self, size: int) -> None:
        """Count the free of a block that was counted."""
        self.frees += 1
        self.freed_bytes += size
        self.current -= size

    def free_outside(self, size: int) -> None:
        """Count the free of a block that was not."""
        self.outside_frees += 1
        self.outside_freed_bytes += size


@dataclass(slots=True, eq=False)
class MeasuredScope:
    """What one scope has counted.

    Parameters
    ----------
    is_open
        Whether it still counts.
    total, devices
        The figures of all devices together, whose peak is that of their sum, and of each by its alias.
    """

    is_open: bool = True
    total: Count = field(default_factory=Count)
    devices: dict[str, Count] = field(default_factory=dict)

    def count_of(self, account: AccountedAllocator) -> Count:
        """Return the figures of the device of an account."""
        alias = account.device.alias
        # In one step where it is missing, since a finaliser may add it meanwhile.
        return self.devices.get(alias) or self.devices.setdefault(alias, Count())


@dataclass(slots=True, eq=False)
class _Block:
    """A live block: the allocator behind all others that gave it, and the scopes that it was allocated in.

    The scopes are what the context held, so that a free in the same context is known as such at once.
    """

    account: AccountedAllocator
    scopes: tuple[tuple[object, MeasuredScope], ...]


scopes: Final[ScopeStack[MeasuredScope]] = ScopeStack("allotment_measured")
"""The scopes that the running thread or task is in."""


class Meter:
    """The open scopes, and the blocks that were allocated in them.

    Notes
    -----
    An allocator may draw from another that has accounts too. A block is then the inner one's, which counts it first
    and frees it last; at the outer one nothing is counted.
    """

    def __init__(self) -> None:
        self.lock = RenewedLock()
        """Held for each count; reentrant, since a finaliser may free in the middle of anything."""
        self._opening = RenewedLock()
        self._open = 0
        self._measure = Measure()
        self._blocks: dict[int, _Block] = {}
        self._leaving: set[int] = set()

    def open(self) -> MeasuredScope:
        """Return a new scope."""
        with self._opening():
            self._open += 1
            if self._open == 1:
                onlookers.begin(self._measure)
        return MeasuredScope()

    def close(self, scope: MeasuredScope) -> None:
        """Let a scope count no more."""
        with self.lock():
            scope.is_open = False
        with self._opening():
            self._open -= 1
            if self._open == 0:
                onlookers.end(self._measure)
                # What is freed from now on is not seen, and its address may be another block's next time.
                self._blocks.clear()

    def enter(self, account: AccountedAllocator, ptr: int, size: int) -> None:
        """Count a new block in the scopes of the running context."""
        inside = scopes.get()
        with self.lock():
            if ptr in self._blocks:
                return
            self._blocks[ptr] = _Block(account, inside)
            for _, scope in inside:
                if scope.is_open:
                    scope.total.allocate(size)
                    scope.count_of(account).allocate(size)

    def leave(self, account: AccountedAllocator, ptr: int) -> _Block | None:
        """Take a block off before its allocator has it back, when another thread may get its address.

        The answer is ``None`` if it is not this account that counts it.
        """
        with self.lock():
            block = self._blocks.get(ptr)
            if block is None:
                if ptr in self._leaving:
                    return None
                self._leaving.add(ptr)
                return _Block(account, ())
            return self._blocks.pop(ptr) if block.account is account else None

    def keep(self, ptr: int, block: _Block) -> None:
        """Put a block back that could not be freed."""
        with self.lock():
            self._leaving.discard(ptr)
            if block.scopes:
                self._blocks[ptr] = block

    def freed(self, ptr: int, size: int, block: _Block) -> None:
        """Count the free of a block: in its own scopes, and apart in those of whoever freed it."""
        inside, own = scopes.get(), block.scopes
        with self.lock():
            if not own:
                self._leaving.discard(ptr)
            for _, scope in own:
                if scope.is_open:
                    scope.total.free(size)
                    scope.count_of(block.account).free(size)
            if inside is own:
                return
            known = {id(scope) for _, scope in own}
            for _, scope in inside:
                if scope.is_open and id(scope) not in known:
                    scope.total.free_outside(size)
                    scope.count_of(block.account).free_outside(size)


class Measure:
    """Counts the blocks of an account, as the program sees them."""

    def wrap(self, calls: Calls, account: AccountedAllocator) -> Calls:
        """Return the calls with what counts around them."""
        inner, is_inside = calls, scopes.get

        def allocate(size: int, *stream: Stream) -> int:
            ptr = inner.allocate(size, *stream)
            if is_inside() and type(ptr) is int:
                meter.enter(account, ptr, size)
            return ptr

        def deallocate(ptr: int, size: int, *stream: Stream) -> None:
            block = meter.leave(account, ptr)
            try:
                inner.deallocate(ptr, size, *stream)
            except BaseException:
                if block is not None:
                    meter.keep(ptr, block)
                raise
            if block is not None:
                meter.freed(ptr, size, block)

        return calls._replace(allocate=allocate, deallocate=deallocate)


meter: Final = Meter()
