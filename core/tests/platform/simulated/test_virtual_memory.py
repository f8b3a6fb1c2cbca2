"""Virtual memory beyond what hardware was asked: faults, accounts, the host, and what the driver's documentation says.

What two H200s were seen to answer is in ``core/tests/platform/test_virtual_memory.py``, for both platforms.
"""

import ctypes
import gc
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from allotment.errors import PlatformError
from allotment.memory_kind import MemoryKind
from allotment.platform import CaptureMode, PoolAccess, StridedMemory
from allotment.platform.simulated import SimulatedPlatform, _host_mapping, load_profile

pytestmark = pytest.mark.skipif(not _host_mapping.IS_AVAILABLE, reason="the simulation of virtual memory needs Linux")

G = 2 * 2**20
HOST = np.zeros(64, np.uint8)
INVALID = "cudaErrorInvalidValue"
ILLEGAL = "cudaErrorIllegalAddress"


def reserve(platform, granules=8):
    return platform.address_range(granules * G)


def map_new(platform, ptr, granules=1, device=0, *, opened=True):
    """Put new memory behind addresses, with access for its device; return its handle."""
    handle = platform.create_physical(device, granules * G)
    platform.map_physical(ptr, granules * G, handle)
    if opened:
        platform.set_mapping_access(ptr, granules * G, device, PoolAccess.READ_WRITE)
    return handle


def code_of(call, *arguments):
    with pytest.raises(PlatformError) as refusal:
        call(*arguments)
    return refusal.value.code


def mappings_of_the_process():
    return Path("/proc/self/maps").read_text(encoding="ascii").splitlines()


def elements(ptr, count=8, device=0):
    return StridedMemory(ptr, (count,), (1,), np.dtype("u1"), device, None)


def set_elements(platform, ptr, count=8, stream=0, device=0, owner=0):
    """Let a kernel of a device set bytes."""
    platform.fill_elements(elements(ptr, count, owner), np.uint8(9), stream, device)


class TestReservations:
    def test_40_tebibytes_cost_nothing(self, platform):
        assert platform.pointer_attributes(platform.address_range(40 * 2**40)).kind is MemoryKind.UNKNOWN

    @pytest.mark.parametrize("nbytes", [0, -G, G + 4096])
    def test_a_size_that_is_no_multiple_is_refused(self, platform, nbytes):
        assert code_of(platform.address_range, nbytes) == INVALID
        assert code_of(platform.create_physical, 0, nbytes) == INVALID

    @pytest.mark.parametrize("nbytes", [2**62, 2**64])
    def test_more_than_there_are_addresses_is_out_of_memory(self, platform, nbytes):
        assert code_of(platform.address_range, nbytes) == "cudaErrorMemoryAllocation"

    def test_a_reservation_is_given_back_whole(self, platform):
        ptr = reserve(platform, 4)

        assert code_of(platform.free_address_range, ptr, G) == INVALID
        assert code_of(platform.free_address_range, ptr + G, 3 * G) == INVALID
        platform.free_address_range(ptr, 4 * G)
        assert code_of(platform.free_address_range, ptr, 4 * G) == INVALID

    def test_it_is_not_given_back_while_anything_is_mapped(self, platform):
        ptr = reserve(platform)
        map_new(platform, ptr + 3 * G)

        assert code_of(platform.free_address_range, ptr, 8 * G) == INVALID
        platform.unmap_physical(ptr + 3 * G, G)
        platform.free_address_range(ptr, 8 * G)


