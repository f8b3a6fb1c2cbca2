"""Rules C: graph capture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from allotment.allocator import SupportsClose, SupportsLargestFree, SupportsLimits, SupportsPrivatePools, SupportsTrim
from allotment.capture import CaptureMode, ScopedCapture
from allotment.errors import CaptureError
from allotment.factories import full
from allotment.selection import ScopedAllocator, account_of
from allotment.stream import Stream
from allotment.testing._fixtures import AllocatorFixtures
from allotment.testing._ledger import FREES, outstanding_bytes
from allotment.testing._recording import RecordingAllocator
from allotment.testing._rule import rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment.device import Device
    from allotment.testing._subject import BareCalls, Subject

_SIZE: Final = 3_000_000
_OTHERS: Final = 8


class CaptureTests(AllocatorFixtures):
    """Rules C: graph capture."""

    @rule("C1")
    def test_memory_is_allocated_written_and_freed_in_a_capture(self, subject: Subject) -> None:
        device = _captured_device(subject)
        if not subject.traits.capturable:
            pytest.skip(f"{self.allocator_name} does not declare capturable")

        with ScopedAllocator(device, subject.bare().allocator), ScopedCapture(device) as capture:
            array = full(1000, 7, "u1", device=device)
            full(5000, 9, "u1", device=device)  # dropped inside

        assert capture.graph is not None
        for _ in range(2):
            capture.graph.launch()
            device.synchronize()
            assert (array.numpy() == 7).all()

    @rule("C2")
    def test_an_allocator_that_cannot_be_captured_is_not_asked_in_a_capture(self, subject: Subject) -> None:
        device = _captured_device(subject)
        if subject.traits.capturable:
            pytest.skip(f"{self.allocator_name} declares capturable")
        recording = RecordingAllocator(subject.bare().allocator)
        account = account_of(recording, device)

        with ScopedCapture(device) as capture, pytest.raises(CaptureError):
            account.allocate(1000)

        assert capture.graph is not None
        assert recording.allocations == []

    @rule("C2")
    def test_a_free_in_a_capture_waits_for_its_end(self, subject: Subject) -> None:
        device, log = _captured_device(subject), subject.simulation.calls
        account = account_of(subject.bare().allocator, device)
        ptr = account.allocate(_SIZE)

        with ScopedCapture(device) as capture:
            before = len(log)
            account.deallocate(ptr, _SIZE)
            freed = [call.name for call in list(log)[before:] if call.name in FREES]

        assert freed == []
        assert capture.graph is not None
        assert account.statistics().live == 0

    @rule("C3")
    def test_no_question_ends_a_capture(self, subject: Subject) -> None:
        device, questions = _captured_device(subject), _questions(subject.bare())
        if not questions:
            pytest.skip(f"{self.allocator_name} offers no question that may be asked while a graph is captured")
        log = subject.simulation.calls

        with ScopedCapture(device, capture_mode=CaptureMode.GLOBAL) as capture:
            before = len(log)
            for ask in questions:
                ask()
            called = [call.name for call in list(log)[before:]]

        assert called == [], "the driver was asked"
        assert capture.graph is not None

    @rule("C4")
    def test_memory_set_apart_for_a_graph_is_handed_to_nobody_else(self, subject: Subject) -> None:
        subject.require(SupportsPrivatePools, "it sets nothing apart")
        calls, stream = subject.bare(), Stream(subject.device, non_blocking=True)
        allocator = cast("Any", calls.allocator)
        pool = allocator.open_private_pool()
        ptr = pool.allocate_on(_SIZE, stream)
        allocator.deallocate_on(ptr, _SIZE, stream)

        others = [allocator.allocate_on(_SIZE, stream) for _ in range(_OTHERS)]

        for other in others:
            allocator.deallocate_on(other, _SIZE, stream)
        pool.close()
        assert all(other + _SIZE <= ptr or ptr + _SIZE <= other for other in others)

    @rule("C4")
    def test_what_was_set_apart_goes_back_with_the_rest(self, subject: Subject) -> None:
        subject.require(SupportsPrivatePools, "it sets nothing apart")
        log = subject.simulation.calls
        calls, stream = subject.bare(), Stream(subject.device, non_blocking=True)
        allocator = cast("Any", calls.allocator)
        pool = allocator.open_private_pool()
        early, late = (pool.allocate_on(_SIZE, stream) for _ in range(2))

        allocator.deallocate_on(early, _SIZE, stream)
        pool.close()
        allocator.deallocate_on(late, _SIZE, stream)
        if isinstance(allocator, SupportsTrim):
            allocator.trim(0)
        elif isinstance(allocator, SupportsClose):
            allocator.close()
            subject.forget(calls)

        assert outstanding_bytes(log) == 0


def _captured_device(subject: Subject) -> Device:
    """Return the device whose work is captured, or skip the test of an allocator for the host."""
    if subject.device.is_cpu:
        pytest.skip(f"{subject.plugin.name} serves the host, whose memory is no part of a graph")
    return subject.device


def _questions(calls: BareCalls) -> list[Callable[[], object]]:
    """Return what anybody may ask at any time."""
    allocator, found = calls.allocator, list[Any]()
    if isinstance(allocator, SupportsLargestFree):
        found.append(allocator.largest_free)
    if isinstance(allocator, SupportsLimits):
        found += [allocator.get_memory_limit, allocator.get_cache_limit]
    return found
