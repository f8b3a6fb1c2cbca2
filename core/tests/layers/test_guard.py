"""The layer that watches the memory around blocks and in freed ones."""

from __future__ import annotations

import ctypes
import inspect

import pytest

import allotment as al
from allotment.layers.guard import POISON_BYTE

NAMES = ["default", "mempool", "managed", "caching"]
TOTAL_OF_512 = 512 + 512 + 256
"""The size of a block of 512 bytes with its zones: the one before it is as long as the alignment of device memory."""


def guarded(name="mempool", device="cuda:0", **options):
    return al.get_allocator(name, device, layers=["track", {"guard": options}])


def write(sim, ptr, byte=1):
    """Write a byte as a kernel that goes astray does."""
    sim.fill(ptr, byte, 1, 0, 0)


def content(ptr, nbytes):
    return ctypes.string_at(ptr, nbytes)


@pytest.mark.parametrize("name", NAMES)
def test_a_block_that_nobody_strays_from_comes_and_goes(sim, name):
    account = guarded(name)
    ptrs = [account.allocate(size) for size in (1, 255, 4096)]
    for ptr, size in zip(ptrs, (1, 255, 4096), strict=True):
        sim.fill(ptr, 7, size, 0, 0)
        account.deallocate(ptr, size)
    al.check_guards()
    account.trim()

    assert account.statistics().live == account.statistics().current == 0
    assert account.layers[1].idle_bytes == 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("zone", [1, 100, 256, 300])
def test_blocks_keep_the_alignment_that_the_allocator_declares(sim, name, zone):
    account = guarded(name, zone=zone)

    assert [account.allocate(size) % account.traits.alignment for size in (1, 100, 4097)] == [0, 0, 0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("offset", "told"),
    [
        (100, "a write went beyond the end of a block: byte 100 of the block of 100 bytes"),
        (355, "a write went beyond the end of a block: byte 355 of the block of 100 bytes"),
        (-1, "a write went before the start of a block: byte -1 of the block of 100 bytes"),
        (-256, "a write went before the start of a block: byte -256 of the block of 100 bytes"),
    ],
)
def test_a_write_beside_a_block_is_told_with_its_offset_when_the_block_is_freed(sim, name, offset, told):
    account = guarded(name)
    ptr = account.allocate(100)
    write(sim, ptr + offset)
    with pytest.raises(al.OutOfBoundsError, match=told) as caught:
        account.deallocate(ptr, 100)

    assert (caught.value.offset, caught.value.pointer, caught.value.nbytes) == (offset, ptr, 100)
    assert f"It was allocated at {__file__}:" in str(caught.value)


def test_of_several_bytes_the_one_nearest_to_the_block_is_told(sim):
    account = guarded()
    ptr = account.allocate(100)
    sim.fill(ptr - 20, 1, 10, 0, 0)
    with pytest.raises(al.OutOfBoundsError) as caught:
        account.deallocate(ptr, 100)

    assert caught.value.offset == -11


def test_a_block_that_was_told_stays_live_and_can_then_be_freed(sim):
    account = guarded()
    ptr = account.allocate(100)
    write(sim, ptr + 100)
    with pytest.raises(al.OutOfBoundsError):
        account.deallocate(ptr, 100)

    assert account.is_live(ptr)
    account.deallocate(ptr, 100)
    al.check_guards()
    assert account.statistics().live == 0


def test_an_array_that_was_written_beyond_warns_when_it_goes(sim):
    al.configure(layers=["guard"])
    held = [al.zeros(10, "uint8", "cuda:0")]
    write(sim, held[0].ptr + 10)
    with pytest.warns(al.FreeFailedWarning, match="byte 10 of the block of 10 bytes"):
        held.clear()


@pytest.mark.parametrize("name", NAMES)
def test_a_write_to_a_freed_block_is_told_with_both_call_sites(sim, name):
    account = guarded(name)
    ptr, made = account.allocate(100), inspect.currentframe().f_lineno
    account.deallocate(ptr, 100)
    write(sim, ptr + 3)
    account.trim()
    with pytest.raises(al.UseAfterFreeError, match="written after it was freed: byte 3 of the block of 100") as caught:
        account.allocate(8)

    assert f"allocated at {__file__}:{made} in " in caught.value.sites
    assert f"and freed at {__file__}:{made + 1} in " in str(caught.value)
    account.allocate(8)


def test_call_sites_are_told_only_where_blocks_are_tracked(sim):
    account = al.get_allocator("mempool", "cuda:0", layers=["guard"])
    ptr = account.allocate(100)
    account.deallocate(ptr, 100)
    write(sim, ptr)
    with pytest.raises(al.UseAfterFreeError) as caught:
        al.check_guards()

    assert caught.value.sites is None
    assert str(caught.value).endswith("of allocator 'mempool' on 'cuda:0'.")


def test_a_look_finds_what_is_wrong_one_by_one_and_once(sim):
    account = guarded()
    live, freed = account.allocate(100), account.allocate(200)
    account.deallocate(freed, 200)
    write(sim, live + 100)
    write(sim, freed)
    with pytest.raises(al.OutOfBoundsError):
        al.check_guards("cuda:0")
    with pytest.raises(al.UseAfterFreeError):
        al.check_guards(allocator="mempool")
    al.check_guards()
    account.deallocate(live, 100)
    account.trim()
    account.allocate(8)


