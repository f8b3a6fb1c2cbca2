"""Moving contents: every way between memories gives what NumPy gives, also with delayed streams and failing calls."""

from __future__ import annotations

import gc
import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import allotment as al
from allotment.interchange import from_numpy

PLACES = [
    ("cpu", "host"),
    ("cpu", "pinned"),
    *((f"cuda:{ordinal}", name) for ordinal in (0, 1) for name in ("default", "mempool", "managed")),
]
LAYOUTS = {
    "contiguous": lambda a: a,
    "strided": lambda a: a[::2, 1:],
    "transposed": lambda a: a.T,
    "negative": lambda a: a[::-1, ::-2],
}
CALLS = [
    "copy",
    "copy_peer",
    "copy_elements",
    "fill",
    "fill_elements",
    "malloc",
    "malloc_managed",
    "malloc_from_pool",
    "host_alloc",
    "wait_for_stream",
    "synchronize_stream",
]


@pytest.fixture
def sim():
    with al.simulate("2xh200") as platform:
        yield platform


def place(values, where):
    """Return an array with these contents in the memory of a place."""
    device, allocator = where
    with al.ScopedAllocator(device, allocator):
        array = al.array(values, device=device)
    assert array.account.name == allocator
    return array


def balance():
    """Return the bytes and blocks that all allocators of all devices have handed out."""
    accounts = [account.statistics() for device in al.get_devices() for account in device.accounts.values()]
    return sum(account.current for account in accounts), sum(account.live for account in accounts)


def calls_during(sim, name, work):
    """Return how many calls of a kind a piece of work makes."""
    sim.calls.clear()
    work()
    return len(sim.calls.named(name))


# Every way


@pytest.mark.parametrize("source", PLACES, ids="-".join)
@pytest.mark.parametrize("destination", PLACES, ids="-".join)
def test_a_copy_between_any_two_places_and_layouts_gives_what_numpy_gives(sim, source, destination):
    values = np.arange(36.0).reshape(6, 6)
    src = place(values, source)
    for to, of in itertools.product(LAYOUTS.values(), repeat=2):
        expected = np.full((6, 6), -1.0)
        if to(expected).shape != of(values).shape:
            continue
        dest = place(expected, destination)
        to(expected)[...] = of(values)
        al.copy(to(dest), of(src))
        al.synchronize()
        np.testing.assert_array_equal(dest.numpy(), expected)
        np.testing.assert_array_equal(src.numpy(), values)


@pytest.mark.parametrize("source", PLACES, ids="-".join)
@pytest.mark.parametrize("device", ["cpu", "cuda:0", "cuda:1"])
def test_an_array_moves_to_any_device(sim, source, device):
    values = np.arange(12, dtype="i4").reshape(3, 4)
    array = place(values, source)
    moved = array.to(device)
    assert moved.device.alias == device
    assert (moved is array) == (source[0] == device)
    np.testing.assert_array_equal(moved.numpy(), values)
    np.testing.assert_array_equal(array.T.to(device).numpy(), values.T)


@pytest.mark.parametrize("where", PLACES, ids="-".join)
@pytest.mark.parametrize(
    "dtype", ["?", "u1", "f2", "c8", "c16", "M8[us]", "U3", ">i4", [("a", "u1"), ("b", "f4")], "V5"], ids=str
)
def test_elements_of_every_type_are_carried_there_and_back(sim, where, dtype):
    values = np.frombuffer(bytes(range(1, 121)), "u1").view("V1")
    count = len(values) // np.dtype(dtype).itemsize // 2 * 2
    values = values[: count * np.dtype(dtype).itemsize].view("u1").copy()
    values = (
        (values % 2).view(dtype)
        if dtype == "?"
        else (np.zeros(4, "U3") + "abc" if dtype == "U3" else values.view(dtype))
    )
    array = place(values, where)
    assert array.numpy().tobytes() == values.tobytes()
    assert array[::-2].numpy().tobytes() == values[::-2].tobytes()


# Overlap


