"""What the policy "mlx" keeps: buffers, whose they are, and the shelves where idle ones wait in the order of age."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from allotment_caching.engine.supply import PAST, Supply

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE: Final = 16 * 1024
"""From here on sizes are whole pages; below they are powers of two."""
SCALAR: Final = 8
"""The size of scalars: these have slots of their own."""
SLOTS: Final = 4 * PAGE // SCALAR
"""How many scalars the slab holds: as many as MLX's, whatever their alignment."""
MANAGED: Final = -1
"""The device of managed memory."""


class MlxSupply(Supply, Protocol):
    """What the policy "mlx" asks for beside what every engine does.

    `malloc_managed` should advise all devices as accessors: small values that all of them read live there.
    """

    def pool_reserved(self) -> int:
        """Return the bytes that the device's default pool has reserved."""
        ...

    def may_free(self, stream: int, /) -> bool:
        """Return whether memory may be given back in the order of a stream now: not while it is captured."""
        ...

    def share_pool(self, ordinal: int, /, *, enable: bool) -> None:
        """Let another device touch the memory of the default pool, or not."""
        ...


class Kind(Enum):
    """Which call memory came from."""

    ORDERED = "ordered"
    """`malloc_async`."""
    SEGMENT = "segment"
    """`malloc`, for the private pools of graphs: a graph would own what `malloc_async` gives in a capture."""
    MANAGED = "managed"
    """`malloc_managed`."""
    SLOT = "slot"
    """A slot of the slab for scalars."""


@dataclass(slots=True, eq=False)
class Account:
    """What one device holds.

    Parameters
    ----------
    supply, device
        Where its memory comes from, and its ordinal.
    reserved, peak, allocated
        Bytes that are held, that were held at most, and that are handed out.
    """

    supply: MlxSupply
    device: int
    reserved: int = 0
    peak: int = 0
    allocated: int = 0

    def hold(self, nbytes: int) -> None:
        """Count memory that came, or that went where negative."""
        self.reserved += nbytes
        self.peak = max(self.peak, self.reserved)


@dataclass(slots=True, eq=False)
class Line:
    """The order of one stream, in which its buffers are freed.

    Parameters
    ----------
    account
        Whose stream it is.
    stream
        The handle.
    pool
        The private pool that its buffers belong to; 0 for none.
    buffers
        How many buffers are handed out on it, or were freed on it last.
    frees
        How many frees there were; each freed buffer notes its number.
    quiet
        Frees up to this number are past: the work before them is done.
    mark, marked
        A mark on the stream, and the number of frees when it was set.
    """

    account: Account
    stream: int
    pool: int
    buffers: int = 0
    frees: int = 0
    quiet: int = 0
    mark: int = PAST
    marked: int = 0


@dataclass(slots=True, eq=False)
class Buffer:
    """Memory that is handed out and kept as a whole.

    Parameters
    ----------
    start, nbytes
        Where it is, and its capacity.
    device
        The ordinal; `MANAGED` for managed memory.
    kind
        Which call it came from.
    maker
        Whose supply made it, which takes it back.
    account
        Who holds it now; of a slot, who holds the slab.
    line
        The stream that it is handed out on, or that it was freed on last.
    size
        The bytes that were asked for, while it is handed out.
    is_booked
        Whether the accounts hold it.
    users
        Other streams that work on it.
    serial
        The number of its last free on its line.
    age
        When it came to its shelf, among all that did.
    since
        When it was first seen idle, in seconds; infinite until then.
    """

    start: int
    nbytes: int
    device: int
    kind: Kind
    maker: Account
    account: Account
    line: Line
    size: int = 0
    is_booked: bool = False
    users: tuple[int, ...] = ()
    serial: int = 0
    age: int = 0
    since: float = inf

    @property
    def stream(self) -> int:
        """The handle of its stream."""
        return self.line.stream

    @property
    def is_past(self) -> bool:
        """Whether the work before its last free is known to be done."""
        return self.serial <= self.line.quiet

    def move_to(self, line: Line) -> None:
        """Leave one line for another."""
        self.line.buffers -= 1
        line.buffers += 1
        self.line = line

    def give_back(self) -> bool:
        """Give its memory back to the supply that made it; return ``False`` if that may not be done now."""
        supply, stream = self.maker.supply, self.line.stream
        if self.kind is not Kind.ORDERED:
            supply.free(self.start)
        elif supply.may_free(stream):
            supply.free_async(self.start, stream)
        else:
            return False
        return True