def test_a_freed_block_is_filled_and_not_used_again_for_a_while(sim):
    account = guarded()
    ptr = account.allocate(100)
    account.deallocate(ptr, 100)

    assert content(ptr, 100) == bytes([POISON_BYTE] * 100)
    assert account.allocate(100) != ptr


def test_the_quarantine_is_bounded(sim):
    account = guarded(quarantine=3 * TOTAL_OF_512)
    guard = account.layers[1]
    for _ in range(10):
        account.deallocate(account.allocate(512), 512)
        assert guard.idle_bytes <= 3 * TOTAL_OF_512

    assert guard.idle_bytes == 3 * TOTAL_OF_512
    large = account.allocate(2**20)
    account.deallocate(large, 2**20)
    assert guard.idle_bytes == 0


def test_what_leaves_the_quarantine_while_another_block_is_freed_stops_no_free(sim):
    account = guarded(quarantine=TOTAL_OF_512 + 1)
    first, second = account.allocate(512), account.allocate(512)
    account.deallocate(first, 512)
    write(sim, first)
    account.deallocate(second, 512)

    assert account.statistics().live == 0
    with pytest.raises(al.UseAfterFreeError):
        account.allocate(8)


def test_trimming_empties_the_quarantine(sim):
    account = guarded("default")
    ptr = account.allocate(512)
    account.deallocate(ptr, 512)

    assert account.trim() == TOTAL_OF_512
    assert [call.name for call in sim.calls].count("free") == 1


def test_memory_in_quarantine_is_used_before_a_request_fails(sim):
    account = al.get_allocator("default", "cuda:0", layers=[{"guard": {"quarantine": "50%"}}, {"limit": 4096}])
    account.deallocate(account.allocate(2048), 2048)

    assert account.allocate(2560)


def test_closing_empties_the_quarantine_and_tells(sim):
    account = guarded()
    ptr = account.allocate(100)
    account.deallocate(ptr, 100)
    write(sim, ptr)
    with pytest.raises(al.UseAfterFreeError):
        account.close()
    account.close()


def test_what_was_found_and_never_told_is_told_when_the_interpreter_exits(run_script):
    done = run_script(
        """
        import allotment as al
        account = al.get_allocator("mempool", layers=["guard"])
        ptr = account.allocate(100)
        account.deallocate(ptr, 100)
        al.from_pointer(ptr, 100, "uint8").fill_(1)
        account.trim()
        """,
        ALLOTMENT_PLATFORM="sim:h200",
    )

    assert "UseAfterFreeError: a block was written after it was freed: byte 0" in done.stderr


def test_other_streams_are_told_of_the_block_that_the_allocator_knows(sim):
    account, other = guarded(), al.Stream("cuda:0")
    ptr = account.allocate(100)
    account.record_use(ptr, other)
    account.deallocate(ptr, 100)
    al.check_guards()


def test_work_that_is_under_way_is_waited_for_before_a_look(sim):
    stream = al.Stream("cuda:0")
    account = guarded()
    with al.ScopedStream(stream):
        ptr = account.allocate(100)
        sim.fill(ptr + 100, 1, 1, stream.handle, 0)
        with pytest.raises(al.OutOfBoundsError):
            account.deallocate(ptr, 100)


def test_nothing_is_guarded_inside_a_capture(sim):
    account, stream = guarded(), al.Stream("cuda:0", non_blocking=True)
    before = account.allocate(100)
    aside = al.Stream("cuda:0", non_blocking=True)
    with al.ScopedStream(stream), al.ScopedCapture("cuda:0") as captured:
        account.deallocate(account.allocate(500), 500)
        with al.ScopedStream(aside, sync_enter=False):
            beside = account.allocate(200)
        account.deallocate(before, 100)
    account.deallocate(beside, 200)

    assert captured.graph is not None
    assert account.statistics().live == 0
    al.check_guards()


@pytest.mark.parametrize(("name", "device"), [("host", "cpu"), ("pinned", "cpu")])
def test_memory_of_the_host_is_guarded_too(sim, name, device):
    account = guarded(name, device)
    ptr, other = account.allocate(100), account.allocate(100)
    ctypes.memset(ptr + 100, 0, 1)
    with pytest.raises(al.OutOfBoundsError, match="byte 100"):
        account.deallocate(ptr, 100)
    account.deallocate(other, 100)
    ctypes.memset(other, 0, 1)
    with pytest.raises(al.UseAfterFreeError, match="byte 0"):
        al.check_guards("cpu")


def test_a_quarantine_on_the_host_is_in_bytes(sim):
    with pytest.raises(al.ConfigError, match="it has no total"):
        guarded("host", "cpu", quarantine="10%")


def test_a_zone_has_a_byte_at_least(sim):
    with pytest.raises(al.ConfigError, match="expected a number from 1, got 0"):
        guarded(zone=0)


@pytest.mark.parametrize("nth", [1, 2])
def test_a_zone_that_cannot_be_filled_loses_no_block(sim, nth):
    account = guarded("default")
    sim.fail("fill", nth, code="cudaErrorUnknown")
    with pytest.raises(al.PlatformError):
        account.allocate(8)

    calls = [call.name for call in sim.calls]
    assert (calls.count("malloc"), calls.count("free")) == (1, 1)
    assert account.statistics().live == 0


def test_a_block_that_cannot_be_looked_at_stays_live(sim):
    account = guarded("default")
    ptr = account.allocate(8)
    sim.fail("copy", code="cudaErrorUnknown")
    with pytest.raises(al.PlatformError):
        account.deallocate(ptr, 8)

    assert account.is_live(ptr)
    account.deallocate(ptr, 8)