@pytest.mark.parametrize("where", PLACES, ids="-".join)
@pytest.mark.parametrize(
    ("to", "of"),
    [
        (slice(1, None), slice(None, -1)),
        (slice(None, -1), slice(1, None)),
        (slice(None), slice(None, None, -1)),
        (slice(0, 8, 2), slice(2, 6)),
        (slice(2, 6), slice(0, 8, 2)),
    ],
    ids=["up", "down", "reversed", "spread", "gathered"],
)
def test_a_copy_within_an_array_is_as_if_its_source_was_read_first(sim, where, to, of):
    values = np.arange(10)
    array = place(values, where)
    array[to] = array[of]
    values[to] = values[of].copy()
    np.testing.assert_array_equal(array.numpy(), values)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_slices_of_one_array_copy_as_in_numpy(sim, data):
    values = np.arange(24).reshape(4, 6)
    array = al.array(values, device="cuda:0")
    spans = [data.draw(st.tuples(st.slices(4), st.slices(6))) for _ in range(2)]
    to, of = spans
    if values[to].shape == values[of].shape:
        array[to] = array[of]
        values[to] = values[of].copy()
    np.testing.assert_array_equal(array.numpy(), values)


def test_an_overlapping_copy_of_contiguous_memory_is_never_asked_of_the_platform(sim):
    array = al.zeros(10, device="cuda:0")
    sim.calls.clear()
    array[1:] = array[:-1]
    for call in sim.calls.named("copy"):
        assert abs(call.arguments["dst"] - call.arguments["src"]) >= call.arguments["nbytes"]


def test_a_copy_onto_itself_does_nothing(sim):
    array = al.ones(10, device="cuda:0")
    sim.calls.clear()
    array[::2] = array[::2]
    assert not sim.calls.named("copy", "copy_elements")


def test_what_only_seems_to_overlap_needs_no_second_memory(sim):
    array = al.zeros((2, 4), device="cuda:0")
    before = array.allocator.statistics().allocations
    array[0] = array[1]
    assert array.allocator.statistics().allocations == before


# Types


@pytest.mark.parametrize("where", [("cpu", "host"), ("cuda:0", "mempool")], ids="-".join)
@pytest.mark.parametrize(
    ("dtype", "wanted"), [("i4", "f8"), ("f8", "f4"), ("?", "i2"), ("i8", "c16"), (">f4", "<f4"), ("M8[s]", "M8[ms]")]
)
def test_elements_of_one_kind_are_converted(sim, where, dtype, wanted):
    values = np.array([0, 1, 1, 0]).astype(dtype)
    dest = place(np.zeros(4, wanted), where)
    al.copy(dest, place(values, where))
    np.testing.assert_array_equal(dest.numpy(), values.astype(wanted))


@pytest.mark.parametrize(("dtype", "wanted"), [("f8", "i8"), ("c8", "f4"), ("i4", "u4"), ("U3", "i4")])
def test_a_conversion_that_may_lose_the_value_is_refused_with_the_way_to_do_it(sim, dtype, wanted):
    dest = al.full(2, 5, wanted, "cuda:0")
    with pytest.raises(ValueError, match=r"convert them with allotment.array\(source, dtype\)"):
        al.copy(dest, al.zeros(2, dtype, "cuda:0"))
    np.testing.assert_array_equal(dest.numpy(), [5, 5])


def test_array_converts_whatever_it_is_given_when_a_type_is_named(sim):
    source = al.array([1.5, 2.5], device="cuda:0")
    assert al.array(source, "i4").numpy().tolist() == [1, 2]
    assert al.array([1.5, 2.5], "i4", "cpu").numpy().tolist() == [1, 2]


# Making arrays from data


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize(
    "data",
    [3, [1, 2], [[1.0], [2.0]], (True, False), np.arange(6).reshape(2, 3).T, np.float32(2), range(3), []],
    ids=str,
)
def test_array_takes_what_numpy_makes_an_array_of(sim, device, data):
    array = al.array(data, device=device)
    assert array.dtype == np.asarray(data).dtype
    np.testing.assert_array_equal(array.numpy(), np.asarray(data))


def test_array_copies_unless_it_is_told_to_share(sim):
    data = np.arange(4)
    copied, shared = al.array(data, device="cpu"), al.array(data, device="cpu", copy=False)
    data[:] = 9
    assert copied.numpy().tolist() == [0, 1, 2, 3]
    assert shared.numpy().tolist() == [9, 9, 9, 9]
    assert shared.owner is data


