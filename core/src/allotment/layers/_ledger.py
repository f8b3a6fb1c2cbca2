"""The hot path of the accounts, in Python: the twin of ``_ledger_native.c``, used where that was not compiled.

Threads need no lock here. CPython switches threads and runs finalisers at calls and backward jumps only, and each
update below is a run of plain loads and stores between two calls, so no other thread and no finaliser sees half of one.
The dictionary operations are single steps of C.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Self

from allotment.units import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment.device import Device
    from allotment.stream import Stream


class Ledger:
    """The live blocks of an allocator, and the calls to it.

    What is unusual is left to methods of the class built on it: ``_allocate_unusual`` and, with a stream,
    ``_allocate_unusual_on``; ``_refuse``, ``_reject``, ``_refuse_free`` and ``_free_failed``, which raise.
    """

    __slots__ = (
        "_allocate",
        "_allocations",
        "_current",
        "_deallocate",
        "_find_stream",
        "_frees",
        "_largest",
        "_live",
        "_peak",
        "_pool",
        "_stream_scopes",
        "device",
    )

    _allocate: Callable[..., Any]
    _deallocate: Callable[..., Any]
    device: Device
    _find_stream: Callable[[Device], Stream]
    _stream_scopes: Any
    _pool: int | None
    _live: dict[int, Any]
    _largest: int
    _current: int
    _peak: int
    _allocations: int
    _frees: int

    def __new__(cls, *_: object, **__: object) -> Self:
        """Make an empty ledger."""
        self = super().__new__(cls)
        self._live = {}
        self._largest = MAX_BYTES
        self._current = self._peak = self._allocations = self._frees = 0
        return self

    def allocate(self, size_in_bytes: int, /) -> int:
        """Return the address of a new block."""
        if type(size_in_bytes) is not int or not 0 < size_in_bytes <= self._largest:
            return self._allocate_unusual(size_in_bytes)
        try:
            ptr = self._allocate(size_in_bytes)
        except Exception as error:  # noqa: BLE001 - any plugin's fault is told as such
            self._refuse(error, size_in_bytes)
        live = self._live
        if type(ptr) is not int or ptr <= 0 or ptr in live:
            self._reject(ptr)
        live[ptr] = size_in_bytes
        self._allocations += 1
        current = self._current = self._current + size_in_bytes
        if current > self._peak:
            self._peak = current
        return ptr

    def deallocate(self, ptr: int, size_in_bytes: int, /) -> None:
        """Take back a block."""
        # Off the books before the allocator has it: from then on it may hand the address out again.
        size = self._live.pop(ptr, _NOT_LIVE)
        if size != size_in_bytes:
            if size is _NOT_LIVE:
                return self._refuse_free(ptr, None, size_in_bytes)
            self._live[ptr] = size
            return self._refuse_free(ptr, size, size_in_bytes)
        try:
            self._deallocate(ptr, size)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the block is not lost
            self._live[ptr] = size
            self._free_failed(error)
        self._current -= size
        self._frees += 1
        return None

    if TYPE_CHECKING:

        def _allocate_unusual(self, size_in_bytes: object) -> int: ...
        def _refuse(self, error: BaseException, size: int) -> NoReturn: ...
        def _reject(self, ptr: object) -> NoReturn: ...
        def _refuse_free(self, ptr: int, size: int | None, given: int) -> None: ...
        def _free_failed(self, error: BaseException) -> NoReturn: ...


class StreamLedger(Ledger):
    """A ledger of an allocator that takes the stream with each call.

    A block is freed in the order of the stream that it was allocated on, which its entry keeps alive.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        def _allocate_unusual_on(self, size_in_bytes: int, stream: Stream, /) -> int: ...

        # Of the compiled twin alone
        _malloc_from_pool: int
        _free_async: int
        _current_device: int
        _ordinal: int

    def allocate(self, size_in_bytes: int, /) -> int:
        """Return the address of a new block, usable by work queued on the stream in force from now on."""
        if type(size_in_bytes) is not int or not 0 < size_in_bytes <= self._largest:
            return self._allocate_unusual(size_in_bytes)
        return self.allocate_on(size_in_bytes, self._find_stream(self.device))

    def allocate_on(self, size_in_bytes: int, stream: Stream, /) -> int:
        """Return the address of a new block, usable by work queued on a stream from now on."""
        if type(size_in_bytes) is not int or not 0 < size_in_bytes <= self._largest:
            return self._allocate_unusual_on(size_in_bytes, stream)
        try:
            ptr = self._allocate(size_in_bytes, stream)
        except Exception as error:  # noqa: BLE001 - any plugin's fault is told as such
            self._refuse(error, size_in_bytes)
        live = self._live
        if type(ptr) is not int or ptr <= 0 or ptr in live:
            self._reject(ptr)
        live[ptr] = size_in_bytes, stream
        self._allocations += 1
        current = self._current = self._current + size_in_bytes
        if current > self._peak:
            self._peak = current
        return ptr

    def deallocate(self, ptr: int, size_in_bytes: int, /) -> None:
        """Take back a block once the present work of the stream it was allocated on is done."""
        entry = self._live.pop(ptr, _NOTHING)
        size, stream = entry
        if size != size_in_bytes:
            if entry is _NOTHING:
                return self._refuse_free(ptr, None, size_in_bytes)
            self._live[ptr] = entry
            return self._refuse_free(ptr, size, size_in_bytes)
        try:
            self._deallocate(ptr, size, stream)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the block is not lost
            self._live[ptr] = entry
            self._free_failed(error)
        self._current -= size
        self._frees += 1
        return None


_NOT_LIVE: Any = object()
"""Stands for the size of what is not handed out. It equals nothing that a caller could give, as ``None`` would."""
_NOTHING = (_NOT_LIVE, None)
