"""The policy "mlx": buffers are kept whole, and reused for requests of about their size, as MLX does on CUDA.

Idle buffers of all devices wait in one cache, which gives back those that wait longest when memory runs short. What MLX
does that only its own encoder makes safe is mended; `MlxSettings` has a switch for each, which restores it.

There are two locks: the cache's `lock`, held while buffers change hands, and its `turn`, taken before it by whoever
makes memory or gives it back. Calls to the supply are made with the turn alone.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from allotment_caching.engine.mlx_buffers import (
    MANAGED,
    SCALAR,
    SLOTS,
    Account,
    Buffer,
    Kind,
    Line,
    Slab,
    fitting_sizes,
    round_size,
)
from allotment_caching.engine.mlx_cache import is_past
from allotment_caching.engine.policy import Figures
from allotment_caching.engine.supply import PAST, UNKNOWN

if TYPE_CHECKING:
    from allotment_caching.engine.mlx_buffers import MlxSupply
    from allotment_caching.engine.mlx_cache import MlxCache


@dataclass(slots=True, eq=False)
class Pending:
    """A buffer that was freed while other streams may still work on it: these, and a mark on each."""

    buffer: Buffer
    waits: list[tuple[int, int]]


class MlxPolicy:
    """One device's view of a cache.

    Parameters
    ----------
    cache
        What it shares with other devices.
    supply
        Where memory comes from.
    device
        The ordinal.
    is_managed
        Whether all requests get managed memory, as they do from MLX where no stream is named.
    """

    def __init__(self, cache: MlxCache, supply: MlxSupply, device: int, *, is_managed: bool = False) -> None:
        self.lock = cache.lock
        self._cache, self._supply = cache, supply
        self._account = Account(supply, device)
        self._device = MANAGED if is_managed else device
        self._pending: list[Pending] = []
        self._stray: deque[int] = deque()
        """Marks that nobody waits for, to be dropped."""
        with cache.lock:
            cache.accounts.append(self._account)

    @property
    def limit(self) -> int:
        """The memory limit of the cache."""
        return self._cache.get_memory_limit()

    @limit.setter
    def limit(self, limit: int) -> None:
        self._cache.set_memory_limit(limit)

    @property
    def cache_limit(self) -> int:
        """The most bytes to keep idle in the cache."""
        return self._cache.get_cache_limit()

    @cache_limit.setter
    def cache_limit(self, limit: int) -> None:
        self._cache.set_cache_limit(limit)

    # Buffers that are at hand

    def take_cached(self, size: int, stream: int, pool: int) -> Buffer | None:
        """Return the buffer of about this size that the stream freed first."""
        nbytes = round_size(size)
        line = self._cache.lines.get((self._account, stream, pool))
        if line is None:
            return None
        device = self._device_for(nbytes)
        shelves = self._cache.private if line.pool else self._cache.shelves
        buffer = shelves.first_fitting(nbytes, device, line)
        if buffer is None or _is_foreign(buffer, device):
            return None
        if not line.pool and self._cache.exceeds_limit_without(buffer.nbytes):
            return None
        shelves.remove(buffer)
        return self._cache.hand_out(buffer, line)

    def give(self, block: Buffer) -> None:
        """Take a buffer back for the next request of about its size; see `is_due`."""
        self._cache.take_back(block)
        self._cache.recycle(block)

    @property
    def is_due(self) -> bool:
        """Whether a buffer that was given did not fit into the cache: `look_around` gives it back to the driver."""
        return self._cache.is_due

    def _device_for(self, nbytes: int) -> int:
        return MANAGED if nbytes <= SCALAR else self._device

    # Buffers that other streams use

    def give_after(self, block: Buffer, users: tuple[int, ...]) -> None:
        """Take a buffer back once its users are done; if it fails, the buffer is still handed out."""
        marks: list[int] = []
        try:
            for user in users:
                marks.append(self._supply.mark(user))  # noqa: PERF401 - what was set before a failure is dropped later
        except BaseException:
            with self.lock:
                self._stray.extend(mark for mark in marks if mark not in (PAST, UNKNOWN))
            raise
        with self.lock:
            self._cache.take_back(block)
            self._cache.wait_for(block.nbytes)
            self._pending.append(Pending(block, list(zip(users, marks, strict=True))))

    def _settle(self) -> None:
        """Take back the pending buffers that nobody uses any more."""
        while self._stray:
            self._supply.drop(self._stray[0])
            with self.lock:
                self._stray.popleft()
        for pending in list(self._pending):
            if self._is_settled(pending):
                with self.lock:
                    self._pending.remove(pending)
                    self._cache.wait_for(-pending.buffer.nbytes)
                    self._cache.recycle(pending.buffer)

    def _is_settled(self, pending: Pending) -> bool:
        while pending.waits:
            user, mark = pending.waits[-1]
            if mark == UNKNOWN:
                mark = self._supply.mark(user)
                pending.waits[-1] = user, mark
            if not is_past(self._supply, mark):
                return False
            pending.waits.pop()
        return True

    # Buffers that are not at hand

    def take(self, size: int, stream: int, pool: int) -> Buffer:
        """Return a buffer of the cache, or a new one."""
        nbytes = round_size(size)
        return self._take(nbytes, self._device_for(nbytes), stream, pool)

    def take_managed(self, size: int, stream: int, pool: int = 0) -> Buffer:
        """Return a buffer of managed memory, as `take` does for all where the policy is managed."""
        return self._take(round_size(size), MANAGED, stream, pool)

    def _take(self, nbytes: int, device: int, stream: int, pool: int) -> Buffer:
        cache = self._cache
        with cache.turn:
            self._catch_up()
            with self.lock:
                line = cache.line(self._account, stream, pool)
            cached = self._take_idle(nbytes, device, line)
            buffer = cached or self._make(nbytes, device, line)
            try:
                if cached is None:
                    cache.keep_head_room()
                cache.keep_within_limit()
                if _is_foreign(buffer, device):
                    buffer = self._replace(buffer, line)
                cache.flush()
            except BaseException:
                with self.lock:
                    cache.recycle(buffer)
                raise
            with self.lock:
                return cache.hand_out(buffer, line)

    def _catch_up(self) -> None:
        """Do what is due: see which buffers nobody uses any more, and give back what was idle for long."""
        self._settle()
        self._cache.flush()
        self._cache.give_back_idle(self._supply.now())

    def _take_idle(self, nbytes: int, device: int, line: Line) -> Buffer | None:
        with self.lock:
            shelves = self._cache.private if line.pool else self._cache.shelves
            buffer = shelves.first_fitting(nbytes, device, line)
            if buffer is not None:
                shelves.remove(buffer)
        if buffer is None and not line.pool and not self._cache.settings.ignores_streams:
            buffer = self._take_past(nbytes, device)
        return buffer

    def _take_past(self, nbytes: int, device: int) -> Buffer | None:
        """Return a buffer that any stream freed, and whose work is past."""
        shelves = self._cache.shelves
        for size in fitting_sizes(nbytes):
            with self.lock:
                lines = [line for line in self._cache.lines.values() if shelves.first(size, device, line) is not None]
            for line in lines:
                self._cache.look_for_quiet(line)
            with self.lock:
                found = [shelves.first(size, device, line) for line in lines]
                past = [buffer for buffer in found if buffer is not None and buffer.is_past]
                if past:
                    oldest = min(past, key=lambda buffer: buffer.age)
                    shelves.remove(oldest)
                    return oldest
        return None

    # Buffers that are made

    def _make(self, nbytes: int, device: int, line: Line) -> Buffer:
        """Return a new buffer; for lack of memory give idle ones back, and try again."""
        self._cache.make_room(nbytes)
        try:
            return self._make_once(nbytes, device, line)
        except Exception as error:
            if self._cache.settings.never_retries or not self._supply.is_out_of_memory(error):
                raise
        self._give_back(0)
        return self._make_once(nbytes, device, line)

    def _make_once(self, nbytes: int, device: int, line: Line) -> Buffer:
        slot = self._take_slot(line) if nbytes <= SCALAR else None
        if slot is not None:
            return slot
        if device == MANAGED:
            start, kind = self._supply.malloc_managed(nbytes), Kind.MANAGED
        elif line.pool:
            start, kind = self._supply.malloc(nbytes), Kind.SEGMENT
        else:
            start, kind = self._supply.malloc_async(nbytes, line.stream), Kind.ORDERED
        with self.lock:
            self._account.hold(nbytes)
            line.buffers += 1
        return Buffer(start, nbytes, device, kind, self._account, self._account, line)

    def _take_slot(self, line: Line) -> Buffer | None:
        cache = self._cache
        slab = cache.slab
        if slab is None:
            alignment = cache.settings.scalar_alignment
            slab = Slab(self._account, self._supply.malloc_managed(SLOTS * alignment), alignment)
            with self.lock:
                cache.slab = slab
                self._account.hold(slab.nbytes)
        slot = self._take_slot_of(slab, line)
        if slot is None:
            for other in slab.lines_in_flight():
                cache.look_for_quiet(other)
            slot = self._take_slot_of(slab, line)
        return slot

    def _take_slot_of(self, slab: Slab, line: Line) -> Buffer | None:
        with self.lock:
            return slab.take(line, is_any_past=self._cache.settings.ignores_streams)

    def _replace(self, buffer: Buffer, line: Line) -> Buffer:
        """Set an idle buffer of another device aside, and return managed memory of its size, which it stays.

        MLX moves what is in the buffer as well, and does the same to buffers that are in use.
        """
        managed = self._make(buffer.nbytes, MANAGED, line)
        with self.lock:
            self._cache.discard(buffer)
        return managed

    # Giving back

    def look_around(self) -> None:
        """Give back what was idle for long, and what did not fit into the cache."""
        if self._cache.turn.is_taken:
            return
        with self._cache.turn:
            self._catch_up()
            self._cache.forget_lines(self._account, self._awaited())

    def trim(self, keep: int) -> None:
        """Wait for all work, and give idle buffers of this device back until it holds at most ``keep`` bytes."""
        with self._cache.turn:
            self._give_back(keep)
            self._cache.forget_lines(self._account, self._awaited())

    def _give_back(self, keep: int) -> None:
        self._wait()
        self._cache.trim(self._account, keep)
        self._wait()  # what is given back in the order of a stream is there once the stream has come to it

    def _wait(self) -> None:
        """Wait for the work of all streams, where waiting is allowed, so that all that is idle is past."""
        frees = {line: line.frees for line in list(self._cache.lines.values()) if line.account is self._account}
        streams = dict.fromkeys([line.stream for line in frees] + self._awaited())
        done = {stream for stream in streams if self._supply.synchronize(stream)}
        for line, count in frees.items():
            if line.stream in done:
                line.quiet = max(line.quiet, count)
        self._settle()

    def _awaited(self) -> list[int]:
        """Return the streams that pending buffers wait for."""
        return [user for pending in list(self._pending) for user, _ in pending.waits]

    # Pools, other devices, figures

    def release_pool(self, pool: int) -> None:
        """Let the idle buffers of a private pool serve others."""
        with self.lock:
            released = [
                line for line in self._cache.lines.values() if line.account is self._account and line.pool == pool
            ]
            idle = [buffer for buffer in self._cache.private if buffer.line in released]
            for buffer in idle:
                self._cache.private.remove(buffer)
            for line in released:
                line.pool = 0
            for buffer in idle:
                self._cache.recycle(buffer)

    def share(self, ordinal: int, *, enable: bool) -> None:
        """Let another device touch all memory of this one, present and future, or not."""
        with self._cache.turn:
            self._supply.share_pool(ordinal, enable=enable)

    def figures(self) -> Figures:
        """Return how this device's memory stands."""
        account = self._account
        with self.lock:
            largest = max((buffer.nbytes for buffer in self._cache.shelves if buffer.account is account), default=0)
            return Figures(account.reserved, account.peak, account.allocated, largest)

    def reset_peak(self) -> None:
        """Set the high-water mark to what is held now."""
        with self.lock:
            self._account.peak = self._account.reserved


def _is_foreign(buffer: Buffer, device: int) -> bool:
    """Return whether a buffer's memory belongs to another device than is asked for; managed memory belongs to none."""
    return buffer.device not in (MANAGED, device)
