"""What stands before all accounts for a while: scopes that measure, and recordings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from allotment._locks import RenewedLock

if TYPE_CHECKING:
    from allotment.layers.accounting import AccountedAllocator
    from allotment.layers.layer import Wraps


class Onlookers:
    """Those who look at every block of every account now, and the accounts that are told of them.

    An account is as fast as without them while there are none.
    """

    def __init__(self) -> None:
        self.lock = RenewedLock()
        self._looking: tuple[Wraps, ...] = ()
        self._accounts: WeakSet[AccountedAllocator] = WeakSet()

    def accounts(self) -> tuple[AccountedAllocator, ...]:
        """Return the accounts that are there, of all platforms."""
        return tuple(self._accounts)

    def watch(self, account: AccountedAllocator) -> None:
        """Tell an account who looks, now and whenever that changes."""
        with self.lock():
            self._accounts.add(account)
            if self._looking:
                account.be_seen_by(self._looking)

    def begin(self, onlooker: Wraps) -> None:
        """Let somebody look at the calls of all accounts."""
        with self.lock():
            self._tell((onlooker, *self._looking))

    def end(self, onlooker: Wraps) -> None:
        """Let them look no more."""
        with self.lock():
            self._tell(tuple(each for each in self._looking if each is not onlooker))

    def _tell(self, looking: tuple[Wraps, ...]) -> None:
        self._looking = looking
        for account in self.accounts():
            account.be_seen_by(looking)


onlookers: Final = Onlookers()