def test_array_can_share_memory_of_a_device(sim):
    array = al.zeros(4, device="cuda:0")
    assert al.array(array, device="cuda:0", copy=False).ptr == array.ptr


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: al.array(np.zeros(4), device="cuda:0", copy=False), ValueError),
        (lambda: al.array(al.zeros(4, device="cuda:0"), device="cpu", copy=False), ValueError),
        (lambda: al.array(al.zeros(4, device="cuda:0"), device="cuda:1", copy=False), ValueError),
        (lambda: al.array(np.zeros(4), "i4", "cpu", copy=False), ValueError),
        (lambda: al.array(np.zeros(4), device="cpu", copy=False, pinned=True), ValueError),
        (lambda: al.array([1, 2], device="cpu", copy=False), TypeError),
        (lambda: al.array([object()]), TypeError),
        (lambda: al.array(np.zeros(4), device="cuda:0", pinned=True), ValueError),
    ],
)
def test_array_refuses_what_it_cannot_share_or_hold(sim, make, error):
    with pytest.raises(error):
        make()
    assert balance() == (0, 0)


def test_a_clone_of_page_locked_memory_is_page_locked_and_one_elsewhere_is_not(sim):
    pinned = al.ones(4, device="cpu", pinned=True)
    assert al.clone(pinned).pinned
    assert pinned.copy().pinned
    assert al.clone(pinned, "cuda:1").memory_kind is al.MemoryKind.CUDA_MEMPOOL
    assert not al.clone(al.ones(4, device="cuda:0"), "cpu").pinned


# Streams


@pytest.mark.parametrize("device", ["cuda:0", "cuda:1"])
def test_a_page_locked_source_may_be_dropped_at_once(sim, device):
    dest = al.zeros(100_000, device=device)
    with sim.delayed(0, dest.device.ordinal):
        source = al.full(100_000, 7.0, device="cpu", pinned=True)
        al.copy(dest, source)
        del source
        other = al.full(100_000, 9.0, device="cpu", pinned=True)
    assert (dest.numpy() == 7).all()
    assert (other.numpy() == 9).all()


def test_page_locked_memory_is_known_behind_a_numpy_view_too(sim):
    dest = al.zeros(1000, device="cuda:0")
    with sim.delayed(0, 0):
        source = al.full(1000, 7.0, device="cpu", pinned=True)
        al.copy(dest, from_numpy(source.numpy()))
        del source
        al.full(1000, 9.0, device="cpu", pinned=True)
    assert (dest.numpy() == 7).all()


def test_page_locked_memory_of_an_allocator_that_tracks_no_use_is_waited_for(sim):
    class Pinned:
        memory_kind = al.MemoryKind.PINNED

        def allocate(self, nbytes):
            return sim.host_alloc(nbytes)

        def deallocate(self, ptr, nbytes):
            sim.host_free(ptr)

    dest = al.zeros(1000, device="cuda:0")
    with al.ScopedAllocator("cpu", Pinned()), sim.delayed(0, 0):
        source = al.full(1000, 7.0, device="cpu")
        al.copy(dest, source)
        source.fill_(9)
    assert (dest.numpy() == 7).all()


def test_pageable_memory_is_read_before_a_copy_returns_and_filled_when_it_does(sim):
    device = al.zeros(1000, device="cuda:0")
    host = al.empty(1000, device="cpu")
    with sim.delayed(0, 0):
        source = np.full(1000, 7.0)
        al.copy(device, from_numpy(source))
        source[:] = 9
        al.copy(host, device)
        assert (host.numpy() == 7).all()


@pytest.mark.parametrize(
    "make", [lambda a: a.to("cpu"), lambda a: al.clone(a, "cpu"), lambda a: al.array(a, device="cpu", pinned=True)]
)
def test_a_new_array_on_the_host_is_complete_whatever_memory_it_is_in(sim, make):
    array = al.zeros(1000, device="cuda:0")
    with al.ScopedAllocator("cpu", "pinned"), sim.delayed(0, 0):
        array.fill_(7)
        assert (make(array).numpy() == 7).all()


def test_a_strided_page_locked_destination_gets_all_elements(sim):
    source, dest = al.array(np.arange(50.0), device="cuda:0"), al.zeros(100, device="cpu", pinned=True)
    with sim.delayed(0, 0):
        al.copy(dest[::2], source)
        assert dest.numpy()[::2].tolist() == list(range(50))


