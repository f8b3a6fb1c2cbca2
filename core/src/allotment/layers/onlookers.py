"""What stands before all accounts for a while: scopes that measure, and recordings."""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from allotment import _process

if TYPE_CHECKING:
    from allotment.layers.accounting import AccountedAllocator
    from allotment.layers.layer import Wraps


class Onlookers:
    """Those who look at every block of every account now, and the accounts that are told of them.

    An account is as fast as without them while there are none.
    """

    def __init__(self) -> None:
        self.lock = RLock()
        self._looking: tuple[Wraps, ...] = ()
        self._accounts: WeakSet[AccountedAllocator] = WeakSet()
        self._is_renewed_in_children = False

    def accounts(self) -> tuple[AccountedAllocator, ...]:
        """Return the accounts that are there, of all platforms."""
        return tuple(self._accounts)

    def watch(self, account: AccountedAllocator) -> None:
        """Tell an account who looks, now and whenever that changes."""
        with self.lock:
            self._renew_in_children()
            self._accounts.add(account)
            if self._looking:
                account.be_seen_by(self._looking)

    def begin(self, onlooker: Wraps) -> None:
        """Let somebody look at the calls of all accounts."""
        with self.lock:
            self._tell((onlooker, *self._looking))

    def end(self, onlooker: Wraps) -> None:
        """Let them look no more."""
        with self.lock:
            self._tell(tuple(each for each in self._looking if each is not onlooker))

    def _tell(self, looking: tuple[Wraps, ...]) -> None:
        self._looking = looking
        for account in self.accounts():
            account.be_seen_by(looking)

    def _renew_in_children(self) -> None:
        """See to it that a child process does not wait for a lock that a thread of its parent held."""
        if not self._is_renewed_in_children:
            _process.on_renewal_in_child(self._renew)
        self._is_renewed_in_children = True

    def _renew(self) -> None:
        self.lock = RLock()


onlookers: Final = Onlookers()
