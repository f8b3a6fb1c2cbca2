"""Rules W: memory and work in flight."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import ref

import numpy as np
import pytest

from allotment.allocator import SupportsStreams, SupportsUse
from allotment.stream import ScopedStream, Stream
from allotment.testing._fixtures import AllocatorFixtures
from allotment.testing._ledger import outstanding_bytes
from allotment.testing._memory import Memory
from allotment.testing._recording import RecordingAllocator
from allotment.testing._rule import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allotment.testing._subject import BareCalls, Subject

_SIZE: Final = 4096
_ONES: Final = np.full(_SIZE, 1, np.uint8)
_TWOS: Final = np.full(_SIZE, 2, np.uint8)
_NEW_BLOCKS: Final = 4


class StreamTests(AllocatorFixtures):
    """Rules W: memory and work in flight."""

    @rule("W1")
    def test_a_block_freed_on_a_stream_is_not_reused_by_another_before(self, subject: Subject) -> None:
        _require_stream_order(subject)
        _require_held_streams(subject)
        first, second = _stream(subject), _stream(subject)
        calls = subject.bare()
        with _on(first):
            ptr = calls.allocate(_SIZE)

        with _reading(subject, ptr, first) as seen:
            with _on(first):
                calls.deallocate(ptr, _SIZE)
            with _on(second):
                _overwrite_new_blocks(subject, calls, second)

        assert (seen() == 1).all(), "the work on the first stream saw what the second wrote"

    @rule("W1")
    def test_neither_call_waits_for_the_device(self, subject: Subject) -> None:
        _require_stream_order(subject)
        _require_held_streams(subject)
        stream, calls = _stream(subject), subject.bare()
        done: list[bool] = []

        with subject.simulation.delayed(stream.handle), _on(stream):
            subject.simulation.launch(lambda: done.append(True), stream.handle, subject.device.ordinal)
            ptr = calls.allocate(_SIZE)
            calls.deallocate(ptr, _SIZE)
            assert not done, "the work before was waited for"

    @rule("W1")
    def test_a_block_is_freed_on_the_stream_of_its_allocation(self, subject: Subject) -> None:
        subject.require(SupportsStreams, "it is not told of streams")
        recording = RecordingAllocator(subject.bare().allocator)
        account, made_on, other = subject.account(allocator=recording), _stream(subject), _stream(subject)
        with _on(made_on):
            ptr = account.allocate(_SIZE)

        with _on(other):
            account.deallocate(ptr, _SIZE)

        assert recording.allocations[0].arguments[1] is made_on
        assert recording.frees[0].arguments[2] is made_on

    @rule("L1", on_cuda=False)
    def test_a_live_block_keeps_its_stream_alive(self, subject: Subject) -> None:
        subject.require(SupportsStreams, "it is not told of streams")
        account, stream = subject.account(), _stream(subject)
        with _on(stream):
            ptr = account.allocate(_SIZE)
        watched = ref(stream)

        del stream
        gc.collect()
        assert watched() is not None
        account.deallocate(ptr, _SIZE)
        account.trim()  # memory that is kept for a stream may keep the stream
        gc.collect()

        assert watched() is None

    @rule("W2")
    def test_a_block_in_recorded_use_is_not_reused_before_the_work_is_done(self, subject: Subject) -> None:
        subject.require(SupportsUse, "nobody tells it of uses")
        _require_held_streams(subject)
        stream, calls = _stream(subject), subject.bare()
        ptr = calls.allocate(_SIZE)

        with _reading(subject, ptr, stream) as seen:
            _record_use(calls, ptr, stream)
            calls.deallocate(ptr, _SIZE)
            _overwrite_new_blocks(subject, calls, None)

        assert (seen() == 1).all(), "the block was handed out while work in flight read it"

    @rule("W2")
    def test_a_block_is_reused_once_its_recorded_use_is_done(self, subject: Subject) -> None:
        subject.require(SupportsUse, "nobody tells it of uses")
        _require_held_streams(subject)
        stream, calls = _stream(subject), subject.bare()

        def cycle() -> int:
            ptr = calls.allocate(_SIZE)
            with subject.simulation.delayed(stream.handle):
                _record_use(calls, ptr, stream)
                calls.deallocate(ptr, _SIZE)
            stream.synchronize()
            return outstanding_bytes(subject.simulation.calls)

        steady = max(cycle(), cycle())

        assert max(cycle() for _ in range(10)) <= steady

    @rule("W3")
    def test_a_block_is_not_reused_while_the_device_works(self, subject: Subject) -> None:
        if subject.traits.stream_ordered or subject.offers(SupportsUse):
            pytest.skip(f"{self.allocator_name} is told of streams")
        _require_held_streams(subject)
        stream, calls = _stream(subject), subject.bare()
        ptr = calls.allocate(_SIZE)

        with _reading(subject, ptr, stream) as seen:
            calls.deallocate(ptr, _SIZE)
            _overwrite_new_blocks(subject, calls, None)

        assert (seen() == 1).all(), "the block was handed out while the device worked on it"


def _require_stream_order(subject: Subject) -> None:
    if not subject.traits.stream_ordered:
        pytest.skip(f"{subject.plugin.name} does not declare stream_ordered")


def _require_held_streams(subject: Subject) -> None:
    """Skip the test on real devices, whose work in flight nobody holds, before anything is made there."""
    _ = subject.simulation


def _stream(subject: Subject) -> Stream:
    """Return a stream that runs free of the null stream, on the subject's device or the first that there is."""
    return Stream(subject.device if subject.device.is_cuda else "cuda:0", non_blocking=True)


def _on(stream: Stream) -> ScopedStream:
    return ScopedStream(stream, sync_enter=False)


@contextmanager
def _reading(subject: Subject, ptr: int, stream: Stream) -> Iterator[Any]:
    """Queue a copy of a block full of ones on a stream that is held; yield what returns the copy once it is done."""
    simulation, ordinal = subject.simulation, stream.device.ordinal
    memory, sink = Memory(stream.device), simulation.malloc(_SIZE)
    memory.write(ptr, _ONES)
    with simulation.delayed(stream.handle):
        simulation.copy(sink, ptr, _SIZE, stream.handle, ordinal)
        yield lambda: memory.read(sink, _SIZE)
    stream.synchronize()


def _overwrite_new_blocks(subject: Subject, calls: BareCalls, stream: Stream | None) -> None:
    """Allocate blocks of the same size and write twos to them, on a stream or by host code."""
    for _ in range(_NEW_BLOCKS):
        ptr = calls.allocate(_SIZE)
        handle = 0 if stream is None else stream.handle
        subject.simulation.copy(ptr, _TWOS.ctypes.data, _SIZE, handle, max(subject.device.ordinal, 0))


def _record_use(calls: BareCalls, ptr: int, stream: Stream) -> None:
    cast("SupportsUse", calls.allocator).record_use(ptr, stream)
