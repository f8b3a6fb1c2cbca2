"""What writes down each allocation and free: to a file as they come, or the last ones, kept until asked for."""

from __future__ import annotations

from collections import deque
from functools import cache
from itertools import count
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from allotment import _process
from allotment._locks import RenewedLock
from allotment.errors import TraceError
from allotment.labels import current_label
from allotment.layers.call_site import capture_site
from allotment.layers.layer import is_shortage
from allotment.layers.trace_file import Definitions, Row, Start, TraceFile, lines_of, now

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from allotment.layers.accounting import AccountedAllocator
    from allotment.layers.call_site import RawSite
    from allotment.layers.layer import Calls
    from allotment.stream import Stream

DEFAULT_DEPTH: Final = 8
"""How many frames of the program are kept of each call site."""
_ROWS_AT_ONCE: Final = 4096
"""How many events are written to a file together."""


class Recorder:
    """Writes down what happens to the accounts that it stands before.

    Parameters
    ----------
    path
        The file. Without ``last`` it is written as events come; with it, when the recorder is closed and when memory is
        not to be had.
    last
        How many events to keep, the last ones; all if not given.
    depth
        How many frames to keep of each call site; 0 for none.

    Raises
    ------
    TraceError
        If the file cannot be written.

    Notes
    -----
    An allocator may draw from another with accounts. A block is then the inner one's, which is asked first; at the
    outer one nothing is written down.
    """

    def __init__(self, path: Path | None, *, last: int | None = None, depth: int = DEFAULT_DEPTH) -> None:
        self.path, self.depth, self.last = path, depth, last
        self.events = 0
        self.failure: TraceError | None = None
        self._lock = RenewedLock()  # reentrant, since a finaliser may free in the middle of anything
        self._start = Start(now(), perf_counter_ns())
        self._definitions, self._defined = Definitions(), 0
        self._blocks: dict[int, tuple[AccountedAllocator, int]] = {}
        self._held: dict[int, Row] = {}  # the blocks that are live where what is kept begins
        self._rows: deque[Row] = deque()
        self._numbers, self._streams = count(), {0: 0}
        self._is_writing = self._is_closed = False
        self._file = None if path is None or last is not None else TraceFile(path)
        if self._file is not None:
            self._file.write([self._start.line()])
        _of_this_process.add(self)
        _stop_in_children()

    # What the accounts call

    def wrap(self, calls: Calls, account: AccountedAllocator) -> Calls:
        """Return the calls with what writes them down around."""
        inner_allocate, inner_deallocate, _ = calls
        platform, depth = account.device.platform, self.depth

        def allocate(size: int, *stream: Stream) -> int:
            try:
                ptr = inner_allocate(size, *stream)
            except BaseException as error:
                if is_shortage(error, platform):
                    self.refused(account, size)
                raise
            if type(ptr) is int:
                self._allocated(account, ptr, size, stream[0].handle if stream else 0, capture_site(depth))
            return ptr

        def deallocate(ptr: int, size: int, *stream: Stream) -> None:
            block = self._leave(account, ptr)
            try:
                inner_deallocate(ptr, size, *stream)
            except BaseException:
                self._keep(ptr, block)
                raise
            if block is not None:
                self._put(Row("f", block[1], self._time()))

        return calls._replace(allocate=allocate, deallocate=deallocate)

    def hold(self, account: AccountedAllocator) -> None:
        """Write down the blocks that are live already."""
        with self._lock():
            source = self._source(account)
            for ptr, size in account.blocks():
                if ptr not in self._blocks:
                    number = next(self._numbers)
                    self._blocks[ptr] = account, number
                    self._put(Row("h", number, self._time(), size, source))

    def refused(self, account: AccountedAllocator, size: int) -> None:
        """Write down that a request was not met, and see to it that the file holds it."""
        site = capture_site(self.depth)
        with self._lock():
            row = Row("o", None, self._time(), size, self._source(account), None, self._label(), self._site(site))
            self._put(row)
            self._try(self._write_out)

    def _allocated(self, account: AccountedAllocator, ptr: int, size: int, stream: int, site: RawSite) -> None:
        with self._lock():
            if ptr in self._blocks:
                return
            number = next(self._numbers)
            self._blocks[ptr] = account, number
            stream = self._streams.setdefault(stream, len(self._streams))
            source, label = self._source(account), self._label()
            self._put(Row("a", number, self._time(), size, source, stream, label, self._site(site)))

    def _leave(self, account: AccountedAllocator, ptr: int) -> tuple[AccountedAllocator, int] | None:
        """Take a block off before its allocator has it back, when another thread may get its address."""
        with self._lock():
            block = self._blocks.get(ptr)
            return self._blocks.pop(ptr) if block is not None and block[0] is account else None

    def _keep(self, ptr: int, block: tuple[AccountedAllocator, int] | None) -> None:
        if block is not None:
            with self._lock():
                self._blocks[ptr] = block

    def _time(self) -> int:
        return perf_counter_ns() - self._start.nanoseconds

    def _source(self, account: AccountedAllocator) -> int:
        return self._definitions.source(account.device.alias, account.name)

    def _label(self) -> int | None:
        return self._definitions.label(current_label())

    def _site(self, raw: RawSite) -> int | None:
        return self._definitions.site(raw)

    # Keeping and writing

    def _put(self, row: Row) -> None:
        with self._lock():
            if self._is_closed:
                return
            self.events += 1
            self._rows.append(row)
            if self.last is not None:
                while len(self._rows) > self.last:
                    self._let_go(self._rows.popleft())
            elif len(self._rows) >= _ROWS_AT_ONCE and self._file is not None:
                self._try(self._write_rows)

    def _let_go(self, row: Row) -> None:
        """Forget the oldest event, but not that its block is live from there on."""
        if row.op in ("a", "h"):
            assert row.id is not None
            self._held[row.id] = row._replace(op="h")
        elif row.id is not None:
            self._held.pop(row.id, None)

    def _write_rows(self) -> None:
        if self._is_writing or self._file is None:  # a finaliser in the middle: its event is written next time
            return
        self._is_writing = True
        try:
            rows, self._rows = self._rows, deque()
            defined, self._defined = self._defined, len(self._definitions)
            self._file.write((*self._definitions.lines(defined), *lines_of(rows)))
        finally:
            self._is_writing = False

    def _write_out(self) -> None:
        if self._file is not None:
            self._write_rows()
        elif self.path is not None:
            self.save(self.path)

    def save(self, path: Path) -> None:
        """Write what is kept to a file.

        Raises
        ------
        TraceError
            If the file cannot be written.
        """
        with self._lock():
            rows = (*self._held.values(), *self._rows)
            definitions = tuple(self._definitions.lines())
        file = TraceFile(path)
        try:
            file.write((self._start.line(), *definitions, *lines_of(rows)))
        finally:
            file.close()

    def flush(self) -> None:
        """See to it that the file holds what happened so far."""
        with self._lock():
            if not self._is_closed:
                self._try(self._write_out)

    def close(self) -> None:
        """Write down no more, and finish the file.

        Raises
        ------
        TraceError
            If it could not be written, now or before.
        """
        with self._lock():
            if self._is_closed:
                return
            self._try(self._write_out)
            self._is_closed = True
            if self._file is not None:
                self._try(self._file.close)
        if self.failure is not None:
            raise self.failure

    def abandon(self) -> None:
        """Leave the file to the parent process, in a child that was forked."""
        self._is_closed = True
        if self._file is not None:
            self._file.abandon()

    def _try(self, write: Callable[[], None]) -> None:
        """Write, and remember a failure: a program that allocates is not to be stopped by a full disk."""
        if self.failure is not None:
            return
        try:
            write()
        except TraceError as error:
            self.failure = error


_of_this_process: Final[WeakSet[Recorder]] = WeakSet()


@cache
def _stop_in_children() -> None:
    """See to it that a child process leaves the files of its parent alone."""
    _process.on_renewal_in_child(_abandon_all)


def _abandon_all() -> None:
    for recorder in tuple(_of_this_process):
        recorder.abandon()
