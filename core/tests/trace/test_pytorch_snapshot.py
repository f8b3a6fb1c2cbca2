import pickle
import pickletools
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allotment.errors import TraceError
from allotment.layers.call_site import Frame
from allotment.trace import (
    EventKind,
    TraceEvent,
    TraceSite,
    TraceSource,
    read,
    shipped_trace,
    write_pytorch_snapshot,
)

A, F, H, OOM = EventKind.ALLOCATE, EventKind.FREE, EventKind.HELD, EventKind.OUT_OF_MEMORY
GPU, OTHER, HOST = TraceSource("cuda:0", "caching"), TraceSource("cuda:2", "mempool"), TraceSource("cpu", "pinned")
SITE = TraceSite((Frame("train.py", 12, "step"), Frame("train.py", 30, "<module>")), "cupy")
OPCODES = {
    *("APPEND", "APPENDS", "BINFLOAT", "BINGET", "BININT", "BININT1", "BININT2", "BINPUT", "BINUNICODE", "DICT"),
    *("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "FRAME", "LIST", "LONG1", "LONG_BINGET", "LONG_BINPUT", "MARK"),
    *("MEMOIZE", "NEWFALSE", "NEWTRUE", "NONE", "PROTO", "SETITEM", "SETITEMS", "SHORT_BINUNICODE", "STOP"),
    *("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
}
"""What the unpickler of PyTorch's viewer knows."""


@pytest.fixture
def written(tmp_path):
    """Return what writes events and gives the snapshot back as Python's own unpickler reads it."""

    def write(events):
        path = tmp_path / "snapshot.pickle"
        write_pytorch_snapshot(events, path)
        return pickle.loads(path.read_bytes())

    return write


@pytest.fixture
def round_trip(tmp_path):
    def write_and_read(events):
        path = tmp_path / "snapshot.pickle"
        write_pytorch_snapshot(events, path)
        return list(read(path))

    return write_and_read


@st.composite
def traces(draw):
    """Return a valid trace of up to 40 events."""
    events, live = [], {}
    for number in range(draw(st.integers(0, 40))):
        stream, source = draw(st.integers(0, 2)), draw(st.sampled_from([GPU, OTHER, HOST]))
        if live and draw(st.booleans()):
            events.append(live.pop(draw(st.sampled_from(sorted(live)))))
        else:
            size, label = draw(st.integers(0, 5000)), draw(st.sampled_from([None, "step", "a/b"]))
            site = draw(st.sampled_from([None, SITE]))
            events.append(TraceEvent(A, number, size, stream, number * 1000, source, label, site))
            live[number] = TraceEvent(F, number, size, stream, number * 1000, source)
    return sorted_times(events)


def sorted_times(events):
    return [
        TraceEvent(e.kind, e.id, e.size, e.stream, place * 1000, e.source, e.label, e.site)
        for place, e in enumerate(events)
    ]


def placed(snapshot, device):
    """Yield the live blocks of a device after each event as the viewer follows them, from the end backwards."""
    live = {}
    for segment in snapshot["segments"]:
        if segment["device"] == device:
            live |= {b["address"]: b["size"] for b in segment["blocks"] if b["state"] == "active_allocated"}
    for entry in reversed(snapshot["device_traces"][device]):
        yield dict(live)
        if entry["action"] == "free_completed":
            live[entry["addr"]] = entry["size"]
        elif entry["action"] == "alloc":
            del live[entry["addr"]]
    yield dict(live)


# ---------------------------------------------------------------------------------------------------------------------
# What the viewer needs


def test_the_pickle_has_only_what_the_unpickler_of_the_viewer_knows(tmp_path):
    path = tmp_path / "snapshot.pickle"
    write_pytorch_snapshot(read(shipped_trace()), path)

    assert {opcode.name for opcode, _, _ in pickletools.genops(path.read_bytes())} <= OPCODES


def test_an_entry_has_the_keys_that_pytorch_writes(written):
    snapshot = written([TraceEvent(A, 0, 100, 0, 5000, GPU, "step", SITE), TraceEvent(F, 0, 100, 0, 7000, GPU)])
    allocation, *frees, end = snapshot["device_traces"][0]

    assert allocation["action"] == "alloc"
    assert (allocation["size"], allocation["stream"], allocation["time_us"]) == (100, 0, 5)
    assert allocation["frames"][0] == {"name": "step", "filename": "train.py", "line": 12}
    assert (allocation["category"], allocation["user_metadata"]) == ("step", "step")
    assert [entry["action"] for entry in frees] == ["free_requested", "free_completed"]
    assert {entry["addr"] for entry in frees} == {allocation["addr"]}
    assert end["action"] == "snapshot"


def test_a_segment_has_the_keys_that_pytorch_writes_and_its_blocks_leave_no_gap(written):
    snapshot = written([TraceEvent(A, 0, 100), TraceEvent(A, 1, 700), TraceEvent(F, 0, 100)])
    (segment,) = snapshot["segments"]

    assert segment.keys() == {
        *("device", "address", "total_size", "allocated_size", "active_size", "requested_size", "stream"),
        *("segment_type", "segment_pool_id", "is_expandable", "frames", "blocks"),
    }
    assert [(block["state"], block["size"], block["requested_size"]) for block in segment["blocks"]] == [
        ("inactive", 512, 0),
        ("active_allocated", 1024, 700),
    ]
    assert (segment["total_size"], segment["allocated_size"], segment["requested_size"]) == (1536, 1024, 700)


def test_an_out_of_memory_event_has_the_free_memory_that_the_viewer_prints(written):
    snapshot = written([TraceEvent(OOM, -1, 4096, source=GPU)])
    event = snapshot["device_traces"][0][0]

    assert (event["action"], event["size"], event["device_free"]) == ("oom", 4096, 0)
    assert "addr" not in event


def test_there_are_no_categories_without_labels_and_an_unknown_one_with_them(written):
    def categories(label):
        events = [TraceEvent(A, 0, 1, label=label), TraceEvent(F, 0, 1)]
        return {entry.get("category") for entry in written(events)["device_traces"][0]}

    assert categories(None) == {None}
    assert categories("step") == {"step", "unknown"}


def test_cuda_devices_keep_their_number_and_others_come_after_them(written):
    snapshot = written([TraceEvent(A, 0, 1, source=HOST), TraceEvent(A, 1, 1, source=OTHER)])

    assert snapshot["devices"] == ["cuda:0", "cuda:1", "cuda:2", "cpu"]
    assert [len(trace) for trace in snapshot["device_traces"]] == [0, 0, 2, 2]
    assert [segment["device"] for segment in snapshot["segments"]] == [3, 2]


@settings(max_examples=40)
@given(events=traces())
def test_at_every_moment_each_block_lies_in_a_segment_and_beside_the_others(events, tmp_path_factory):
    path = tmp_path_factory.mktemp("snapshot") / "snapshot.pickle"
    write_pytorch_snapshot(events, path)
    snapshot = pickle.loads(path.read_bytes())
    ends = [(each["address"], each["address"] + each["total_size"]) for each in snapshot["segments"]]

    assert all(here[1] <= there[0] for here, there in pairwise(sorted(ends)))
    for segment in snapshot["segments"]:
        assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
    for device in range(len(snapshot["device_traces"])):
        for live in placed(snapshot, device):
            blocks = sorted(live.items())
            assert all(any(low <= at and at + size <= high for low, high in ends) for at, size in blocks)
            assert all(at + size <= there for (at, size), (there, _) in pairwise(blocks))


# ---------------------------------------------------------------------------------------------------------------------
# What is read back


@settings(max_examples=40)
@given(events=traces())
def test_what_is_written_is_read_back(events, tmp_path_factory):
    path = tmp_path_factory.mktemp("snapshot") / "snapshot.pickle"
    write_pytorch_snapshot(events, path)
    numbers, streams = {}, {0: 0}
    expected = []
    for event in events:
        if event.kind is A:
            numbers[event.id] = len(numbers)
        stream = streams.setdefault(event.stream, len(streams))
        expected.append((event.kind, numbers[event.id], event.size, stream, event.source, event.label, event.site))

    assert [(e.kind, e.id, e.size, e.stream, e.source, e.label, e.site) for e in read(path)] == expected


def test_times_are_read_back_in_microseconds(round_trip):
    events = [TraceEvent(A, 0, 1, time=1000), TraceEvent(F, 0, 1, time=2999)]

    assert [event.time for event in round_trip(events)] == [0, 1000]


def test_held_blocks_and_failed_requests_are_read_back(round_trip):
    events = [TraceEvent(H, 0, 8, 0, 0, GPU, "weights", SITE), TraceEvent(OOM, -1, 99, 0, 0, GPU, "step", SITE)]

    assert round_trip(events) == events


def test_the_shipped_trace_is_read_back(round_trip):
    events = list(read(shipped_trace()))
    found = round_trip(events)

    assert [(event.kind, event.size) for event in found] == [(event.kind, event.size) for event in events]


def test_an_empty_trace_is_an_empty_snapshot(written, round_trip):
    assert written([])["device_traces"] == []
    assert round_trip([]) == []


def test_an_event_that_cannot_follow_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(TraceError, match="event 1: allocation 0 is freed"):
        write_pytorch_snapshot([TraceEvent(F, 0, 1)], tmp_path / "snapshot.pickle")

    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(TraceError, match=r"none/s\.pickle: it cannot be written: No such file"):
        write_pytorch_snapshot([], tmp_path / "none" / "s.pickle")
