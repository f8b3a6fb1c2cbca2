"""Where a library gets its memory from."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from allotment import _process
from allotment._allocator_scopes import allocator_scopes
from allotment._foreign_memory import report_lost_block, report_unraisable
from allotment._twins import preferred
from allotment.bridges import _express
from allotment.device import device_registry, find_device
from allotment.errors import InvalidPointerError
from allotment.selection import account_of, allocator_in_force, named_allocator
from allotment.stream import LEGACY_STREAM, Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment.device import Device
    from allotment.layers.accounting import AccountedAllocator
    from allotment.selection import AllocatorLike


class Delivery:
    """The allocator that a bridge draws from, on each device.

    Parameters
    ----------
    library
        The library that it is for.
    allocator
        A name or an object with the two methods; ``None`` for the allocator in force at each allocation.

    Attributes
    ----------
    library
        As given.
    tells_streams : bool
        Whether the library frees on the stream that used the memory last, or tells of others. If not, stream-ordered
        memory goes back after all work that is queued on the device.
    """

    def __init__(self, library: str, allocator: AllocatorLike = None) -> None:
        self.library = library
        self.tells_streams = True
        self._allocator = allocator
        self._devices: dict[int, Device] = {}
        self._streams: WeakValueDictionary[tuple[int, int], Stream] = WeakValueDictionary()
        self._latest: dict[int, Stream] = {}
        self._blocks: dict[int, tuple[AccountedAllocator, int, Stream]] = {}
        self._lanes: list[_express.Lane | None] = []
        self._kept: deque[tuple[AccountedAllocator, int, int, Stream]] = deque()
        self._marks: dict[Device, int] = {}
        self._fixed: dict[Device, AccountedAllocator] = {}
        self.account: Callable[[Device], AccountedAllocator] = allocator_in_force if allocator is None else self._same
        """Return the allocator for a device now, with its accounts."""

    def _same(self, device: Device) -> AccountedAllocator:
        found = self._fixed.get(device)
        if found is None:
            found = self._fixed[device] = self._find(device)
        return found

    def _find(self, device: Device) -> AccountedAllocator:
        if isinstance(self._allocator, str):
            return named_allocator(self._allocator, device)
        assert self._allocator is not None
        return account_of(self._allocator, device)

    def check(self) -> None:
        """See to it that there is such an allocator for each CUDA device.

        Raises
        ------
        PluginError, UnsupportedError
            If not.
        """
        for device in device_registry().cuda:
            self.account(device)

    @property
    def is_fixed(self) -> bool:
        """Whether it draws from one allocator on each device, whatever is in force."""
        return self._allocator is not None

    @property
    def source(self) -> str:
        """What it draws from, in words."""
        if self._allocator is None:
            return "the allocator in force"
        name = self._allocator if isinstance(self._allocator, str) else getattr(self._allocator, "name", None)
        return name if isinstance(name, str) else type(self._allocator).__name__

    def device(self, ordinal: int) -> Device:
        """Return the CUDA device of a number."""
        found = self._devices.get(ordinal)
        if found is None or found.is_retired:
            found = self._devices[ordinal] = find_device(f"cuda:{ordinal}")
        return found

    def stream(self, device: Device, handle: int, owner: object = None) -> Stream:
        """Return the stream of a handle that the library owns.

        ``owner`` is kept alive as long as memory is allocated on the stream, or it was the latest that was asked for.
        """
        latest = self._latest.get(device.ordinal)
        if latest is not None and latest.handle == handle and latest.device is device:
            return latest
        key = device.ordinal, handle
        found = self._streams.get(key)
        if found is None or found.device is not device:
            found = self._streams[key] = Stream.from_external(handle if owner is None else owner, device)  # type: ignore[arg-type]
        self._latest[device.ordinal] = found
        return found

    # For libraries that free by address

    def allocate(self, ordinal: int, size: int, handle: int) -> int:
        """Return a new block of a device for the work of a stream, for a library that frees by address.

        Parameters
        ----------
        ordinal
            The device's number.
        size
            The size in bytes. Zero gives 0.
        handle
            The ``cudaStream_t``.

        Raises
        ------
        OutOfMemoryError
            If the memory is not to be had.
        """
        device = self.device(ordinal)
        account, stream = self.account(device), self.stream(device, handle)
        ptr = account.allocate_on(size, stream)
        if ptr:
            self._blocks[ptr] = account, size, stream
        return ptr

    def deallocate(self, ptr: int) -> None:
        """Take a block of `allocate` back to the allocator that made it; 0 is nothing.

        Raises
        ------
        InvalidPointerError
            If no such block is handed out.
        """
        if not ptr:
            return
        block = self._taken(ptr)
        account, size, _ = block
        try:
            account.deallocate(ptr, size)
        except BaseException:
            self._blocks[ptr] = block
            raise

    def release(
        self, ptr: int, handle: int | None = None, *, is_running: Callable[[], bool] = _process.is_running
    ) -> None:
        """Take a block of `allocate` back as `deallocate` does, raising nothing.

        Parameters
        ----------
        ptr
            Its address.
        handle
            The stream whose present work may use it, if that is not the one it was allocated on.
        is_running
            Not to be given: at the very end of the interpreter, when nothing is freed, this module has lost its names.
        """
        if not ptr or not is_running():
            return
        try:
            account, size, stream = self._taken(ptr)
            self._order(stream, handle)
            self.give_back(account, ptr, size, stream)
        except BaseException as error:  # noqa: BLE001 - the library cannot be told
            report_unraisable(error, self)

    def _taken(self, ptr: int) -> tuple[AccountedAllocator, int, Stream]:
        block = self._blocks.pop(ptr, None)
        if block is None:
            raise InvalidPointerError(pointer=ptr, allocator=f"the bridge to {self.library}")
        return block

    def _order(self, stream: Stream, handle: int | None) -> None:
        """Let a stream wait for another one's work."""
        if handle is not None and _number(handle) != _number(stream.handle):
            stream.wait_for(self.stream(stream.device, handle))

    def is_live(self, ptr: int) -> bool:
        """Return whether a block of `allocate` is handed out."""
        return ptr in self._blocks

    # For libraries that hold objects

    def give_back(
        self,
        account: AccountedAllocator,
        ptr: int,
        size: int,
        stream: Stream,
        *,
        is_running: Callable[[], bool] = _process.is_running,
    ) -> None:
        """Take a block back of which nobody knows any more, raising nothing: in a finaliser.

        While its stream is captured by the library, of which Allotment is not told, the block waits: it goes back in
        the course of later calls. A free would end the capture, or become part of the graph.

        Parameters
        ----------
        account, ptr, size, stream
            The allocator that made it, its address and size, and the stream that it was allocated on.
        is_running
            As for `release`.
        """
        if is_running() and self._give_back(account, ptr, size, stream) and self._kept:
            self.give_back_kept()

    def give_back_kept(self) -> None:
        """Give back what had to wait for the end of a capture; what still must, goes on waiting."""
        for _ in range(len(self._kept)):
            try:
                block = self._kept.pop()
            except IndexError:  # another thread, or a finaliser in between, took it
                return
            self._give_back(*block)

    def _give_back(self, account: AccountedAllocator, ptr: int, size: int, stream: Stream) -> bool:
        """Give a block back, or keep it; return whether it is gone."""
        device = account.device
        try:
            if device.is_retired or device.captures.on_devices:  # of which Allotment knows, and to which it sees itself
                account.deallocate(ptr, size)
                return True
            beside = device.captures.beside
            is_captured = account.takes_streams and beside.is_captured(stream.handle, device.ordinal)
            if is_captured or not (self.tells_streams or self._is_ordered(account)):
                self._kept.appendleft((account, ptr, size, stream))
                return False
            beside.call(account.deallocate, ptr, size)
        except BaseException as error:  # noqa: BLE001 - nothing leaves a finaliser
            _report(account, ptr, size, error)
        return True

    def _is_ordered(self, account: AccountedAllocator) -> bool:
        """Let a free wait for all streams of a library that does not tell which it used; return whether it may be.

        None of them may be a non-blocking one.
        """
        if not account.traits.stream_ordered:
            return True
        device = account.device
        mark = self._marks.get(device)
        if mark is None:
            mark = self._marks[device] = device.platform.create_event(device.ordinal)
        return device.captures.beside.order_after_all_work(mark, device.ordinal)

    # Calls that go straight to the allocator

    def express(
        self, otherwise: Callable[[int], Any], current_device: Callable[[], int], device_function: int = 0
    ) -> Callable[[int], Any]:
        """Return a function that allocates by the lane of the current device while that is open, or by ``otherwise``.

        Parameters
        ----------
        otherwise
            What allocates in the general way: it is given a size.
        current_device
            Returns the number of the device that is current.
        device_function
            The address of ``int (int)`` that does the same, whatever it is given; 0 if there is none.
        """
        scopes = allocator_scopes.variable if self._allocator is None else None
        function: Callable[[int], Any] = preferred(_express).express(
            self._lanes, scopes, current_device, device_function, otherwise
        )
        return function

    def open_lane(
        self, account: AccountedAllocator, make: Callable[..., Any], given: tuple[Any, ...], wrap: Callable[..., Any]
    ) -> None:
        """Let blocks be made straight from an allocator, while that is in force and nothing stands before it.

        Parameters
        ----------
        account
            The allocator, with accounts of its own (`KeepsAccounts`) on which ``make`` books.
        make, given
            ``make(size, *given)`` returns an object with the address as ``ptr``, which gives the block back itself; 0
            if the memory is not to be had.
        wrap
            ``wrap(made, 0)`` returns what the library gets.
        """
        ordinal = account.device.ordinal
        self._lanes.extend([None] * (ordinal + 1 - len(self._lanes)))
        self._lanes[ordinal] = account.device, account, make, given, wrap

    def has_lane(self, account: AccountedAllocator) -> bool:
        """Return whether the lane of a device leads to an allocator."""
        return any(lane is not None and lane[1] is account for lane in self._lanes)


def _number(handle: int) -> int:
    """Return the handle of a stream, the same one for both names of the null stream."""
    return 0 if handle == LEGACY_STREAM else handle


def captured_unknown_to_us(stream: Stream) -> bool:
    """Return whether a free on a stream would become part of a capture that Allotment is not told of, or end it."""
    device = stream.device
    captures = device.captures
    if device.is_retired or captures.on_devices:
        return False
    return captures.beside.is_captured(stream.handle, device.ordinal)


def _report(account: AccountedAllocator, ptr: int, size: int, error: BaseException) -> None:
    try:
        report_lost_block(ptr, size, f"allocator {account.name!r}", error)
    except BaseException as refusal:  # noqa: BLE001 - a warning that is an error
        report_unraisable(refusal, account)
