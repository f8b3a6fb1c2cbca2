"""Virtual memory: what two H200s were seen to answer, asked of the simulation and of the GPUs that are there."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest

from allotment.errors import PlatformError
from allotment.memory_kind import MemoryKind
from allotment.platform import CaptureMode, CaptureStatus, PoolAccess
from allotment.platform.cuda import CudaPlatform
from allotment.platform.simulated import SimulatedPlatform, _host_mapping

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from allotment.platform import Platform

INVALID = "cudaErrorInvalidValue"


@cache
def cuda() -> CudaPlatform:
    return CudaPlatform("the tests ask for it")


class Ground:
    """Virtual memory of a platform, measured in granules, that is given back after a test."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.granule = platform.mapping_granularity(0)
        self.reserved: dict[int, int] = {}
        self.held: set[int] = set()
        self.mapped: dict[int, int] = {}

    def reserve(self, granules: int) -> int:
        ptr = self.platform.address_range(granules * self.granule)
        self.reserved[ptr] = granules * self.granule
        return ptr

    def create(self, granules: int = 1, device: int = 0) -> int:
        handle = self.platform.create_physical(device, granules * self.granule)
        self.held.add(handle)
        return handle

    def release(self, handle: int) -> None:
        self.platform.release_physical(handle)
        self.held.remove(handle)

    def map(self, ptr: int, handle: int, granules: int = 1) -> None:
        self.platform.map_physical(ptr, granules * self.granule, handle)
        self.mapped[ptr] = granules * self.granule

    def unmap(self, ptr: int, granules: int = 1) -> None:
        self.platform.unmap_physical(ptr, granules * self.granule)
        for mapped in [mapped for mapped in self.mapped if ptr <= mapped < ptr + granules * self.granule]:
            del self.mapped[mapped]

    def open(self, ptr: int, granules: int = 1, device: int = 0, access: PoolAccess = PoolAccess.READ_WRITE) -> None:
        self.platform.set_mapping_access(ptr, granules * self.granule, device, access)

    def filled(self, *pieces: int) -> int:
        """Return the address of a reservation of eight granules where some of the first are mapped and opened."""
        ptr = self.reserve(8)
        for piece in pieces:
            self.map(ptr + piece * self.granule, self.create())
            self.open(ptr + piece * self.granule)
        return ptr

    def write(self, ptr: int, data: bytes) -> None:
        host = np.frombuffer(data, np.uint8)
        self.platform.copy(ptr, host.ctypes.data, len(data), 0, 0)
        self.platform.synchronize_stream(0, 0)

    def read(self, ptr: int, nbytes: int) -> bytes:
        host = np.empty(nbytes, np.uint8)
        self.platform.copy(host.ctypes.data, ptr, nbytes, 0, 0)
        self.platform.synchronize_stream(0, 0)
        return host.tobytes()

    def give_back(self) -> None:
        for device in range(self.platform.device_count()):
            self.platform.synchronize_device(device)
        for ptr in list(self.mapped):
            self.unmap(ptr, self.mapped[ptr] // self.granule)
        for handle in self.held:
            self.platform.release_physical(handle)
        for ptr, nbytes in self.reserved.items():
            self.platform.free_address_range(ptr, nbytes)


@pytest.fixture(params=["simulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def platform(request: pytest.FixtureRequest) -> Iterator[Platform]:
    yield from one(request.param)


@pytest.fixture(params=["simulated", pytest.param("cuda", marks=pytest.mark.multi_gpu)])
def pair(request: pytest.FixtureRequest) -> Iterator[Platform]:
    """A platform with two devices."""
    yield from one(request.param)


def one(name: str) -> Iterator[Platform]:
    if name == "simulated" and not _host_mapping.IS_AVAILABLE:
        pytest.skip("the simulation of virtual memory needs Linux")
    if name == "cuda":
        cuda().set_current_device(0)
        yield cuda()
        return
    simulated = SimulatedPlatform.from_profile("2xh200")
    simulated.set_current_device(0)
    yield simulated
    simulated.close()


@pytest.fixture
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    name = "pair" if "pair" in request.fixturenames else "platform"
    ground = Ground(request.getfixturevalue(name))
    yield ground
    ground.give_back()


def refusal(platform: Platform, call: Callable[..., object], *arguments: object) -> str:
    """Return the name of the error that a call is refused with."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 - a raw call raises the binding's own
        call(*arguments)
    error = platform.error_from(raised.value)
    assert isinstance(error, PlatformError)
    return error.code


# What can be done


def test_the_granularity_is_a_power_of_two(platform: Platform, ground: Ground):
    assert ground.granule.bit_count() == 1


def test_far_more_can_be_reserved_than_a_device_has(platform: Platform, ground: Ground):
    assert ground.reserve(4 * platform.memory_info(0).total // ground.granule) % ground.granule == 0


def test_what_is_written_at_a_mapped_address_is_read_there(platform: Platform, ground: Ground):
    ptr = ground.filled(0)
    ground.write(ptr + 100, b"allotment")
    assert ground.read(ptr + 100, 9) == b"allotment"


def test_a_copy_and_a_fill_go_over_neighbours(platform: Platform, ground: Ground):
    ptr = ground.filled(0, 1)
    platform.fill(ptr, 7, 2 * ground.granule, 0, 0)
    ground.write(ptr + ground.granule - 4, b"straddle")
    assert ground.read(ptr + ground.granule - 5, 10) == b"\7straddle\7"


def test_one_piece_at_two_addresses_shows_the_same_bytes(platform: Platform, ground: Ground):
    ptr, handle = ground.reserve(8), ground.create()
    for address in (ptr, ptr + 3 * ground.granule):
        ground.map(address, handle)
        ground.open(address)
    ground.write(ptr + 64, b"once")
    assert ground.read(ptr + 3 * ground.granule + 64, 4) == b"once"


def test_a_piece_keeps_its_bytes_on_its_way_to_another_address(platform: Platform, ground: Ground):
    ptr, handle = ground.reserve(8), ground.create()
    ground.map(ptr, handle)
    ground.open(ptr)
    ground.write(ptr, b"moved")
    ground.unmap(ptr)
    ground.map(ptr + ground.granule, handle)
    ground.open(ptr + ground.granule)
    assert ground.read(ptr + ground.granule, 5) == b"moved"


def test_released_memory_lives_until_it_is_mapped_nowhere(platform: Platform, ground: Ground):
    granules = max(1, (256 << 20) // ground.granule)
    ptr, free = ground.reserve(granules), platform.memory_info(0).free
    handle = ground.create(granules)
    ground.map(ptr, handle, granules)
    ground.open(ptr, granules)
    ground.release(handle)
    ground.write(ptr, b"alive")
    assert ground.read(ptr, 5) == b"alive"
    assert platform.memory_info(0).free <= free - granules * ground.granule
    ground.unmap(ptr, granules)
    assert platform.memory_info(0).free > free - granules * ground.granule


def test_several_whole_mappings_are_unmapped_at_once(platform: Platform, ground: Ground):
    ptr = ground.filled(0, 1, 2)
    ground.unmap(ptr + ground.granule, 2)
    found = [platform.pointer_attributes(ptr + piece * ground.granule).kind for piece in range(3)]
    assert found == [MemoryKind.CUDA_DEVICE, MemoryKind.UNKNOWN, MemoryKind.UNKNOWN]


# What is refused


def test_sizes_and_addresses_are_multiples_of_the_granularity(platform: Platform, ground: Ground):
    ptr, handle, half = ground.reserve(8), ground.create(), ground.granule // 2
    assert refusal(platform, platform.create_physical, 0, ground.granule + half) == INVALID
    assert refusal(platform, platform.map_physical, ptr + half, ground.granule, handle) == INVALID
    assert refusal(platform, platform.map_physical, ptr, half, handle) == "cudaErrorNotSupported"


def test_access_is_set_for_a_range_that_begins_and_ends_with_memory(platform: Platform, ground: Ground):
    ptr = ground.filled(0, 2)
    ground.open(ptr, 3)
    assert refusal(platform, ground.open, ptr, 4) == INVALID
    assert refusal(platform, ground.open, ptr + ground.granule, 2) == INVALID


def test_a_fill_over_a_hole_is_refused(platform: Platform, ground: Ground):
    ptr = ground.filled(0, 2)
    assert refusal(platform, platform.fill, ptr, 0, 3 * ground.granule, 0, 0) == INVALID


def test_mapped_memory_has_no_handle_for_other_processes(platform: Platform, ground: Ground):
    assert refusal(platform, platform.ipc_handle, ground.filled(0)) == INVALID


def test_mapped_memory_is_not_freed_as_other_memory_is(platform: Platform, ground: Ground):
    assert refusal(platform, platform.free, ground.filled(0)) == INVALID


# What is known of addresses


def test_a_mapped_address_tells_the_whole_reservation(platform: Platform, ground: Ground):
    ptr = ground.filled(0, 1)
    found = platform.pointer_attributes(ptr + ground.granule + 100)
    assert (found.kind, found.device, found.pool) == (MemoryKind.CUDA_DEVICE, 0, 0)
    assert (found.base, found.nbytes, found.accessible) == (ptr, 8 * ground.granule, True)


def test_a_reserved_address_with_nothing_behind_it_is_unknown(platform: Platform, ground: Ground):
    ptr = ground.filled(0)
    assert platform.pointer_attributes(ptr + ground.granule).kind is MemoryKind.UNKNOWN
    ground.unmap(ptr)
    assert platform.pointer_attributes(ptr).kind is MemoryKind.UNKNOWN


# Captures


@pytest.mark.parametrize("mode", CaptureMode)
def test_no_call_is_ruled_out_by_a_capture(platform: Platform, ground: Ground, mode: CaptureMode):
    stream = platform.create_stream(0, non_blocking=True, priority=0)
    platform.begin_capture(stream, 0, mode)
    ptr, handle = ground.reserve(1), ground.create()
    ground.map(ptr, handle)
    ground.open(ptr)
    ground.unmap(ptr)
    ground.release(handle)
    platform.free_address_range(ptr, ground.reserved.pop(ptr))
    assert platform.capture_status(stream, 0) is CaptureStatus.ACTIVE
    platform.destroy_graph(platform.end_capture(stream, 0))
    platform.destroy_stream(stream)


# Other devices


def seen_by(platform: Platform, device: int, ptr: int) -> bool:
    platform.set_current_device(device)
    try:
        return platform.pointer_attributes(ptr).accessible
    finally:
        platform.set_current_device(0)


def test_another_device_reaches_it_where_the_mapping_says_so_whatever_peer_access_is(pair: Platform, ground: Ground):
    ptr = ground.filled(0)
    with suppress(PlatformError):  # another test may have enabled it
        pair.disable_peer_access(1, 0)
    seen = [seen_by(pair, 1, ptr)]
    pair.enable_peer_access(1, 0)
    seen.append(seen_by(pair, 1, ptr))
    ground.open(ptr, device=1)
    seen.append(seen_by(pair, 1, ptr))
    pair.disable_peer_access(1, 0)
    seen.append(seen_by(pair, 1, ptr))
    ground.open(ptr, device=1, access=PoolAccess.NONE)
    seen.append(seen_by(pair, 1, ptr))
    assert seen == [False, False, True, True, False]


def test_what_was_opened_is_closed_again_by_unmapping(pair: Platform, ground: Ground):
    ptr, handle = ground.reserve(1), ground.create()
    ground.map(ptr, handle)
    ground.open(ptr, device=1)
    ground.unmap(ptr)
    ground.map(ptr, handle)
    assert not seen_by(pair, 1, ptr)
