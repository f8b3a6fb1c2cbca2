"""What decides which memory serves a request."""

from __future__ import annotations

from _thread import RLock as _RLock
from dataclasses import dataclass
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


@dataclass(frozen=True, slots=True)
class Figures:
    """How an engine stands, in bytes.

    Parameters
    ----------
    reserved, peak_reserved
        Memory held of the device now, and at most since the last reset.
    allocated
        Memory in blocks that are handed out, their rounding included.
    largest_free
        The largest free block; a larger request needs memory to be moved or made.
    """

    reserved: int
    peak_reserved: int
    allocated: int
    largest_free: int

    @property
    def idle(self) -> int:
        """Memory that is held and not in blocks that are handed out."""
        return self.reserved - self.allocated

    @property
    def external_fragmentation(self) -> float:
        """The part of the idle memory that is not in the largest free block: 0 if none is idle."""
        return 1 - self.largest_free / self.idle if self.idle else 0.0


class LimitError(MemoryError):
    """The memory is not to be had within the limit."""

    @classmethod
    def of(cls, missing: int, reserved: int, limit: int) -> LimitError:
        """Return the error for ``missing`` bytes on top of ``reserved`` that are held."""
        return cls(
            f"{missing:,} bytes would be added to the {reserved:,} that are held, and the limit is {limit:,}. "
            "Raise the limit, or hold less."
        )


def refuse_negative(limit: int) -> None:
    """Raise a `ValueError` for a limit below 0."""
    if limit < 0:
        raise ValueError(f"the limit is {limit:,} bytes, and must be 0 or more")


class Handed(Protocol):
    """A block that is handed out, as the engine keeps its accounts on it."""

    start: int
    """Its address."""
    size: int
    """The bytes that were asked for."""
    is_booked: bool
    """Whether the accounts hold it."""
    users: tuple[int, ...]
    """Streams other than its own that work on it."""

    @property
    def stream(self) -> int:
        """The handle of its stream."""
        ...


class Policy(Protocol):
    """What decides which memory serves a request.

    `take_cached` and `give` are called with the lock held, the others without it.
    Blocks are `Handed`.
    """

    lock: HeldLock
    """Held while blocks change hands. A finaliser may run in the middle of that, in the thread that holds it."""

    limit: int
    """The most bytes to hold."""
    cache_limit: int
    """The most bytes to hold idle."""

    @property
    def is_due(self) -> bool:
        """Whether a free left something to do, which `look_around` does."""
        ...

    def take_cached(self, size: int, stream: int, pool: int) -> Any:
        """Return a block that is at hand, without a call to the supply; ``None`` if there is none."""
        ...

    def take(self, size: int, stream: int, pool: int) -> Any:
        """Return a block of at least ``size`` bytes, for work queued on ``stream`` from now on."""
        ...

    def give(self, block: Any) -> None:
        """Take back a block, which work queued so far on its stream may still touch."""
        ...

    def give_after(self, block: Any, users: tuple[int, ...]) -> None:
        """Take back a block once the work queued so far on other streams is done as well."""
        ...

    def look_around(self) -> None:
        """Do what is due now and then: called without the lock, after some thousand frees."""
        ...

    def trim(self, keep: int) -> None:
        """Wait for the work in flight, and give idle memory back until at most ``keep`` bytes are held."""
        ...

    def release_pool(self, pool: int) -> None:
        """Let the idle memory of a private pool serve others."""
        ...

    def share(self, ordinal: int, *, enable: bool) -> None:
        """Let another device touch all memory, present and future, or not."""
        ...

    def figures(self) -> Figures:
        """Return how it stands."""
        ...

    def reset_peak(self) -> None:
        """Set the high-water mark to what is held now."""
        ...


class HeldLock(_RLock):  # type: ignore[misc]  # final for the type checker only
    """A lock that knows whether the running thread holds it: a finaliser may run in the middle of its work."""

    is_mine = _RLock._is_owned  # type: ignore[attr-defined]  # as threading.Condition asks it


class TurnLock:
    """Lets one thread at a time change what memory is behind, while others take and give blocks that are at hand."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._holder = 0

    def __enter__(self) -> Self:
        if self._holder == get_ident():
            raise RuntimeError(
                "memory was asked for by a finaliser that runs while the same thread makes memory: it is not at hand"
            )
        self._lock.acquire()
        self._holder = get_ident()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._holder = 0
        self._lock.release()

    @property
    def is_taken(self) -> bool:
        """Whether somebody holds it, perhaps the running thread itself."""
        return self._lock.locked()
