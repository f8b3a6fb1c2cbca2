"""A limit on what is handed out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from allotment._locks import RenewedLock
from allotment.layers.layer import MemoryShortageError, Place
from allotment.layers.ledger import HAS_INTERPRETER_LOCK
from allotment.units import MemoryAmount  # noqa: TC001 - configuration reads the annotation

if TYPE_CHECKING:
    from allotment.device import Device
    from allotment.layers.accounting import AccountedAllocator
    from allotment.layers.layer import Calls
    from allotment.stream import Stream


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitOptions:
    """Options of the layer ``limit``.

    Parameters
    ----------
    amount
        The most that may be handed out at once.
    shared
        A name. All accounts with a limit of that name count together, also those of other devices; without a name,
        those of one device do.
    """

    amount: MemoryAmount
    shared: str | None = None


class Budget:
    """What several accounts have handed out together, in bytes.

    No lock is needed: between two calls, as each method's lines are, CPython lets no other thread and no finaliser run.
    """

    __slots__ = ("used",)

    def __init__(self) -> None:
        self.used = 0

    def take(self, nbytes: int, limit: int) -> bool:
        """Count bytes as handed out, unless there would be more than a limit; return whether they were counted."""
        used = self.used + nbytes
        if used > limit:
            return False
        self.used = used
        return True

    def give_back(self, nbytes: int) -> None:
        """Count bytes as freed."""
        self.used -= nbytes


class LockedBudget(Budget):
    """`Budget` with a lock, for builds without an interpreter lock; a finaliser may free within a call."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        super().__init__()
        self._lock = RenewedLock()

    def take(self, nbytes: int, limit: int) -> bool:
        """Do as `Budget.take` does."""
        with self._lock():
            return super().take(nbytes, limit)

    def give_back(self, nbytes: int) -> None:
        """Do as `Budget.give_back` does."""
        with self._lock():
            super().give_back(nbytes)


class Limit:
    """Refuses what would be handed out above a limit.

    It counts sizes as they were asked for, not what an allocator keeps idle, and not memory that belongs to graphs.

    Parameters
    ----------
    options
        See `LimitOptions`.
    device
        The device whose memory a fraction is of.

    Raises
    ------
    ValueError
        For a fraction on the host.
    """

    name: ClassVar = "limit"
    Options: ClassVar = LimitOptions
    place: ClassVar = Place.LIMIT

    def __init__(self, options: LimitOptions, device: Device) -> None:
        if device.is_cpu and options.amount.nbytes is None:
            raise ValueError("a limit on the host is in bytes: it has no total to take a part of")
        self.limit = options.amount.resolve(device.total_memory)
        self._shared = options.shared
        made = Budget() if HAS_INTERPRETER_LOCK else LockedBudget()
        self.budget = device.registry.budgets.setdefault(options.shared or device, made)

    def wrap(self, calls: Calls, account: AccountedAllocator) -> Calls:  # noqa: ARG002 - all accounts are alike to it
        """Return the calls with the count around."""
        inner_allocate, inner_deallocate, _ = calls
        limit, take, give_back = self.limit, self.budget.take, self.budget.give_back

        def allocate(size: int, *stream: Stream) -> int:
            if not take(size, limit):
                raise self._shortage(size)
            try:
                return inner_allocate(size, *stream)
            except BaseException:
                give_back(size)
                raise

        def deallocate(ptr: int, size: int, *stream: Stream) -> None:
            inner_deallocate(ptr, size, *stream)
            give_back(size)

        return calls._replace(allocate=allocate, deallocate=deallocate)

    def _shortage(self, size: int) -> MemoryShortageError:
        where = f" by all that share the limit {self._shared!r}" if self._shared else " on the device"
        reason = (
            f"{size:,} bytes would be added to the {self.budget.used:,} that are handed out{where}, and the limit is "
            f"{self.limit:,}. Raise the limit, or hold less."
        )
        return MemoryShortageError(reason, limit=self.limit)
