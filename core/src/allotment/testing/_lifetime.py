"""Rules L: the end of arrays, allocators and processes."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

import pytest

from allotment.allocator import SupportsClose
from allotment.errors import UnsupportedError
from allotment.factories import full
from allotment.memory_kind import MemoryKind
from allotment.selection import ScopedAllocator
from allotment.testing._child_process import run_program
from allotment.testing._fixtures import AllocatorFixtures
from allotment.testing._recording import RecordingAllocator
from allotment.testing._rule import rule

if TYPE_CHECKING:
    from allotment.testing._subject import Subject


class LifetimeTests(AllocatorFixtures):
    """Rules L: the end of arrays, allocators and processes."""

    @rule("L1")
    def test_an_array_outlives_every_other_reference_to_its_allocator(self, subject: Subject) -> None:
        allocator = RecordingAllocator(subject.bare().allocator)
        calls = allocator.calls
        with ScopedAllocator(subject.device, allocator):
            array = full(1000, 7, "u1", device=subject.device)
        ptr = array.ptr

        del allocator
        gc.collect()
        alive = (array.numpy() == 7).all()
        del array
        gc.collect()

        assert alive
        assert [call.arguments[:2] for call in calls if call.name.startswith("deallocate")] == [(ptr, 1000)]

    @rule("L2", on_cuda=False)
    def test_closing_gives_everything_back(self, subject: Subject) -> None:
        simulation = subject.simulation
        ordinals, held = range(simulation.device_count()), subject.outstanding()
        free = [simulation.memory_info(ordinal).free for ordinal in ordinals]

        _use_and_close(subject)

        assert subject.outstanding() == held
        assert [simulation.memory_info(ordinal).free for ordinal in ordinals] == free

    @rule("L2")
    def test_another_object_works_after_one_was_closed(self, subject: Subject) -> None:
        for _ in range(3):
            _use_and_close(subject)

    @rule("L2")
    def test_closing_is_refused_while_blocks_are_live(self, subject: Subject) -> None:
        recording = RecordingAllocator(subject.bare().allocator)
        account = subject.account(allocator=recording)
        ptr = account.allocate(1000)

        with pytest.raises(UnsupportedError, match="live"):
            account.close()

        assert [call.name for call in recording.calls if call.name == "close"] == []
        account.deallocate(ptr, 1000)

    @rule("L3")
    def test_nothing_is_called_once_shutdown_has_begun(self, subject: Subject) -> None:
        run_program("end", self.told_of(subject))

    @rule("L4")
    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
    def test_a_forked_child_gets_an_error_and_calls_nothing(self, subject: Subject) -> None:
        if subject.traits.memory_kind is MemoryKind.HOST:
            pytest.skip("pageable memory of the host is the child's own copy")
        run_program("fork", self.told_of(subject))


def _use_and_close(subject: Subject) -> None:
    """Make an object, use it, and let go of it."""
    calls = subject.bare()
    for size in (1000, 70_000, 3_000_000):
        calls.allocate(size)
    calls.free_all()
    if isinstance(calls.allocator, SupportsClose):
        calls.allocator.close()
    subject.forget(calls)
