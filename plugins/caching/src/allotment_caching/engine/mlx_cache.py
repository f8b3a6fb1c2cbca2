"""What all devices share under the policy "mlx": the cache, its limits and figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from allotment_caching.engine.mlx_buffers import SCALAR, Account, Buffer, Kind, Line, Shelves, Slab
from allotment_caching.engine.policy import HeldLock, TurnLock, refuse_negative
from allotment_caching.engine.supply import PAST, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from typing import Self

    from allotment_caching.engine.mlx_buffers import MlxSupply

MEMORY_SHARE: Final = 0.95
"""The memory limit, as a part of the device's memory. The rest is the head-room of graphs and kernels."""
CACHE_SHARE: Final = 0.25
"""The limit of the cache. MLX lets it grow as far as the memory limit, which its users take for a leak."""
SCALAR_ALIGNMENT: Final = 256
"""What users of CUDA expect every allocation to be a multiple of."""
IDLE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MlxSettings:
    """What can be set. Switches that are true restore what MLX does and a framework for other libraries must not do.

    Parameters
    ----------
    total
        The bytes of memory that the device has.
    memory_limit
        What is held beyond it is given back first, when memory is made. It is a guideline: no request fails for it.
    cache_limit
        The most bytes to keep idle. The buffer that passes it is still kept.
    scalar_alignment
        The bytes from slot to slot of requests of up to 8 bytes. MLX's 8 are less than libraries rely on.
    idle_seconds
        How long a buffer may be idle before it is given back; for ever if ``None``, as with MLX.
    ignores_streams
        Reuse a buffer on any stream at once. MLX's own encoder frees buffers only when their work is done. Otherwise
        another stream's buffer is reused only when its work is past.
    ignores_devices
        Let buffers of all devices and of managed memory serve all requests; one of another device is replaced by
        managed memory then, which it stays.
    never_retries
        Fail at once for lack of memory. Otherwise idle memory is given back first.
    limits_wait
        Let new limits take effect only with the next request.
    peak_falls_to_zero
        Set the peak to 0 when it is reset, though memory is in use.
    """

    total: int
    memory_limit: int
    cache_limit: int
    scalar_alignment: int = SCALAR_ALIGNMENT
    idle_seconds: float | None = IDLE_SECONDS
    ignores_streams: bool = False
    ignores_devices: bool = False
    never_retries: bool = False
    limits_wait: bool = False
    peak_falls_to_zero: bool = False

    @classmethod
    def mended(cls, total: int) -> Self:
        """Return settings for a device with this memory."""
        return cls(total=total, memory_limit=int(total * MEMORY_SHARE), cache_limit=int(total * CACHE_SHARE))

    @classmethod
    def as_mlx(cls, total: int) -> Self:
        """Return the settings with which all is as in MLX."""
        limit = int(total * MEMORY_SHARE)
        return cls(
            total=total,
            memory_limit=limit,
            cache_limit=limit,
            scalar_alignment=SCALAR,
            idle_seconds=None,
            ignores_streams=True,
            ignores_devices=True,
            never_retries=True,
            limits_wait=True,
            peak_falls_to_zero=True,
        )