class TestPhysicalMemory:
    def test_it_counts_against_the_device_from_its_making_to_its_last_use(self, platform):
        def free():
            return platform.memory_info(0).free

        ptr, before = reserve(platform), platform.memory_info(0).free
        handle = platform.create_physical(0, 4 * G)
        after_making = free()
        for address in (ptr, ptr + 4 * G):
            platform.map_physical(address, 4 * G, handle)
        platform.release_physical(handle)
        platform.unmap_physical(ptr, 4 * G)
        after_one = free()
        platform.unmap_physical(ptr + 4 * G, 4 * G)

        assert [before - after_making, before - after_one, before - free()] == [4 * G, 4 * G, 0]

    def test_one_device_does_not_pay_for_another(self, platform):
        before = platform.memory_info(0).free
        platform.create_physical(1, G)

        assert platform.memory_info(0).free == before
        assert platform.memory_info(1).free == platform.memory_info(1).total - G

    def test_more_than_the_device_has_is_out_of_memory_and_changes_nothing(self, platform):
        before = platform.memory_info(0)

        assert code_of(platform.create_physical, 0, before.total // G * G + G) == "cudaErrorMemoryAllocation"
        assert platform.memory_info(0) == before

    def test_it_takes_what_pools_hold_idle(self, platform):
        pool, total = platform.default_pool(0), platform.memory_info(0).total
        platform.free_async(platform.malloc_from_pool(total // 2, pool, 0), 0)

        assert platform.create_physical(0, total // G * G)

    def test_a_handle_is_released_once(self, platform):
        handle = platform.create_physical(0, G)
        platform.release_physical(handle)

        assert code_of(platform.release_physical, handle) == INVALID
        assert code_of(platform.map_physical, reserve(platform), G, handle) == INVALID

    def test_no_device_has_memory_that_is_not_there(self, platform):
        assert code_of(platform.create_physical, 2, G) == "cudaErrorInvalidDevice"

    def test_what_comes_back_is_blank(self, platform, read):
        ptr = reserve(platform)
        first = map_new(platform, ptr)
        platform.fill(ptr, 255, G, 0, 0)
        platform.unmap_physical(ptr, G)
        platform.release_physical(first)
        map_new(platform, ptr)

        assert not read(ptr, G).any()


class TestMappings:
    def test_it_stays_in_one_reservation(self, platform):
        ptr, handle = reserve(platform, 2), platform.create_physical(0, 4 * G)

        assert code_of(platform.map_physical, ptr + G, 2 * G, handle) == INVALID
        assert code_of(platform.map_physical, 2**40, G, handle) == INVALID

    def test_it_is_no_larger_than_the_memory(self, platform):
        ptr, handle = reserve(platform), platform.create_physical(0, 2 * G)

        assert code_of(platform.map_physical, ptr, 3 * G, handle) == INVALID
        platform.map_physical(ptr, G, handle)

    @pytest.mark.parametrize(("first", "granules"), [(0, 2), (1, 1), (2, 1), (0, 4)])
    def test_nothing_is_mapped_over_another_mapping(self, platform, first, granules):
        ptr = reserve(platform)
        map_new(platform, ptr + G, 2)
        handle = platform.create_physical(0, 4 * G)

        assert code_of(platform.map_physical, ptr + first * G, granules * G, handle) == INVALID
        platform.map_physical(ptr, G, handle)

    @pytest.mark.parametrize(("first", "granules"), [(0, 3), (1, 1), (2, 1), (1, 4), (5, 1)])
    @pytest.mark.parametrize("call", ["unmap_physical", "set_mapping_access"])
    def test_a_range_is_made_up_of_whole_mappings(self, platform, call, first, granules):
        ptr, rest = reserve(platform), (0, PoolAccess.READ_WRITE) if call == "set_mapping_access" else ()
        map_new(platform, ptr + G, 2)

        assert code_of(getattr(platform, call), ptr + first * G, granules * G, *rest) == INVALID
        assert platform.pointer_attributes(ptr + 2 * G).kind is MemoryKind.CUDA_DEVICE

    def test_neighbours_in_two_reservations_are_not_one_range(self, platform):
        low, high = sorted(reserve(platform, 1) for _ in range(2))
        map_new(platform, low)
        map_new(platform, high)

        assert code_of(platform.unmap_physical, low, high - low + G) == INVALID

    def test_the_address_space_is_not_cut_into_pieces_by_mappings_in_order(self, platform):
        ptr, before = reserve(platform, 2000), len(mappings_of_the_process())
        for piece in range(2000):
            map_new(platform, ptr + piece * G)

        assert len(mappings_of_the_process()) < before + 10


class TestAccess:
    @pytest.mark.parametrize("device", [0, 1])
    def test_a_kernel_faults_on_a_mapping_that_nobody_opened(self, platform, device):
        ptr = reserve(platform)
        map_new(platform, ptr, opened=False)

        set_elements(platform, ptr, device=device)
        assert code_of(platform.synchronize_device, device) == ILLEGAL

    def test_a_kernel_of_another_device_works_once_it_was_opened_to_it(self, platform, read):
        ptr = reserve(platform)
        map_new(platform, ptr)
        platform.set_mapping_access(ptr, G, 1, PoolAccess.READ_WRITE)

        set_elements(platform, ptr, device=1)
        assert list(read(ptr, 9)) == [9] * 8 + [0]

    def test_peer_access_is_no_help_to_a_kernel(self, platform):
        ptr = reserve(platform)
        map_new(platform, ptr)
        platform.enable_peer_access(1, 0)

        set_elements(platform, ptr, device=1)
        assert code_of(platform.synchronize_device, 1) == ILLEGAL

    def test_a_kernel_works_over_neighbours_and_faults_over_a_hole(self, platform, read):
        ptr = reserve(platform)
        map_new(platform, ptr)
        map_new(platform, ptr + G)

        set_elements(platform, ptr + G - 4)
        assert list(read(ptr + G - 5, 10)) == [0, *[9] * 8, 0]
        set_elements(platform, ptr + 2 * G - 4)
        assert code_of(platform.synchronize_device, 0) == ILLEGAL

    def test_each_of_several_neighbours_is_opened(self, platform):
        ptr = reserve(platform)
        map_new(platform, ptr)
        map_new(platform, ptr + G, opened=False)

        set_elements(platform, ptr + G - 4)
        assert code_of(platform.synchronize_device, 0) == ILLEGAL

    def test_a_device_that_the_hardware_does_not_connect_gets_none(self):
        apart = SimulatedPlatform(replace(load_profile("2xh200"), peers=((False, False), (False, False))))
        ptr = reserve(apart)
        map_new(apart, ptr)

        assert code_of(apart.set_mapping_access, ptr, G, 1, PoolAccess.READ_WRITE) == "cudaErrorInvalidDevice"

    def test_a_copy_by_a_device_without_access_is_refused(self, platform):
        ptr, other = reserve(platform), platform.malloc(64)
        map_new(platform, ptr)

        assert code_of(platform.copy, other, ptr, 64, 0, 1) == INVALID
        platform.copy(other, ptr, 64, 0, 0)

    def test_a_copy_between_peers_needs_no_grant_to_the_other(self, platform, read):
        ptr = reserve(platform)
        map_new(platform, ptr)
        map_new(platform, ptr + G, device=1)
        platform.fill(ptr, 5, 64, 0, 0)

        platform.copy_peer(ptr + G, 1, ptr, 0, 64, 0)
        platform.synchronize_device(0)
        assert list(read(ptr + G, 65)) == [5] * 64 + [0]

    def test_a_fill_of_a_mapping_that_nobody_opened_is_refused(self, platform):
        ptr = reserve(platform)
        map_new(platform, ptr, opened=False)

        assert code_of(platform.fill, ptr, 0, 64, 0, 0) == INVALID

    @pytest.mark.parametrize("opened", [True, False])
    def test_host_code_does_not_reach_it(self, platform, opened):
        ptr = reserve(platform)
        map_new(platform, ptr, opened=opened)

        for address in (ptr, ptr + G - 1, ptr + G):
            assert code_of(platform.check_host_access, address, 8) == "SIGSEGV"


class TestWorkThatIsQueued:
    """Unmapping waits for no work: what still uses the memory faults."""

    @pytest.fixture
    def stream(self, platform):
        return platform.create_stream(0, non_blocking=True, priority=0)

    @pytest.fixture
    def ptr(self, platform):
        ptr = reserve(platform)
        map_new(platform, ptr)
        return ptr

    def queue(self, platform, work, ptr, stream):
        match work:
            case "fill":
                platform.fill(ptr, 1, 64, stream, 0)
            case "copy to it":
                platform.copy(ptr, HOST.ctypes.data, 64, stream, 0)
            case "copy from it":
                platform.copy(platform.malloc(64), ptr, 64, stream, 0)
            case "copy between peers":
                platform.copy_peer(platform.malloc(64), 0, ptr, 0, 64, stream)
            case "kernel":
                set_elements(platform, ptr, stream=stream)
            case "kernel that copies":
                platform.copy_elements(elements(platform.malloc(64)), elements(ptr), stream, 0)
            case "launch":
                platform.launch(lambda: ctypes.memset(ptr, 0, 8), stream, 0, [elements(ptr)])

    WORK = ("fill", "copy to it", "copy from it", "copy between peers", "kernel", "kernel that copies", "launch")

    @pytest.mark.parametrize("work", WORK)
    @pytest.mark.parametrize("gone", ["unmapped", "given back", "closed"])
    def test_it_faults_where_the_memory_is_gone(self, platform, stream, ptr, work, gone):
        platform.hold(stream)
        self.queue(platform, work, ptr, stream)
        if gone == "closed":
            platform.set_mapping_access(ptr, G, 0, PoolAccess.NONE)
        else:
            platform.unmap_physical(ptr, G)
        if gone == "given back":
            platform.free_address_range(ptr, 8 * G)

        assert code_of(platform.synchronize_stream, stream, 0) == ILLEGAL
        assert code_of(platform.malloc, 64) == ILLEGAL

    @pytest.mark.parametrize("work", WORK)
    def test_it_works_where_other_memory_is_there_by_then(self, platform, stream, ptr, work):
        platform.hold(stream)
        self.queue(platform, work, ptr, stream)
        platform.unmap_physical(ptr, G)
        map_new(platform, ptr)

        platform.synchronize_stream(stream, 0)

    def test_a_kernel_may_be_queued_before_its_memory_is_mapped(self, platform, stream, ptr, read):
        platform.hold(stream)
        set_elements(platform, ptr + G, stream=stream)
        map_new(platform, ptr + G)
        platform.synchronize_stream(stream, 0)

        assert list(read(ptr + G, 8)) == [9] * 8

    def test_a_kernel_that_touches_nothing_needs_no_memory(self, platform, stream, ptr):
        platform.hold(stream)
        set_elements(platform, ptr, 0, stream)
        platform.unmap_physical(ptr, G)

        platform.synchronize_stream(stream, 0)

    @pytest.mark.parametrize("profile", ["hmm", "gh200"])
    def test_it_faults_where_kernels_reach_host_memory_too(self, profile):
        anywhere = SimulatedPlatform.from_profile(profile)
        stream, ptr = anywhere.create_stream(0, non_blocking=True, priority=0), reserve(anywhere)
        map_new(anywhere, ptr)
        anywhere.hold(stream)
        set_elements(anywhere, ptr, stream=stream)
        anywhere.unmap_physical(ptr, G)
        anywhere.free_address_range(ptr, 8 * G)

        assert code_of(anywhere.synchronize_stream, stream, 0) == ILLEGAL

    @pytest.mark.parametrize("work", [work for work in WORK if work != "copy between peers"])
    @pytest.mark.parametrize("held", [True, False])
    def test_a_graph_faults_where_the_memory_is_gone(self, platform, stream, ptr, work, held):
        platform.begin_capture(stream, 0, CaptureMode.RELAXED)
        self.queue(platform, work, ptr, stream)
        executable = platform.instantiate_graph(platform.end_capture(stream, 0))
        platform.launch_graph(executable, stream, 0)
        platform.synchronize_stream(stream, 0)
        if held:
            platform.hold(stream)
            platform.launch_graph(executable, stream, 0)
        platform.unmap_physical(ptr, G)
        if not held:
            platform.launch_graph(executable, stream, 0)

        assert code_of(platform.synchronize_stream, stream, 0) == ILLEGAL

    def test_none_of_the_calls_waits(self, platform, stream, ptr):
        platform.hold(stream)
        platform.fill(platform.malloc(64), 1, 64, stream, 0)
        handle = map_new(platform, ptr + G)
        platform.unmap_physical(ptr + G, G)
        platform.release_physical(handle)

        assert not platform.stream_is_done(stream, 0)

    def test_host_memory_is_read_before_the_call_returns(self, platform, stream, ptr, read):
        source = np.full(8, 3, np.uint8)
        platform.hold(stream)
        platform.copy(ptr, source.ctypes.data, 8, stream, 0)
        source[:] = 4
        platform.release(stream)

        assert list(read(ptr, 8)) == [3] * 8


class TestThePlatform:
    def test_no_call_opens_a_context(self, platform):
        ptr = reserve(platform)
        map_new(platform, ptr)
        platform.unmap_physical(ptr, G)

        assert platform.mapping_granularity(0) == G
        assert not platform.contexts()

    def test_a_reset_of_the_device_leaves_what_is_mapped(self, platform):
        ptr = reserve(platform)
        map_new(platform, ptr)
        platform.reset_device(0)

        assert platform.pointer_attributes(ptr).kind is MemoryKind.CUDA_DEVICE
        platform.unmap_physical(ptr, G)

    def test_after_a_fault_nothing_is_mapped_any_more(self, platform):
        set_elements(platform, reserve(platform))

        assert code_of(platform.create_physical, 0, G) == ILLEGAL
        assert code_of(platform.address_range, G) == ILLEGAL

    def test_a_call_can_be_made_to_fail(self, platform):
        ptr, handle = reserve(platform), platform.create_physical(0, G)
        platform.fail("map_physical", code="cudaErrorUnknown")

        assert code_of(platform.map_physical, ptr, G, handle) == "cudaErrorUnknown"
        platform.map_physical(ptr, G, handle)
        assert [call.error for call in platform.calls.named("map_physical")] == ["cudaErrorUnknown", None]

    def test_there_is_no_driver_for_compiled_code(self, platform):
        assert platform.driver_entry_point("cuMemMap") == 0
        assert platform.driver_error("cuMemMap", 2).code == "CUresult 2"

    @pytest.mark.parametrize("profile", ["no-pools", "2xh200"])
    def test_a_device_without_it_refuses(self, profile, monkeypatch):
        if profile == "2xh200":  # a host that cannot stand in for it
            monkeypatch.setattr(_host_mapping, "IS_AVAILABLE", False)
        without = SimulatedPlatform.from_profile(profile)

        assert not without.device_properties(0).virtual_memory
        for call, *arguments in (("address_range", G), ("create_physical", 0, G), ("mapping_granularity", 0)):
            assert code_of(getattr(without, call), *arguments) == "cudaErrorNotSupported"

    @pytest.mark.parametrize("end", ["close", "forget"])
    def test_its_end_gives_all_addresses_back_to_the_host(self, end):
        def mapped():
            return sum("allotment-sim" in line for line in mappings_of_the_process())

        gc.collect()
        before, platform = mapped(), SimulatedPlatform.from_profile("2xh200")
        map_new(platform, reserve(platform))
        during = mapped()
        if end == "close":
            platform.close()
        else:
            del platform
            gc.collect()

        assert (during - before, mapped() - before) == (1, 0)

    def test_threads_map_and_unmap_beside_each_other(self, platform):
        errors = []

        def work():
            try:
                ptr = reserve(platform)
                for piece in range(40):
                    handle = map_new(platform, ptr + piece % 8 * G)
                    platform.fill(ptr + piece % 8 * G, piece, 64, 0, 0)
                    platform.unmap_physical(ptr + piece % 8 * G, G)
                    platform.release_physical(handle)
            except PlatformError as error:
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert not errors
        assert platform.memory_info(0).free == platform.memory_info(0).total


class Piece:
    """What a test remembers of physical memory: what was written last, and how often it is mapped."""

    def __init__(self):
        self.content, self.mappings, self.is_held = 0, 0, True


class AnySequenceOfCalls(RuleBasedStateMachine):
    """Memory holds what was written, wherever it is mapped, and counts for as long as it can be reached."""

    PIECES = 8

    def __init__(self):
        super().__init__()
        self.platform = SimulatedPlatform.from_profile("h200")
        self.start = reserve(self.platform, self.PIECES)
        self.held, self.mapped, self.made = {}, {}, []

    def teardown(self):
        self.platform.close()

    @rule()
    def create(self):
        handle = self.platform.create_physical(0, G)
        self.held[handle] = Piece()
        self.made.append(self.held[handle])

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data):
        handle = data.draw(st.sampled_from(sorted(self.held)))
        self.platform.release_physical(handle)
        self.held.pop(handle).is_held = False

    @precondition(lambda self: self.held)
    @rule(data=st.data(), place=st.integers(0, PIECES - 1))
    def map(self, data, place):
        handle, ptr = data.draw(st.sampled_from(sorted(self.held))), self.start + place * G
        if place in self.mapped:
            assert code_of(self.platform.map_physical, ptr, G, handle) == INVALID
            return
        self.platform.map_physical(ptr, G, handle)
        self.platform.set_mapping_access(ptr, G, 0, PoolAccess.READ_WRITE)
        self.mapped[place] = self.held[handle]
        self.mapped[place].mappings += 1

    @rule(first=st.integers(0, PIECES - 1), count=st.integers(1, PIECES))
    def unmap(self, first, count):
        places = range(first, min(first + count, self.PIECES))
        arguments = self.start + first * G, len(places) * G
        if any(place not in self.mapped for place in places):
            assert code_of(self.platform.unmap_physical, *arguments) == INVALID
            return
        self.platform.unmap_physical(*arguments)
        for place in places:
            self.mapped.pop(place).mappings -= 1

    @precondition(lambda self: self.mapped)
    @rule(data=st.data(), content=st.integers(1, 255))
    def write(self, data, content):
        place = data.draw(st.sampled_from(sorted(self.mapped)))
        self.platform.fill(self.start + place * G, content, 16, 0, 0)
        self.mapped[place].content = content

    @invariant()
    def what_is_mapped_holds_what_was_written(self):
        for place, piece in self.mapped.items():
            self.platform.copy(HOST.ctypes.data, self.start + place * G, 16, 0, 0)
            assert (HOST[:16] == piece.content).all()

    @invariant()
    def what_can_be_reached_counts(self):
        info = self.platform.memory_info(0)
        assert info.total - info.free == G * sum(piece.is_held or piece.mappings > 0 for piece in self.made)


TestAnySequenceOfCalls = AnySequenceOfCalls.TestCase
