"""Array interfaces and DLPack, with NumPy and small producers and consumers of our own."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import allotment as al
from allotment import platform as platforms
from allotment.interchange import is_foreign_array
from allotment.platform.host import HostPlatform

PLACES = [("cpu", "host"), ("cpu", "pinned"), ("cuda:1", "default"), ("cuda:1", "mempool"), ("cuda:1", "managed")]
DTYPES = ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16"]


class Producer:
    """An object with the CUDA array interface alone."""

    def __init__(self, array, **changed):
        self.array = array
        self.__cuda_array_interface__ = {**array.__cuda_array_interface__, **changed}


class OldProducer:
    """A DLPack producer of before version 1.0."""

    def __init__(self, array):
        self.array, self.streams = array, []

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, stream=None):
        self.streams.append(stream)
        return self.array.__dlpack__(stream=stream)


@pytest.fixture(autouse=True)
def sim():
    with al.simulate("2xh200") as platform:
        yield platform


def place(values, where):
    device, allocator = where
    with al.ScopedAllocator(device, allocator):
        return al.array(values, device=device)


def live():
    return sum(account.statistics().live for device in al.get_devices() for account in device.accounts.values())


# The CUDA array interface, out


@pytest.mark.parametrize("shape", [4, (2, 3), (), (1, 3, 1)])
def test_a_contiguous_array_is_exported_without_strides(shape):
    array = al.zeros(shape, "f4", "cuda:0")
    assert array.__cuda_array_interface__ == {
        "shape": array.shape,
        "typestr": "<f4",
        "data": (array.ptr, False),
        "strides": None,
        "version": 3,
        "stream": 1,
    }
    assert type(array.__cuda_array_interface__["data"][0]) is int


def test_strides_are_exported_in_bytes_from_the_first_element():
    array = al.zeros((4, 6), "f4", "cuda:0")
    assert array.T.__cuda_array_interface__["strides"] == (4, 24)
    view = array[::-2, 1:]
    assert view.__cuda_array_interface__["strides"] == (-48, 4)
    assert view.__cuda_array_interface__["data"] == (array.ptr + 3 * 24 + 4, False)
    assert array[:, :1][:1].__cuda_array_interface__["strides"] is None


@pytest.mark.parametrize("view", [lambda a: a[2:2], lambda a: a[:, 5:], lambda a: al.zeros((3, 0), device=a.device)])
def test_an_empty_array_is_exported_with_the_null_pointer(view):
    array = view(al.zeros((3, 4), device="cuda:0"))
    assert array.__cuda_array_interface__["data"] == (0, False)
    assert array.__cuda_array_interface__["strides"] is None


def test_the_stream_in_force_is_exported_and_never_as_zero():
    array = al.zeros(4, device="cuda:0")
    assert array.__cuda_array_interface__["stream"] == 1
    with al.ScopedStream(al.Stream("cuda:0")) as stream:
        assert array.__cuda_array_interface__["stream"] == stream.handle


def test_fields_of_a_structure_are_exported():
    array = al.zeros(2, [("a", "u1"), ("b", "<f4")], "cuda:0")
    assert array.__cuda_array_interface__["typestr"] == "|V5"
    assert array.__cuda_array_interface__["descr"] == [("a", "|u1"), ("b", "<f4")]


def test_fields_that_overlap_are_exported_as_bytes():
    overlapping = np.dtype({"names": ["a", "b"], "formats": ["<u4", "<u2"], "offsets": [0, 0]})
    interface = al.zeros(2, overlapping, "cuda:0").__cuda_array_interface__
    assert interface["typestr"] == "|V4"
    assert "descr" not in interface


def test_each_interface_is_there_where_its_memory_is():
    host, device = al.zeros(1, device="cpu"), al.zeros(1, device="cuda:0")
    assert hasattr(host, "__array_interface__")
    assert not hasattr(host, "__cuda_array_interface__")
    assert hasattr(device, "__cuda_array_interface__")
    assert not hasattr(device, "__array_interface__")


# The CUDA array interface, in


@pytest.mark.parametrize("form", ["none", "absent", "explicit"])
def test_all_ways_to_say_contiguous_are_the_same(form):
    array = al.array(np.arange(6.0).reshape(2, 3), device="cuda:0")
    producer = Producer(array)
    if form == "absent":
        del producer.__cuda_array_interface__["strides"]
    elif form == "explicit":
        producer.__cuda_array_interface__["strides"] = (24, 8)
    shared = al.asarray(producer)
    assert (shared.ptr, shared.shape, shared.strides, shared.is_contiguous) == (array.ptr, (2, 3), (24, 8), True)
    np.testing.assert_array_equal(shared.numpy(), array.numpy())


@pytest.mark.parametrize("view", [lambda a: a.T, lambda a: a[::-1], lambda a: a[:, ::2]])
def test_strided_memory_is_shared_as_it_is(view):
    array = view(al.array(np.arange(24.0).reshape(4, 6), device="cuda:1"))
    shared = al.asarray(Producer(array))
    assert (shared.ptr, shared.strides, shared.device) == (array.ptr, array.strides, array.device)
    np.testing.assert_array_equal(shared.numpy(), array.numpy())


@pytest.mark.parametrize(
    ("allocator", "kind"), [("default", "CUDA_DEVICE"), ("mempool", "CUDA_MEMPOOL"), ("managed", "CUDA_MANAGED")]
)
def test_shared_memory_is_of_its_own_device_and_kind_whatever_is_current(allocator, kind):
    array = place(np.zeros(4), ("cuda:1", allocator))
    with al.ScopedDevice("cuda:0"):
        shared = al.asarray(Producer(array))
    assert (shared.device, shared.memory_kind.name, shared.allocator) == (array.device, kind, None)


def test_shared_memory_keeps_its_owner_alive():
    producer = Producer(al.ones(4, device="cuda:0"))
    gone = weakref.ref(producer)
    shared = al.asarray(producer)
    assert shared.owner is producer
    view = shared[1:]
    del producer, shared
    gc.collect()
    assert view.numpy().tolist() == [1, 1, 1]
    del view
    gc.collect()
    assert gone() is None
    assert live() == 0


def test_memory_that_is_shared_to_be_read_is_readonly():
    array = al.zeros(4, device="cuda:0")
    shared = al.asarray(Producer(array, data=(array.ptr, True)))
    with pytest.raises(ValueError, match="read-only"):
        shared.fill_(1)
    assert shared.__cuda_array_interface__["data"] == (array.ptr, True)


@pytest.mark.parametrize("null", [0, None])
def test_null_without_elements_is_an_empty_array_of_the_current_device(null):
    array = al.zeros(4, device="cuda:0")
    with al.ScopedDevice("cuda:1"):
        shared = al.asarray(Producer(array, data=(null, False), shape=(0, 3)))
    assert (shared.ptr, shared.shape, shared.device.alias) == (0, (0, 3), "cuda:1")


@pytest.mark.parametrize("null", [0, None])
def test_null_with_elements_is_refused(null):
    with pytest.raises(ValueError, match="32 bytes cannot be at address 0"):
        al.asarray(Producer(al.zeros(4, device="cuda:0"), data=(null, False)))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"mask": object()}, "masked arrays"),
        ({"strides": (12,)}, r"strides \(12,\) are not multiples of the 8 bytes"),
        ({"strides": (8, 8)}, "2 strides do not fit 1 dimensions"),
        ({"stream": 0}, "not 0"),
        ({"stream": "1"}, "not '1'"),
    ],
)
def test_what_the_interface_cannot_mean_is_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        al.asarray(Producer(al.zeros(4, device="cuda:0"), **changed))


def test_a_structure_with_gaps_is_shared_with_its_own_type():
    structure = np.dtype([("a", "u1"), ("b", "<f8")], align=True)
    array = al.ones(3, structure, "cuda:0")
    assert al.asarray(Producer(array)).dtype == structure


def test_numpys_narrow_integers_in_an_interface_do_not_wrap():
    array = al.zeros((3, 4), "f8", "cuda:0")
    shape, strides = np.array(array.shape, np.int32), np.array(array.strides, np.int32)
    shared = al.asarray(Producer(array, shape=tuple(shape), strides=tuple(strides)))
    assert shared[2, 1].ptr == array.ptr + 2 * 32 + 8
    assert array.ptr > 2**32


def test_work_waits_for_the_producers_stream(sim):
    producer, array = al.Stream("cuda:0", non_blocking=True), al.zeros(1000, device="cuda:0")
    al.synchronize()
    with sim.delayed(producer.handle, 0):
        with al.ScopedStream(producer):
            array.fill_(7)
            exported = Producer(array)
        shared = al.asarray(exported)
        copied = shared.copy()
    assert (copied.numpy() == 7).all()


@pytest.mark.parametrize("changed", [{"stream": None}, {"stream": 1}])
def test_nothing_waits_for_no_stream_or_for_the_one_in_force(sim, changed):
    exported = Producer(al.zeros(4, device="cuda:0"), **changed)
    sim.calls.clear()
    al.asarray(exported)
    assert not sim.calls.named("wait_for_stream", "synchronize_stream")


def test_dlpack_is_preferred_to_an_interface_without_a_stream():
    class Both(OldProducer):
        @property
        def __cuda_array_interface__(self):
            interface = {**self.array.__cuda_array_interface__, "version": 2}
            del interface["stream"]
            return interface

    producer = Both(al.zeros(4, device="cuda:0"))
    assert al.asarray(producer).ptr == producer.array.ptr
    assert producer.streams == [1]


@pytest.mark.parametrize("source", [3, "abc", [1, 2], None, object()])
def test_what_shares_no_memory_is_a_type_error(source):
    with pytest.raises(TypeError, match="shares no memory"):
        al.asarray(source)


def test_an_array_is_shared_as_itself():
    array = al.zeros(4)
    assert al.asarray(array) is array


def test_numpys_own_arrays_are_not_foreign():
    assert not is_foreign_array(np.zeros(3))
    assert not is_foreign_array(np.float32(3))
    assert is_foreign_array(al.zeros(3))


def test_a_cuda_producer_on_a_machine_without_cuda_is_told_so():
    producer = Producer(al.zeros(4, device="cuda:0"))
    token = platforms.use(HostPlatform("a test says so"))
    try:
        with pytest.raises(al.DeviceNotFoundError, match="no device 'cuda' on platform 'host'"):
            al.asarray(producer)
    finally:
        platforms.reset(token)


# NumPy


@pytest.mark.parametrize("read", [np.asarray, np.array, lambda a: np.asarray(a, "f4"), np.sum])
def test_memory_of_a_device_does_not_become_a_numpy_array_unasked(read):
    with pytest.raises(TypeError, match=r"'cuda:0' .* use .numpy\(\) to copy it"):
        read(al.zeros(4, device="cuda:0"))


def test_numpy_shares_memory_of_the_host_and_keeps_it_alive():
    array = al.zeros(4, device="cpu")
    shared = np.asarray(array)
    array.fill_(7)
    del array
    gc.collect()
    assert shared.tolist() == [7] * 4
    assert live() == 1
    del shared
    assert live() == 0


@pytest.mark.parametrize(
    "dtype",
    [
        *DTYPES,
        "M8[s]",
        "U3",
        ">i4",
        [("a", "u1"), ("b", "f4")],
        np.dtype([("a", "u1"), ("b", "f8")], align=True),
        np.dtype({"names": ["a", "b"], "formats": ["<u4", "<u2"], "offsets": [0, 0]}),
    ],
    ids=str,
)
@pytest.mark.parametrize("view", [lambda a: a, lambda a: a[::-2], lambda a: a[:0]])
def test_numpy_sees_every_type_as_it_is(dtype, view):
    array = view(al.ones(5, dtype, "cpu"))
    for seen in (np.asarray(array), array.numpy()):
        assert (seen.dtype, seen.shape) == (np.dtype(dtype), array.shape)
        np.testing.assert_array_equal(seen, np.array([1] * 5).astype(dtype)[: len(seen)])


@pytest.mark.parametrize(
    "view", [lambda a: a, lambda a: a.T, lambda a: a[::-1, 1:], lambda a: a[2:2], lambda a: a[1, 1, ...]]
)
def test_memory_of_numpy_is_shared_and_kept_alive(view):
    source = view(np.arange(12.0).reshape(3, 4))
    array = al.from_numpy(source)
    assert (array.shape, array.device.alias, array.memory_kind) == (source.shape, "cpu", al.MemoryKind.HOST)
    if source.size:
        assert (array.ptr, array.strides) == (source.__array_interface__["data"][0], source.strides)
        source[...] = 5
    np.testing.assert_array_equal(array.numpy(), source)
    assert array.owner is source


def test_readonly_memory_of_numpy_stays_readonly_on_the_way_and_back():
    source = np.arange(3)
    source.flags.writeable = False
    assert not al.from_numpy(source).numpy().flags.writeable
    assert not np.asarray(al.from_numpy(source)).flags.writeable


@pytest.mark.parametrize("dtype", ["O", "V0", [("a", "O")]])
def test_numpy_arrays_without_bytes_of_their_own_are_refused(dtype):
    with pytest.raises(TypeError, match="dtype"):
        al.from_numpy(np.empty(2, dtype))


def test_page_locked_memory_is_known_again_after_a_trip_through_numpy():
    assert al.from_numpy(al.zeros(4, device="cpu", pinned=True).numpy()).pinned


# DLPack


@pytest.mark.parametrize(
    ("where", "kind"), list(zip(PLACES, [(1, 0), (3, 0), (2, 1), (2, 1), (13, 1)], strict=True)), ids=str
)
def test_the_dlpack_device_is_that_of_the_memory_whatever_is_current(where, kind):
    array = place(np.zeros(4), where)
    with al.ScopedDevice("cuda:0"):
        assert array.__dlpack_device__() == kind
        assert array[1:].__dlpack_device__() == kind
        assert al.from_dlpack(array).__dlpack_device__() == kind


@pytest.mark.parametrize("where", PLACES, ids="-".join)
@pytest.mark.parametrize(
    "view", [lambda a: a, lambda a: a.T, lambda a: a[::-1, ::2], lambda a: a[1, 1], lambda a: a[:, 4:]]
)
@pytest.mark.parametrize("old", [False, True])
def test_dlpack_shares_memory_of_any_place_and_layout(where, view, old):
    array = view(place(np.arange(12.0).reshape(3, 4), where))
    shared = al.from_dlpack(OldProducer(array) if old else array)
    assert (shared.ptr, shared.shape, shared.dtype, shared.device) == (
        array.ptr,
        array.shape,
        array.dtype,
        array.device,
    )
    assert shared.memory_kind is array.memory_kind or not array.size
    assert not array.size or shared.strides == array.strides
    np.testing.assert_array_equal(shared.numpy(), array.numpy())
    shared.fill_(5)
    assert (array.numpy() == 5).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_dlpack_carries_every_type_that_it_has(dtype, device):
    array = al.ones(3, dtype, device)
    assert al.from_dlpack(array).dtype == array.dtype
    np.testing.assert_array_equal(al.from_dlpack(array).numpy(), array.numpy())


@pytest.mark.parametrize("dtype", ["M8[s]", "U3", [("a", "u1")], ">i4"])
def test_types_that_dlpack_does_not_have_are_a_buffer_error(dtype):
    with pytest.raises(BufferError):
        al.zeros(3, dtype).__dlpack__()


def test_numpy_reads_memory_of_the_host_through_dlpack():
    array = al.zeros(4, device="cpu")
    shared = np.from_dlpack(array)
    array.fill_(7)
    del array
    gc.collect()
    assert shared.tolist() == [7] * 4
    assert live() == 1
    del shared
    assert live() == 0


def test_numpy_reads_page_locked_memory_through_dlpack():
    assert np.from_dlpack(al.ones(4, device="cpu", pinned=True)).tolist() == [1] * 4


def test_numpy_refuses_memory_of_a_device_in_its_own_words_and_nothing_leaks():
    array = al.zeros(4, device="cuda:0")
    with pytest.raises((BufferError, RuntimeError), match=r"[Uu]nsupported device"):
        np.from_dlpack(array)
    del array
    gc.collect()
    assert live() == 0


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="NumPy before 2.1 names no device")
def test_numpy_gets_a_copy_of_device_memory_when_it_asks_for_one_on_the_host(sim):
    array = al.zeros(1000, device="cuda:0")
    with sim.delayed(0, 0):
        array.fill_(7)
        copied = np.from_dlpack(array, device="cpu")
        assert (copied == 7).all()
    array.fill_(9)
    assert (copied == 7).all()


def test_memory_of_numpy_comes_in_through_dlpack():
    source = np.arange(6.0).reshape(2, 3).T
    array = al.from_dlpack(source)
    assert (array.ptr, array.strides, array.memory_kind) == (source.ctypes.data, source.strides, al.MemoryKind.HOST)
    source[:] = 5
    assert (array.numpy() == 5).all()


def test_readonly_memory_of_numpy_comes_in_readonly():
    source = np.arange(3)
    source.flags.writeable = False
    array = al.from_dlpack(source)
    assert array.readonly
    with pytest.raises(ValueError, match="read-only"):
        array.fill_(1)


def test_a_readonly_array_goes_out_only_to_who_can_know():
    source = np.arange(3)
    source.flags.writeable = False
    array = al.from_numpy(source)
    assert not np.from_dlpack(array).flags.writeable
    with pytest.raises(BufferError, match=r"[Rr]ead-?only"):
        array.__dlpack__()
    with pytest.raises(BufferError, match=r"[Rr]ead-?only"):
        array.__dlpack__(max_version=(0, 8))
    assert not al.from_dlpack(Capsule(array.__dlpack__(copy=True), array)).readonly


class Capsule:
    """Gives out one capsule."""

    def __init__(self, capsule, array):
        self.capsule, self.device = capsule, array.__dlpack_device__()

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **_):
        return self.capsule


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_a_capsule_is_consumed_once(version):
    producer = Capsule((array := al.ones(4)).__dlpack__(max_version=version), array)
    first = al.from_dlpack(producer)
    with pytest.raises(BufferError, match="consumed before"):
        al.from_dlpack(producer)
    assert first.numpy().tolist() == [1] * 4
    del first, array, producer
    gc.collect()
    assert live() == 0


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_a_capsule_that_nobody_consumes_lets_the_memory_go(version):
    array = al.ones(4)
    capsule = array.__dlpack__(max_version=version)
    del array
    gc.collect()
    assert live() == 1
    del capsule
    assert live() == 0


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_a_capsule_that_goes_while_an_exception_is_on_its_way_lets_the_memory_go(version):
    array = al.ones(4)
    with pytest.raises(ZeroDivisionError):
        [array.__dlpack__(max_version=version), 1 / 0]
    del array
    gc.collect()
    assert live() == 0


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_the_memory_goes_when_the_consumer_lets_go_and_not_before(sim, version):
    array = al.ones(1000, device="cuda:0")
    shared = al.from_dlpack(Capsule(array.__dlpack__(max_version=version), array))
    view = shared[::2]
    del array, shared
    gc.collect()
    assert live() == 1
    with sim.delayed(0, 0):
        copied = view.copy()
        del view
        gc.collect()
        al.full(1000, 9.0, device="cuda:0")
    assert (copied.numpy() == 1).all()
    del copied
    assert live() == 0


def test_an_allocator_outlives_the_consumer_of_its_memory(sim):
    class Recorder:
        def __init__(self):
            self.allocate, self.freed = sim.malloc, 0

        def deallocate(self, ptr, nbytes):
            self.freed += 1
            sim.free(ptr)

    allocator = Recorder()
    with al.ScopedAllocator("cuda:0", allocator):
        array = al.ones(4, device="cuda:0")
    shared = al.from_dlpack(array)
    gone = weakref.ref(allocator)
    del array, allocator
    gc.collect()
    assert shared.numpy().tolist() == [1] * 4
    assert gone().freed == 0
    del shared
    gc.collect()
    assert gone() is None


def test_exporting_changes_nothing_of_the_array():
    array = al.zeros((2, 3), device="cuda:0")
    before = (array.ptr, array.shape, array.strides, array.owner, array.device)
    al.from_dlpack(array)
    assert (array.ptr, array.shape, array.strides, array.owner, array.device) == before


def test_an_older_producer_is_asked_again_without_a_version():
    producer = OldProducer(al.ones(4, device="cuda:1"))
    assert al.from_dlpack(producer).ptr == producer.array.ptr
    assert producer.streams == [1]


@pytest.mark.parametrize("source", [3, object(), Producer])
def test_what_has_no_dlpack_is_a_type_error(source):
    with pytest.raises(TypeError, match="has no __dlpack__"):
        al.from_dlpack(source)


@pytest.mark.parametrize("kind", [4, 7, 10, 14])
def test_memory_of_other_hardware_is_not_supported(kind):
    producer = Capsule(None, al.zeros(1))
    producer.device = (kind, 0)
    with pytest.raises(al.UnsupportedError, match=f"DLPack device type {kind}"):
        al.from_dlpack(producer)


def test_memory_of_a_device_that_is_not_there_names_those_that_are():
    producer = Capsule(None, al.zeros(1))
    producer.device = (2, 5)
    with pytest.raises(al.DeviceNotFoundError, match="'cuda:5'"):
        al.from_dlpack(producer)


# The device that a consumer wants


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        (("cuda:1", "managed"), (2, 1)),
        (("cuda:1", "managed"), (13, 1)),
        (("cuda:1", "mempool"), (2, 1)),
        (("cpu", "pinned"), (1, 0)),
        (("cpu", "host"), (1, 0)),
    ],
    ids=str,
)
def test_memory_is_presented_as_the_consumer_wants_it(where, wanted):
    array = place(np.arange(4.0), where)
    producer = Capsule(array.__dlpack__(dl_device=wanted), array)
    producer.device = wanted
    assert al.from_dlpack(producer).ptr == array.ptr


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        (("cuda:1", "managed"), (2, 0)),
        (("cuda:1", "mempool"), (13, 1)),
        (("cuda:1", "mempool"), (2, 0)),
        (("cpu", "host"), (2, 0)),
        (("cpu", "host"), (3, 0)),
    ],
    ids=str,
)
def test_memory_that_is_not_where_the_consumer_wants_it_is_a_buffer_error(where, wanted):
    with pytest.raises(BufferError, match="cannot be exported as"):
        place(np.zeros(4), where).__dlpack__(dl_device=wanted)


def test_a_copy_for_the_host_is_refused_where_copies_are():
    with pytest.raises(BufferError, match="cannot be exported as"):
        al.zeros(4, device="cuda:0").__dlpack__(dl_device=(1, 0), copy=False)


def test_a_copy_is_exported_when_one_is_asked_for():
    array = al.zeros(4, device="cuda:0")
    shared = al.from_dlpack(Capsule(array.__dlpack__(copy=True, max_version=(1, 0)), array))
    array.fill_(7)
    assert shared.ptr != array.ptr
    assert shared.numpy().tolist() == [0] * 4


# The stream of a consumer


@pytest.mark.parametrize(("named", "handle"), [(None, 0), (1, 0), (2, 2)])
def test_the_consumers_stream_waits_for_the_stream_in_force(sim, named, handle):
    array = al.zeros(4, device="cuda:1")
    with al.ScopedStream(al.Stream("cuda:1")) as stream:
        sim.calls.clear()
        array.__dlpack__(stream=named)
    assert [(call.arguments["waiting"], call.arguments["awaited"]) for call in sim.calls.named("wait_for_stream")] == [
        (handle, stream.handle)
    ]


def test_the_consumer_waits_for_delayed_work_of_the_producer(sim):
    consumer, array = al.Stream("cuda:0", non_blocking=True), al.zeros(1000, device="cuda:0")
    copied = al.empty(1000, device="cuda:0")
    al.synchronize()
    with sim.delayed(0, 0):
        array.fill_(7)
        capsule = Capsule(array.__dlpack__(stream=consumer.handle), array)
        with al.ScopedStream(consumer, sync_enter=False):
            al.copy(copied, al.from_dlpack(capsule))
    consumer.synchronize()
    assert (copied.numpy() == 7).all()


def test_a_consumer_that_wants_no_waiting_gets_none(sim):
    array = al.zeros(4, device="cuda:0")
    with al.ScopedStream(al.Stream("cuda:0")):
        sim.calls.clear()
        array.__dlpack__(stream=-1)
    assert not sim.calls.named("wait_for_stream", "synchronize_stream")


@pytest.mark.parametrize("stream", [0, -2, True, "1", 1.0])
def test_a_stream_that_means_nothing_is_refused(stream):
    with pytest.raises(ValueError, match="a DLPack stream is"):
        al.zeros(4, device="cuda:0").__dlpack__(stream=stream)


def test_a_stream_for_memory_of_the_host_is_refused():
    with pytest.raises(ValueError, match="exported without a stream"):
        al.zeros(4, device="cpu").__dlpack__(stream=1)


def test_managed_memory_for_a_consumer_without_a_stream_is_complete(sim):
    array = place(np.zeros(1000), ("cuda:0", "managed"))
    with sim.delayed(0, 0):
        array.fill_(7)
        assert (np.from_dlpack(array) == 7).all()


def test_a_producer_is_told_the_stream_in_force():
    producer = OldProducer(al.zeros(4, device="cuda:0"))
    with al.ScopedStream(al.Stream("cuda:0")) as stream:
        al.from_dlpack(producer)
    al.from_dlpack(OldProducer(al.zeros(4, device="cpu")))
    assert producer.streams == [stream.handle]