class MlxCache:
    """The buffers that are idle, the limits, and the figures, of all devices together.

    What is called `get_…`, `set_…`, `reset_…` and `clear_cache` is MLX's interface; setters return the former value.
    The other calls are those of `MlxPolicy`. Memory is given back by whoever holds the turn, never under the lock: what
    was chosen is set aside under the lock, and stays there if a call fails. That much is not to be seen from outside,
    and has no switch.

    Parameters
    ----------
    settings
        What can be set.
    """

    def __init__(self, settings: MlxSettings) -> None:
        self.settings = settings
        self.lock, self.turn = HeldLock(), TurnLock()
        self.accounts: list[Account] = []
        self.lines: dict[tuple[Account, int, int], Line] = {}
        self.shelves = Shelves(are_of_any_device=settings.ignores_devices, are_of_any_stream=settings.ignores_streams)
        self.private = Shelves()
        """Idle buffers of private pools, which are not part of the cache."""
        self.slab: Slab | None = None
        self._leaving: dict[Buffer, None] = {}
        self._active = self._peak = 0
        self._pending = 0
        self._memory_limit, self._cache_limit = settings.memory_limit, settings.cache_limit
        self._head_room = settings.total - int(settings.total * MEMORY_SHARE)

    # The interface of MLX

    def get_active_memory(self) -> int:
        """Return the bytes of the buffers that are handed out."""
        return self._active

    def get_peak_memory(self) -> int:
        """Return the most bytes that were handed out since the last reset."""
        return self._peak

    def reset_peak_memory(self) -> None:
        """Forget the peak."""
        with self.lock:
            self._peak = 0 if self.settings.peak_falls_to_zero else self._active

    def get_memory_limit(self) -> int:
        """Return the memory limit."""
        return self._memory_limit

    def set_memory_limit(self, limit: int) -> int:
        """Set how much may be held before idle buffers are given back; return the former limit."""
        refuse_negative(limit)
        with self.lock:
            former, self._memory_limit = self._memory_limit, limit
        if not self.settings.limits_wait:
            with self.turn:
                self.make_room(0)
        return former

    def get_cache_memory(self) -> int:
        """Return the bytes of the buffers that are idle."""
        return self.shelves.nbytes

    def get_cache_limit(self) -> int:
        """Return the limit of the cache."""
        return self._cache_limit

    def set_cache_limit(self, limit: int) -> int:
        """Set how much may be idle; return the former limit."""
        refuse_negative(limit)
        with self.lock:
            former, self._cache_limit = self._cache_limit, limit
        if not self.settings.limits_wait:
            with self.turn:
                self.keep_within_limit()
        return former

    def clear_cache(self) -> None:
        """Give all idle buffers back."""
        with self.turn:
            self._evict(self.shelves.in_order_of_size)

    # Buffers change hands: with the lock

    def hand_out(self, buffer: Buffer, line: Line) -> Buffer:
        """Count a buffer as handed out on a line."""
        buffer.move_to(line)
        if buffer.kind is not Kind.SLOT and buffer.account is not line.account:
            buffer.account.hold(-buffer.nbytes)
            line.account.hold(buffer.nbytes)
            buffer.account = line.account
        buffer.account.allocated += buffer.nbytes
        self._active += buffer.nbytes
        self._peak = max(self._peak, self._active)
        return buffer

    def take_back(self, buffer: Buffer) -> None:
        """Count a buffer as handed out no more."""
        buffer.account.allocated -= buffer.nbytes
        self._active -= buffer.nbytes

    def wait_for(self, nbytes: int) -> None:
        """Count buffers that are neither handed out nor idle, or no more where negative."""
        self._pending += nbytes

    def recycle(self, buffer: Buffer) -> None:
        """Keep a buffer for the next request, if the cache has not reached its limit."""
        line = buffer.line
        line.frees += 1
        buffer.serial = line.frees
        if line.pool:
            self.private.add(buffer)
        elif self.shelves.nbytes < self._cache_limit:
            self.shelves.add(buffer)
        else:
            self.discard(buffer)

    def discard(self, buffer: Buffer) -> None:
        """Set a buffer aside, to be given back; a slot goes back to the slab."""
        if buffer.kind is Kind.SLOT:
            assert self.slab is not None
            self.slab.put(buffer)
        else:
            self._leaving[buffer] = None

    def exceeds_limit_without(self, nbytes: int) -> bool:
        """Return whether idle buffers would have to be given back if so much of them were taken."""
        return self.shelves.nbytes - nbytes > self._cache_limit

    def line(self, account: Account, stream: int, pool: int) -> Line:
        """Return the line of a stream."""
        key = account, stream, pool
        if key not in self.lines:
            self.lines[key] = Line(account, stream, pool)
        return self.lines[key]

    # Buffers are given back: with the turn

    @property
    def is_due(self) -> bool:
        """Whether buffers are set aside to be given back."""
        return bool(self._leaving)

    def flush(self) -> None:
        """Give back what was set aside."""
        for buffer in list(self._leaving):
            if buffer.give_back():
                with self.lock:
                    del self._leaving[buffer]
                    buffer.account.hold(-buffer.nbytes)
                    buffer.line.buffers -= 1

    def release(self, nbytes: int) -> None:
        """Give back idle buffers of at least so many bytes in all, if there are."""
        self._evict(lambda: self.shelves.victims(nbytes))

    def _evict(self, choose: Callable[[], Iterable[Buffer]]) -> None:
        with self.lock:
            for buffer in list(choose()):
                self.shelves.remove(buffer)
                self.discard(buffer)
        self.flush()

    def make_room(self, nbytes: int) -> None:
        """Give back what is above the memory limit once so much is added, as far as it is idle."""
        with self.lock:
            held = self._active + self._pending + self.private.nbytes + self.shelves.nbytes
        excess = held + nbytes - self._memory_limit
        if excess > 0:
            self.release(excess)

    def keep_head_room(self) -> None:
        """Give back a part of what is idle if a default pool has reserved nearly all, for graphs and kernels."""
        if not self.shelves.nbytes:
            return
        for account in self.accounts:
            if account.supply.pool_reserved() > self.settings.total - self._head_room:
                self.release(self._head_room)
                return

    def keep_within_limit(self) -> None:
        """Give back what is above the cache limit."""
        excess = self.shelves.nbytes - self._cache_limit
        if excess > 0:
            self.release(excess)

    def give_back_idle(self, now: float) -> None:
        """Give back what was idle for long."""
        idle_seconds = self.settings.idle_seconds
        if idle_seconds is not None:
            self._evict(lambda: self.shelves.idle_since(now, now - idle_seconds))

    def trim(self, account: Account, keep: int) -> None:
        """Give back idle buffers of an account, the oldest first, until it holds at most ``keep`` bytes."""
        self.flush()
        self._evict(lambda: self._oldest_of(account, keep))
        slab = self.slab
        if slab is not None and slab.account is account and slab.is_whole and account.reserved > keep:
            account.supply.free(slab.start)
            with self.lock:
                self.slab = None
                account.hold(-slab.nbytes)

    def _oldest_of(self, account: Account, keep: int) -> list[Buffer]:
        excess = account.reserved - keep
        oldest = []
        for buffer in self.shelves:
            if excess <= 0:
                break
            if buffer.account is account:
                oldest.append(buffer)
                excess -= 0 if buffer.kind is Kind.SLOT else buffer.nbytes
        return oldest

    # What is past: with the turn

    def look_for_quiet(self, line: Line) -> None:
        """Find out which frees of a line are past."""
        supply = line.account.supply
        if line.mark == PAST:
            if line.quiet == line.frees:
                return
            line.marked = line.frees
            line.mark = supply.mark(line.stream)
        if line.mark == UNKNOWN:
            line.mark = PAST
        elif is_past(supply, line.mark):
            line.mark, line.quiet = PAST, max(line.quiet, line.marked)

    def forget_lines(self, account: Account, awaited: Collection[int]) -> None:
        """Forget an account's lines that have no buffers, whose work is past, and whose streams nobody waits for."""
        lines = {key: line for key, line in self.lines.items() if line.account is account and not line.buffers}
        for key, line in lines.items():
            if line.stream in awaited:
                continue
            self.look_for_quiet(line)
            if line.mark == PAST and line.quiet == line.frees:
                with self.lock:
                    self._forget(key, line)

    def _forget(self, key: tuple[Account, int, int], line: Line) -> None:
        if line.buffers:  # another thread was faster
            return
        del self.lines[key]
        if not any(line.account is other and line.stream == stream for other, stream, _ in self.lines):
            line.account.supply.forget(line.stream)


def is_past(supply: MlxSupply, mark: int) -> bool:
    """Return whether a mark is past, and forget it then."""
    if mark == PAST:
        return True
    if mark == UNKNOWN or not supply.is_past(mark):
        return False
    supply.drop(mark)
    return True
