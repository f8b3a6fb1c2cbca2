"""Rules S: sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

from allotment.errors import OutOfMemoryError, PlatformError
from allotment.memory_kind import MemoryKind
from allotment.testing._allocation import SIZES
from allotment.testing._fixtures import AllocatorFixtures
from allotment.testing._recording import RecordingAllocator
from allotment.testing._rule import cannot_check, rule
from allotment.units import MAX_BYTES

if TYPE_CHECKING:
    from allotment.testing._subject import Subject

NO_SIZES: Final = (-1, -(2**63), 2**63, 2**64, 2**64 + 256)
NO_INTEGERS: Final[tuple[Any, ...]] = (1024.0, "1024", None, True, np.float64(8), b"8")
_OTHER_INTEGERS: Final = (np.int64(1000), np.int32(1000), np.uint8(200), np.uint64(1000))
_TOO_LARGE: Final = (MAX_BYTES, MAX_BYTES - 4095, 2**62 + 1)
_ABOVE_32_BITS: Final = 5 * 2**30 + 17


class SizeTests(AllocatorFixtures):
    """Rules S: sizes."""

    @rule("S1")
    def test_zero_bytes_never_reach_the_allocator(self, subject: Subject) -> None:
        recording = RecordingAllocator(subject.bare().allocator)
        account = subject.account(allocator=recording)

        ptr = account.allocate(0)
        account.deallocate(ptr, 0)

        assert ptr == 0
        assert recording.calls == []
        assert account.statistics().allocations == 0

    @rule("S2")
    @pytest.mark.parametrize("size", NO_SIZES)
    def test_a_size_out_of_range_is_refused_before_any_call(self, subject: Subject, size: int) -> None:
        recording = RecordingAllocator(subject.bare().allocator)

        with pytest.raises(ValueError, match="size"):
            subject.account(allocator=recording).allocate(size)

        assert recording.calls == []

    @rule("S2")
    @pytest.mark.parametrize("size", NO_INTEGERS, ids=repr)
    def test_what_is_no_integer_is_refused_before_any_call(self, subject: Subject, size: Any) -> None:
        recording = RecordingAllocator(subject.bare().allocator)

        with pytest.raises(TypeError):
            subject.account(allocator=recording).allocate(size)

        assert recording.calls == []

    @rule("S2")
    @pytest.mark.parametrize("size", _OTHER_INTEGERS, ids=lambda size: type(size).__name__)
    def test_an_integer_of_another_type_arrives_as_a_plain_int(self, subject: Subject, size: Any) -> None:
        recording = RecordingAllocator(subject.bare().allocator)
        account = subject.account(allocator=recording)

        ptr = account.allocate(size)
        account.deallocate(ptr, size)

        asked, freed = recording.allocations[0], recording.frees[0]
        assert (type(asked.arguments[0]), asked.arguments[0]) == (int, int(size))
        assert freed.arguments[:2] == (ptr, int(size))

    @rule("S2")
    def test_a_free_gets_the_size_that_was_asked_for(self, subject: Subject) -> None:
        recording = RecordingAllocator(subject.bare().allocator)
        account = subject.account(allocator=recording)

        blocks = [(account.allocate(size), size) for size in SIZES]
        for block in blocks:
            account.deallocate(*block)

        assert [call.arguments[:2] for call in recording.frees] == blocks

    @rule("S3")
    @pytest.mark.parametrize("size", SIZES)
    def test_every_size_from_one_byte_on_is_served(self, subject: Subject, size: int) -> None:
        account = subject.account()

        ptr = account.allocate(size)
        held = subject.platform.pointer_attributes(ptr)
        account.deallocate(ptr, size)

        assert not held.base or held.base + held.nbytes >= ptr + size

    @rule("S3", on_cuda=False)
    def test_a_size_above_32_bits_is_served_in_full(self, subject: Subject) -> None:
        account = subject.account()

        try:
            ptr = account.allocate(_ABOVE_32_BITS)
        except OutOfMemoryError:
            if subject.device.is_cuda:  # a simulated one, which has it
                raise
            cannot_check(f"this host has no {_ABOVE_32_BITS:,} bytes to spare")
        last = subject.platform.pointer_attributes(ptr + _ABOVE_32_BITS - 1)
        account.deallocate(ptr, _ABOVE_32_BITS)

        assert not last.base or last.base <= ptr

    @rule("S3")
    @pytest.mark.parametrize("size", _TOO_LARGE)
    def test_a_size_that_cannot_be_rounded_up_is_out_of_memory(self, subject: Subject, size: int) -> None:
        account = subject.account()

        with pytest.raises(OutOfMemoryError):
            account.allocate(size)

        assert account.statistics().live == 0

    @rule("S3", on_cuda=False)
    @pytest.mark.parametrize("size", _TOO_LARGE)
    def test_the_allocator_itself_refuses_a_size_that_it_cannot_round_up(self, subject: Subject, size: int) -> None:
        with pytest.raises((MemoryError, PlatformError)):
            subject.bare().allocate(size)

    @rule("S2", on_cuda=False)
    def test_more_than_the_device_has_never_reaches_an_allocator_of_device_memory(self, subject: Subject) -> None:
        if subject.traits.memory_kind not in (MemoryKind.CUDA_DEVICE, MemoryKind.CUDA_MEMPOOL):
            pytest.skip(f"memory of {self.allocator_name} is not bounded by the device's")
        recording = RecordingAllocator(subject.bare().allocator)

        with pytest.raises(OutOfMemoryError):
            subject.account(allocator=recording).allocate(subject.device.total_memory + 1)

        assert recording.allocations == []
