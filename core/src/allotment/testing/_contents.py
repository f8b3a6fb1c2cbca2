"""Rules M: the memory behind a block."""

from __future__ import annotations

from ctypes import memmove
from itertools import pairwise
from typing import TYPE_CHECKING, Final, cast

import pytest

from allotment.allocator import IpcKind, SupportsPool
from allotment.memory_kind import MemoryKind
from allotment.platform.simulated import SimulatedPlatform
from allotment.testing._allocation import SIZES
from allotment.testing._fixtures import AllocatorFixtures
from allotment.testing._memory import pattern
from allotment.testing._rule import concerning, rule

if TYPE_CHECKING:
    from allotment.testing._subject import BareCalls, Subject

_HOST_REACHES: Final = (MemoryKind.UNKNOWN, MemoryKind.HOST, MemoryKind.PINNED, MemoryKind.CUDA_MANAGED)
"""The kinds, as the platform names them, that host code can be expected to touch without a fault."""
_MACHINES: Final = ("2xh200", "gh200", "wsl", "jetson-orin")
_HANDLE_BYTES: Final = 64


class ContentsTests(AllocatorFixtures):
    """Rules M: the memory behind a block."""

    @rule("M1")
    def test_the_memory_is_of_the_declared_kind(self, subject: Subject) -> None:
        declared = subject.traits.memory_kind
        if declared is MemoryKind.UNKNOWN:
            pytest.skip(f"{self.allocator_name} declares no kind of memory")
        expected = MemoryKind.UNKNOWN if declared is MemoryKind.HOST else declared  # pageable memory is no platform's

        for ptr, _ in _blocks(subject.bare()):
            assert subject.platform.pointer_attributes(ptr).kind is expected

    @rule("M2")
    def test_every_block_has_the_declared_alignment(self, subject: Subject) -> None:
        for ptr, size in _blocks(subject.bare()):
            assert ptr % subject.traits.alignment == 0, f"{size} bytes at {ptr:#x}"

    @rule("M3")
    def test_every_byte_of_a_block_can_be_written_and_read(self, subject: Subject) -> None:
        for ptr, size in _blocks(subject.bare()):
            data = pattern(size, seed=size)
            subject.memory.write(ptr, data)
            assert (subject.memory.read(ptr, size) == data).all(), f"block of {size} bytes"

    @rule("M3")
    def test_a_block_lies_within_what_the_platform_has_allocated_there(self, subject: Subject) -> None:
        for ptr, size in _blocks(subject.bare()):
            around = subject.platform.pointer_attributes(ptr)
            if around.nbytes:
                assert around.base <= ptr
                assert ptr + size <= around.base + around.nbytes, f"block of {size} bytes"

    @rule("M3", "A3")
    def test_blocks_do_not_overlap(self, subject: Subject) -> None:
        calls = subject.bare()
        blocks = sorted(block for _ in range(4) for block in _blocks(calls))

        for (ptr, size), (following, _) in pairwise(blocks):
            with concerning("A3" if ptr == following else "M3"):
                assert ptr + size <= following

    @rule("M3")
    def test_what_is_written_to_one_block_shows_in_no_other(self, subject: Subject) -> None:
        blocks = _blocks(subject.bare())
        for number, (ptr, size) in enumerate(blocks):
            subject.memory.write(ptr, pattern(size, seed=number))

        for number, (ptr, size) in enumerate(blocks):
            assert (subject.memory.read(ptr, size) == pattern(size, seed=number)).all()

    @rule("M3")
    def test_contents_survive_other_allocations_and_frees(self, subject: Subject) -> None:
        calls, data = subject.bare(), pattern(3000, seed=1)
        ptr = calls.allocate(3000)
        subject.memory.write(ptr, data)

        for size in SIZES * 2:
            other = calls.allocate(size)
            subject.memory.write(other, pattern(size, seed=2))
            calls.deallocate(other, size)

        assert (subject.memory.read(ptr, 3000) == data).all()

    @rule("M3")
    def test_the_device_can_write_every_byte(self, subject: Subject) -> None:
        if subject.device.is_cpu and subject.traits.memory_kind is not MemoryKind.PINNED:
            pytest.skip("memory of the host need not be within a device's reach")
        ordinal = max(subject.device.ordinal, 0)
        ptr = subject.bare().allocate(5001)

        subject.memory.fill_by_kernel(ptr, 5001, 7, ordinal)

        assert (subject.memory.read(ptr, 5001) == 7).all()

    @rule("M4", profiles=_MACHINES)
    def test_host_code_can_touch_memory_that_is_declared_host_accessible(self, subject: Subject) -> None:
        if not subject.traits.host_accessible:
            pytest.skip(f"{self.allocator_name} does not declare host_accessible")
        ptr, data = subject.bare().allocate(5001), pattern(5001, seed=3)
        _require_host_access(subject, ptr, 5001)

        memmove(ptr, data.ctypes.data, 5001)

        assert (subject.memory.read(ptr, 5001) == data).all()

    @rule("M4", profiles=_MACHINES, on_cuda=False)
    def test_host_code_can_touch_it_while_a_device_is_at_work(self, subject: Subject) -> None:
        if not subject.traits.host_accessible:
            pytest.skip(f"{self.allocator_name} does not declare host_accessible")
        simulation, ptr = subject.simulation, subject.bare().allocate(64)

        with simulation.delayed(0, 0):
            simulation.launch(lambda: None, 0, 0)
            simulation.check_host_access(ptr, 64)

    @rule("M5")
    def test_every_block_has_a_handle_for_other_processes_if_that_is_declared(self, subject: Subject) -> None:
        if subject.traits.ipc is not IpcKind.LEGACY:
            pytest.skip(f"{self.allocator_name} declares ipc={subject.traits.ipc}")

        for ptr, size in _blocks(subject.bare()):
            assert len(subject.platform.ipc_handle(ptr)) == _HANDLE_BYTES, f"block of {size} bytes"

    @rule("M6")
    def test_every_block_comes_from_the_pool_that_is_named(self, subject: Subject) -> None:
        subject.require(SupportsPool, "it names no pool")
        calls = subject.bare()
        named = cast("SupportsPool", calls.allocator).pool_handle

        for ptr, size in _blocks(calls):
            assert subject.platform.pointer_attributes(ptr).pool == named, f"block of {size} bytes"
        assert cast("SupportsPool", calls.allocator).pool_handle == named, "it names another one now"


def _blocks(calls: BareCalls) -> list[tuple[int, int]]:
    """Return address and size of a new block of each size; all of them are live."""
    return [(calls.allocate(size), size) for size in SIZES]


def _require_host_access(subject: Subject, ptr: int, nbytes: int) -> None:
    """Fail for memory whose touch from host code would end the process."""
    if isinstance(subject.platform, SimulatedPlatform):
        subject.platform.check_host_access(ptr, nbytes)
    kind = subject.platform.pointer_attributes(ptr).kind
    assert kind in _HOST_REACHES, f"the platform says that {ptr:#x} is {kind.name} memory"