@pytest.mark.parametrize("allocator", ["default", "mempool", "managed"])
@pytest.mark.parametrize("held", [(0,), (1,), (0, 1)], ids=str)
def test_strided_copies_between_devices_never_read_a_recycled_buffer(sim, allocator, held):
    al.set_cuda_allocator(allocator)
    payloads = [np.arange(64.0).reshape(8, 8) + 1000 * number for number in range(4)]
    sources = [al.array(payload, device="cuda:1") for payload in payloads]
    dests = [al.zeros((8, 4), device="cuda:0") for _ in payloads]
    for _ in range(20):
        for ordinal in held:
            sim.hold(0, ordinal)
        for dest, source in zip(dests, sources, strict=True):
            al.copy(dest, source[:, ::2])
            al.full((8, 4), -1.0, device="cuda:1")
        for ordinal in held:
            sim.release(0, ordinal)
        for dest, payload in zip(dests, payloads, strict=True):
            np.testing.assert_array_equal(dest.numpy(), payload[:, ::2])


@pytest.mark.parametrize("held", [0, 1])
def test_a_copy_between_devices_waits_for_both_and_lets_its_source_go(sim, held):
    source, dest = al.zeros(1000, device="cuda:1"), al.zeros(1000, device="cuda:0")
    with sim.delayed(0, held):
        source.fill_(7)
        dest.fill_(3)
        al.copy(dest, source)
        del source
        al.full(1000, 9.0, device="cuda:1")
    assert (dest.numpy() == 7).all()


def test_copies_go_to_the_stream_that_is_named(sim):
    stream = al.Stream("cuda:0", non_blocking=True)
    dest, source = al.zeros(10, device="cuda:0"), al.ones(10, device="cpu")
    sim.calls.clear()
    al.copy(dest, source, stream=stream)
    assert [call.arguments["stream"] for call in sim.calls.named("copy")] == [stream.handle]


def test_a_stream_of_a_device_without_either_array_is_refused(sim):
    with pytest.raises(ValueError, match="a stream of 'cuda:1'"):
        al.copy(al.zeros(1, device="cuda:0"), al.zeros(1, device="cpu"), stream=al.Stream("cuda:1"))


def test_copies_go_to_the_stream_in_force(sim):
    array = al.zeros(10, device="cuda:0")
    with al.ScopedStream(al.Stream("cuda:0")) as stream:
        sim.calls.clear()
        array.fill_(3)
        array[::2].fill_(4)
        array.numpy()
    calls = sim.calls.named("fill_elements", "fill", "copy", "synchronize_stream")
    assert {call.arguments["stream"] for call in calls} == {stream.handle}
    assert len(calls) == 4


# Failing calls