def round_size(size: int) -> int:
    """Return the capacity of a buffer for a request."""
    if size <= SCALAR:
        return SCALAR if size else 0
    if size < PAGE:
        return 1 << (size - 1).bit_length()
    return -(-size // PAGE) * PAGE


def fitting_sizes(nbytes: int) -> tuple[int, ...]:
    """Return the capacities that serve a rounded size, smallest first.

    MLX takes what is less than twice as large and less than two pages larger; capacities being rounded, these are left.
    """
    return (nbytes,) if nbytes <= PAGE else (nbytes, nbytes + PAGE)


class Shelves:
    """Idle buffers by size, in the order in which they came.

    Parameters
    ----------
    are_of_any_device, are_of_any_stream
        Whether buffers of all devices and kinds, and of all streams, stand on one shelf.
    """

    def __init__(self, *, are_of_any_device: bool = False, are_of_any_stream: bool = False) -> None:
        self._any_device, self._any_stream = are_of_any_device, are_of_any_stream
        self._shelves: dict[tuple[int, int | None, Line | None], OrderedDict[Buffer, None]] = {}
        self._by_age: OrderedDict[Buffer, None] = OrderedDict()
        self._added = 0
        self.nbytes = 0

    def __iter__(self) -> Iterator[Buffer]:
        """Iterate over all buffers, from the one that came first."""
        return iter(self._by_age)

    def _key(self, nbytes: int, device: int, line: Line) -> tuple[int, int | None, Line | None]:
        return nbytes, None if self._any_device else device, None if self._any_stream else line

    def add(self, buffer: Buffer) -> None:
        """Put a buffer on its shelf."""
        self._added += 1
        buffer.age, buffer.since = self._added, inf
        self._shelves.setdefault(self._key(buffer.nbytes, buffer.device, buffer.line), OrderedDict())[buffer] = None
        self._by_age[buffer] = None
        self.nbytes += buffer.nbytes

    def remove(self, buffer: Buffer) -> None:
        """Take a buffer off its shelf."""
        key = self._key(buffer.nbytes, buffer.device, buffer.line)
        shelf = self._shelves[key]
        del shelf[buffer], self._by_age[buffer]
        if not shelf:
            del self._shelves[key]
        self.nbytes -= buffer.nbytes

    def first(self, nbytes: int, device: int, line: Line) -> Buffer | None:
        """Return the buffer of just this size that came first."""
        shelf = self._shelves.get(self._key(nbytes, device, line))
        return next(iter(shelf)) if shelf else None

    def first_fitting(self, nbytes: int, device: int, line: Line) -> Buffer | None:
        """Return the smallest buffer that serves a rounded size; of equal ones, the one that came first."""
        for size in fitting_sizes(nbytes):
            buffer = self.first(size, device, line)
            if buffer is not None:
                return buffer
        return None

    def victims(self, nbytes: int) -> list[Buffer]:
        """Return what leaves so that at least ``nbytes`` do: the oldest, or all, by size, if that is nearly all."""
        if nbytes >= 0.9 * self.nbytes:
            return self.in_order_of_size()
        victims = []
        for buffer in self._by_age:
            if nbytes <= 0:
                break
            victims.append(buffer)
            nbytes -= buffer.nbytes
        return victims

    def in_order_of_size(self) -> list[Buffer]:
        """Return all buffers, the smallest first, and of equal ones the oldest."""
        return sorted(self._by_age, key=lambda buffer: buffer.nbytes)

    def idle_since(self, now: float, since: float) -> list[Buffer]:
        """Return what was seen idle at that time or before; what came since the last look is seen now."""
        for buffer in reversed(self._by_age):
            if buffer.since != inf:
                break
            buffer.since = now
        idle = []
        for buffer in self._by_age:
            if buffer.since > since:
                break
            idle.append(buffer)
        return idle


class Slab:
    """Slots for scalars, in one piece of managed memory.

    Parameters
    ----------
    account
        Who holds it.
    start
        Its address.
    alignment
        The bytes from slot to slot.
    """

    def __init__(self, account: Account, start: int, alignment: int) -> None:
        self.account, self.start, self.nbytes = account, start, SLOTS * alignment
        self._alignment = alignment
        self._fresh = 0
        self._returned: list[Buffer] = []

    @property
    def is_whole(self) -> bool:
        """Whether no slot is in use."""
        return len(self._returned) == self._fresh

    def put(self, buffer: Buffer) -> None:
        """Take a slot back."""
        buffer.line.buffers -= 1
        self._returned.append(buffer)

    def take(self, line: Line, *, is_any_past: bool) -> Buffer | None:
        """Return the slot that came back last of those whose work is past, or of the same stream; or else a new one."""
        for index in range(len(self._returned) - 1, -1, -1):
            buffer = self._returned[index]
            if is_any_past or buffer.line is line or buffer.is_past:
                del self._returned[index]
                buffer.line, buffer.serial = line, 0
                line.buffers += 1
                return buffer
        if self._fresh == SLOTS:
            return None
        start = self.start + self._fresh * self._alignment
        self._fresh += 1
        line.buffers += 1
        return Buffer(start, SCALAR, MANAGED, Kind.SLOT, self.account, self.account, line)

    def lines_in_flight(self) -> list[Line]:
        """Return the lines of slots whose work is not known to be past."""
        return list(dict.fromkeys(buffer.line for buffer in self._returned if not buffer.is_past))
