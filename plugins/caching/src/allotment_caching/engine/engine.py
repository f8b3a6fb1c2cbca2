"""The accounts and checks around a policy: the calls that core hands out as its own."""

from __future__ import annotations

import warnings
from collections import deque
from typing import TYPE_CHECKING, Final

from allotment import AllotmentWarning, FreeFailedWarning
from allotment_caching.engine.policy import refuse_negative

if TYPE_CHECKING:
    from allotment import AccountAnswers, Stream
    from allotment_caching.engine.policy import Figures, Handed, Policy
    from allotment_caching.engine.streams import Streams

LOOK_EVERY: Final = 1024
"""How many frees pass between two looks at what is due now and then."""


def tell_of_idle_memory(error: Exception) -> None:
    """Tell that idle memory could not be given back, where nobody asked for it."""
    warnings.warn(f"idle memory was not given back: {error}", AllotmentWarning, stacklevel=3)


class Engine:
    """The blocks of one device that are handed out, and the policy behind them.

    Parameters
    ----------
    policy
        What decides which memory serves a request.
    streams
        The streams that were seen; the supply asks them.

    Attributes
    ----------
    largest : int
        The largest request that can be met at all.
    current, peak : int
        Bytes that are booked now, and at most; each block with the size that was asked for.
    allocations, frees : int
        Calls that succeeded.
    """

    is_compiled = False

    def __init__(self, policy: Policy, streams: Streams) -> None:
        self.largest = 2**63 - 1
        self.current = self.peak = self.allocations = self.frees = 0
        self._policy, self._lock = policy, policy.lock
        self._is_within = policy.lock.is_mine
        self._live: dict[int, Handed] = {}
        self._streams = streams
        self._late: deque[tuple[int, int]] = deque()
        self._answers: AccountAnswers

    def attach(self, answers: AccountAnswers) -> None:
        """Take what core answers to unusual calls."""
        self._answers = answers

    def __len__(self) -> int:
        return sum(block.is_booked for block in list(self._live.values()))

    def __contains__(self, ptr: object) -> bool:
        block = self._live.get(ptr)  # type: ignore[call-overload]  # nothing else equals an address
        return block is not None and block.is_booked

    def blocks(self) -> list[tuple[int, int]]:
        """Return the address of each booked block, and the size that was asked for."""
        with self._lock:
            return [(block.start, block.size) for block in self._live.values() if block.is_booked]

    def reset_peak(self) -> None:
        """Set the peak to what is booked now."""
        self.peak = self.current

    # Booked calls

    def allocate(self, size: int) -> int:
        """Return the address of a new block for work on the stream in force, and book it."""
        if type(size) is not int or not 0 < size <= self.largest:
            return self._answers.unusual_size(size)
        stream = self._answers.find_stream()
        with self._lock:
            block: Handed | None = self._policy.take_cached(size, stream.handle, 0)
            if block is not None:
                self._note(block, size)
                self._book(block)
        if block is None:
            block = self._take_uncached(size, stream)
        if self._late:
            self._free_late()
        return block.start

    def _take_uncached(self, size: int, stream: Stream) -> Handed:
        try:
            block = self._take(size, stream, 0)
        except Exception as error:  # noqa: BLE001 - core tells what it means
            self._answers.failed_allocation(error, size)
        with self._lock:
            self._book(block)
        return block

    def deallocate(self, ptr: int, size: int) -> None:
        """Take a booked block back in the order of the stream it was allocated on."""
        if self._is_within():
            self._late.append((ptr, size))  # a finaliser, in the middle of a call of this thread
            return
        with self._lock:
            block = self._live.get(ptr)
            if block is None or not block.is_booked or block.size != size:
                block = None
            else:
                self._unbook(block)
                if not block.users:
                    del self._live[ptr]
                    self._policy.give(block)
        if block is None:
            self._refuse_free(ptr, size)
            return
        if block.users:
            self._free_used(block)
        elif self.frees % LOOK_EVERY == 0 or self._policy.is_due:
            self.look_around()

    def _refuse_free(self, ptr: int, size: int) -> None:
        block = self._live.get(ptr)
        self._answers.wrong_free(ptr, block.size if block is not None and block.is_booked else None, size)

    def _book(self, block: Handed) -> None:
        block.is_booked = True
        self.allocations += 1
        self.current += block.size
        if self.current > self.peak:
            self.peak = self.current

    def _unbook(self, block: Handed) -> None:
        block.is_booked = False
        self.frees += 1
        self.current -= block.size

    def _free_used(self, block: Handed) -> None:
        """Free a block that other streams use; it is on the books again if that fails."""
        try:
            self._give_after(block)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the block is not lost
            with self._lock:
                self._book(block)
                self.allocations -= 1
                self.frees -= 1
            self._answers.failed_free(error)

    def look_around(self) -> None:
        """Do what is due now and then; tell of a failure as a warning."""
        try:
            self._policy.look_around()
        except Exception as error:  # noqa: BLE001 - the free that led here is done
            tell_of_idle_memory(error)

    def _free_late(self) -> None:
        """Free what finalisers gave back in the middle of calls."""
        while self._late:
            ptr, size = self._late.popleft()
            try:
                self.deallocate(ptr, size)
            except Exception as error:  # noqa: BLE001 - its caller is long gone
                warnings.warn(f"a block at {ptr:#x} was not freed: {error}", FreeFailedWarning, stacklevel=3)

    # Calls with a stream, which nobody books

    def allocate_on(self, size: int, stream: Stream, pool: int = 0) -> int:
        """Return the address of a new block, of a private pool if one is named."""
        return self._take(size, stream, pool).start

    def deallocate_on(self, ptr: int, size: int, stream: Stream) -> None:  # noqa: ARG002 - the block knows its size
        """Take a block back in the order of its stream, and of another that it is freed on."""
        self.record_use(ptr, stream)
        block = self._live[ptr]
        if block.users:
            self._give_after(block)
            return
        with self._lock:
            del self._live[ptr]
            self._policy.give(block)

    def enter(self, ptr: int, size: int) -> None:
        """Book a block of `allocate_on`."""
        with self._lock:
            self._live[ptr].size = size
            self._book(self._live[ptr])

    def leave(self, ptr: int, size: int) -> Stream | None:
        """Take a block off the books, for `deallocate_on`; return its stream, ``None`` if that was refused."""
        with self._lock:
            block = self._live.get(ptr)
            if block is not None and block.is_booked and block.size == size:
                self._unbook(block)
                return self._streams.find(block.stream)
        self._refuse_free(ptr, size)
        return None

    def record_use(self, ptr: int, stream: Stream) -> None:
        """Note that work on a stream uses a block."""
        self._streams.see(stream, is_used=True)
        with self._lock:
            block = self._live[ptr]
            if stream.handle not in (block.stream, *block.users):
                block.users += (stream.handle,)

    def _take(self, size: int, stream: Stream, pool: int) -> Handed:
        handle = stream.handle
        with self._lock:
            block = self._policy.take_cached(size, handle, pool)
            if block is not None:
                return self._note(block, size)
        self._streams.see(stream)
        block = self._policy.take(size, handle, pool)
        with self._lock:
            self._streams.see(stream)  # a trim may have forgotten it before the block was taken
            return self._note(block, size)

    def _note(self, block: Handed, size: int) -> Handed:
        block.size = size
        self._live[block.start] = block
        return block

    def _give_after(self, block: Handed) -> None:
        with self._lock:
            del self._live[block.start]
            users, block.users = block.users, ()
        try:
            self._policy.give_after(block, users)
        except BaseException:
            with self._lock:
                block.users = users
                self._live[block.start] = block
            raise

    # What is held

    def figures(self) -> Figures:
        """Return what is held, handed out and idle."""
        return self._policy.figures()

    def reset_peak_reserved(self) -> None:
        """Set the high-water mark of what is held to what is held now."""
        self._policy.reset_peak()

    @property
    def limit(self) -> int:
        """The most bytes to hold."""
        return self._policy.limit

    @limit.setter
    def limit(self, limit: int) -> None:
        refuse_negative(limit)
        self._policy.limit = limit

    @property
    def cache_limit(self) -> int:
        """The most bytes to hold idle."""
        return self._policy.cache_limit

    @cache_limit.setter
    def cache_limit(self, limit: int) -> None:
        refuse_negative(limit)
        self._policy.cache_limit = limit

    def trim(self, keep: int) -> None:
        """Wait for the work in flight, and give idle memory back until at most ``keep`` bytes are held."""
        self._policy.trim(keep)

    def release_pool(self, pool: int) -> None:
        """Let the idle memory of a private pool serve others."""
        self._policy.release_pool(pool)

    def share(self, ordinal: int, enable: bool) -> None:
        """Let another device touch all memory, present and future, or not."""
        self._policy.share(ordinal, enable=enable)

    def close(self) -> None:
        """Give everything back; no block is live any more."""
        self._policy.trim(0)