WAYS = {
    "upload": (("cpu", "host"), ("cuda:0", "mempool")),
    "upload from page-locked memory": (("cpu", "pinned"), ("cuda:0", "default")),
    "download": (("cuda:1", "mempool"), ("cpu", "host")),
    "peers": (("cuda:1", "mempool"), ("cuda:0", "mempool")),
    "managed and a pool": (("cuda:1", "mempool"), ("cuda:0", "managed")),
    "one device": (("cuda:0", "default"), ("cuda:0", "mempool")),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("layout", ["contiguous", "negative"])
def test_a_copy_that_fails_anywhere_leaves_the_books_balanced_and_the_next_one_works(sim, way, call, layout):
    values = np.arange(36.0).reshape(6, 6)
    view = LAYOUTS[layout]
    src, dest = (place(contents, where) for contents, where in zip((values, np.zeros((6, 6))), WAYS[way], strict=True))
    before, kept = balance(), []
    for nth in range(1, calls_during(sim, call, lambda: al.copy(view(dest), view(src))) + 1):
        dest.zero_()
        sim.fail(call, nth, code="cudaErrorMemoryAllocation" if "alloc" in call else "cudaErrorUnknown")
        with pytest.raises(al.OutOfMemoryError if "alloc" in call else al.PlatformError) as error:
            al.copy(view(dest), view(src))
        kept.append(error.value)
        assert balance() == before
    al.copy(view(dest), view(src))
    al.synchronize()
    assert balance() == before
    np.testing.assert_array_equal(view(dest).numpy(), view(values))


@pytest.mark.parametrize("call", ["malloc_from_pool", "copy", "copy_elements", "synchronize_stream"])
@pytest.mark.parametrize(
    "make",
    [
        lambda a: a.copy(),
        lambda a: a.T.copy(),
        lambda a: a.to("cuda:1"),
        lambda a: a.T.to("cuda:1"),
        lambda a: a[::2].to("cpu"),
        lambda a: a.T.numpy(),
        lambda a: al.array(a, "f4", "cuda:0"),
    ],
)
def test_an_array_that_cannot_be_made_leaves_no_memory_behind_though_its_error_is_kept(sim, make, call):
    array = al.array(np.arange(12.0).reshape(3, 4), device="cuda:0")
    before, kept = balance(), []
    for nth in range(1, calls_during(sim, call, lambda: make(array)) + 1):
        sim.fail(call, nth)
        with pytest.raises((al.OutOfMemoryError, al.PlatformError)) as error:
            make(array)
        kept.append(error.value)
        assert balance() == before
    make(array)


def test_running_out_of_memory_for_a_second_memory_leaves_the_destination_as_it_was(sim):
    array = al.array(np.arange(10.0), device="cuda:0")
    sim.fail("malloc_from_pool")
    with pytest.raises(al.OutOfMemoryError):
        array[1:] = array[:-1]
    np.testing.assert_array_equal(array.numpy(), np.arange(10.0))


# Ranges


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((0, 0, 0), None),
        ((2, 0, 3), [9, 9, 0, 1, 2, 9]),
        ((0, 2, 0), [2, 3, 4, 5, 9, 9]),
        ((0, 4), [4, 5, 9, 9, 9, 9]),
        ((np.int64(5), np.int8(1), np.uint8(1)), [9, 9, 9, 9, 9, 1]),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_a_range_of_elements_is_copied(sim, device, arguments, expected):
    dest, src = al.full(6, 9, "i4", device), al.array(np.arange(6, dtype="i4"), device=device)
    al.copy(dest, src, *arguments)
    assert dest.numpy().tolist() == (expected or list(range(6)))


@pytest.mark.parametrize(
    "arguments", [(4, 0, 3), (0, 4, 3), (-1, 0, 2), (0, -1, 2), (0, 0, -1), (0, 7), (3, 0, 0), (0, 0, 7)]
)
def test_a_range_outside_the_arrays_is_refused(sim, arguments):
    dest = al.full(6, 9, "i4", "cuda:0")
    with pytest.raises(ValueError, match="are not inside an array of 6"):
        al.copy(dest, al.zeros(6, "i4", "cuda:0"), *arguments)
    assert dest.numpy().tolist() == [9] * 6


@pytest.mark.parametrize("arguments", [(1.0, 0, 2), (0, 1.5, 2), (0, 0, 2.0), ("1", 0, 2)])
def test_a_range_that_is_no_integers_is_a_type_error(sim, arguments):
    with pytest.raises(TypeError):
        al.copy(al.zeros(6), al.zeros(6), *arguments)


def test_shapes_that_differ_are_refused(sim):
    with pytest.raises(ValueError, match=r"shape \(3,\) cannot be copied into one of shape \(1, 3\)"):
        al.copy(al.zeros((1, 3)), al.zeros(3))


def test_an_empty_copy_does_nothing(sim):
    dest, src = al.zeros((0, 3), device="cuda:0"), al.zeros((0, 3), "i4", "cuda:1")
    sim.calls.clear()
    al.copy(dest, src)
    assert not sim.calls.named("copy", "copy_peer", "copy_elements", "wait_for_stream")


@pytest.mark.parametrize(
    "write",
    [
        lambda a: a.fill_(1),
        lambda a: a.zero_(),
        lambda a: a.__setitem__(0, 1),
        lambda a: al.copy(a, al.zeros(4, device="cpu")),
    ],
)
def test_a_readonly_destination_is_refused(sim, write):
    source = np.arange(4.0)
    source.flags.writeable = False
    with pytest.raises(ValueError, match="the destination is read-only"):
        write(from_numpy(source))
    assert source.tolist() == [0, 1, 2, 3]


# Filling


@pytest.mark.parametrize("where", PLACES, ids="-".join)
@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("?", True),
        ("i1", -128),
        ("u1", 255),
        ("u8", 2**64 - 1),
        ("i8", -(2**63)),
        ("i4", 3.0),
        ("i4", np.float32(3)),
        ("u1", np.int64(200)),
        ("f2", 65504),
        ("f4", -0.0),
        ("f4", np.inf),
        ("f8", np.nan),
        ("c8", 1 + 2j),
        ("M8[s]", np.datetime64("2020-02-02")),
        ("M8[s]", "NaT"),
        ("m8[ms]", 5),
        ("U3", "abc"),
        ("S3", b"ab"),
        (">i4", 1),
        ([("a", "u1"), ("b", "f4")], (1, 2.5)),
    ],
    ids=str,
)
def test_fill_sets_every_element_to_a_value_that_fits(sim, where, dtype, value):
    expected = np.zeros((4, 4), dtype)
    array = place(expected, where)
    assert array.fill_(value) is array
    np.testing.assert_array_equal(array.numpy(), np.full_like(expected, np.array(value, dtype)))
    array.zero_()
    array.T[1::2, ::-1].fill_(value)
    expected.T[1::2, ::-1] = np.array(value, dtype)
    assert array.numpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("u1", 256),
        ("u1", -1),
        ("u1", np.int64(300)),
        ("i4", 2.5),
        ("i4", np.float64(2.5)),
        ("i4", np.nan),
        ("i8", 2**63),
        ("f2", 1e5),
        ("f4", 1e40),
        ("f4", np.float64(1e40)),
        ("f8", 1j),
        ("f8", np.complex64(1j)),
        ("f8", "text"),
        ("i4", "12"),
        pytest.param("f8", object(), id="f8-object"),
        ("f8", [1, 2]),
        ("U2", "abc"),
        ("S1", b"ab"),
        ([("a", "u1")], (300,)),
        ([("a", "u1")], (1, 2)),
        ("M8[s]", "no date"),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_is_refused_and_nothing_is_written(sim, device, dtype, value):
    array = al.ones(3, dtype, device)
    before = array.numpy().tobytes()
    with pytest.raises(ValueError, match="is not an element of"):
        array.fill_(value)
    assert array.numpy().tobytes() == before


def test_a_fill_of_equal_bytes_is_one_memset(sim):
    array = al.empty(10, "f8", "cuda:0")
    sim.calls.clear()
    array.zero_()
    array.view("u8").fill_(0x0101_0101_0101_0101)
    assert [call.arguments["byte"] for call in sim.calls.named("fill")] == [0, 1]
    assert not sim.calls.named("fill_elements")


# Setting items


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        (0, 7),
        ((1, 2), np.float32(7)),
        (slice(None), np.array(7.0)),
        (slice(None), np.arange(4.0)),
        (slice(1, None), np.arange(8.0).reshape(2, 4)[:, ::-1]),
        ((slice(None), 1), [1, 2, 3]),
        ((slice(None), slice(0, 1)), np.arange(3).reshape(3, 1)),
        (..., np.arange(3).reshape(3, 1)),
        (slice(3, 3), 5),
        ((0, None), np.arange(4.0)),
    ],
    ids=str,
)
def test_an_item_is_set_as_in_numpy(sim, device, key, value):
    expected = np.zeros((3, 4))
    array = al.zeros((3, 4), device=device)
    array[key] = value
    expected[key] = value
    np.testing.assert_array_equal(array.numpy(), expected)


@pytest.mark.parametrize("source", PLACES, ids="-".join)
@pytest.mark.parametrize("destination", [("cpu", "pinned"), ("cuda:0", "mempool")], ids="-".join)
def test_an_array_of_any_place_is_broadcast_into_an_item(sim, source, destination):
    array, row = place(np.zeros((3, 4)), destination), place(np.arange(4.0), source)
    array[1:, ::-1] = row
    al.synchronize()
    expected = np.zeros((3, 4))
    expected[1:, ::-1] = np.arange(4.0)
    np.testing.assert_array_equal(array.numpy(), expected)


def test_an_own_row_is_broadcast_over_the_whole_array(sim):
    array = al.array(np.arange(12.0).reshape(3, 4), device="cuda:0")
    array[:] = array[1]
    np.testing.assert_array_equal(array.numpy(), [[4, 5, 6, 7]] * 3)


def test_what_cannot_be_broadcast_is_refused(sim):
    array = al.zeros((3, 4))
    with pytest.raises(ValueError, match=r"\(3,\) cannot be broadcast to \(3, 4\)"):
        array[:] = np.arange(3)


# NumPy


def test_numpy_sees_an_array_of_the_host_and_gets_a_copy_of_others(sim):
    host, device = al.zeros(4, device="cpu"), al.zeros(4, device="cuda:0")
    host.numpy()[0] = 5
    device.numpy()[0] = 5
    assert host.numpy()[0] == 5
    assert device.numpy()[0] == 0


def test_a_numpy_view_keeps_host_memory_alive(sim):
    view = al.full(1000, 3.0, device="cpu").numpy()
    gc.collect()
    assert (view == 3).all()
    assert balance() == (8000, 1)
    del view
    assert balance() == (0, 0)
