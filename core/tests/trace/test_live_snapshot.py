import pickle

import pytest

import allotment as al
from allotment.trace import EventKind, read

MIB = 2**20


@pytest.fixture
def tracked():
    with al.simulate("2xh200"):
        al.configure(layers=["track"])
        yield


@pytest.fixture
def snapshot_of(tmp_path):
    """Return what takes a snapshot and gives what is in it."""

    def take(**which):
        al.memory_snapshot(tmp_path / "now.pickle", **which)
        return pickle.loads((tmp_path / "now.pickle").read_bytes())

    return take


def test_each_live_block_is_an_allocation_in_the_order_in_which_they_were_made(tracked, tmp_path):
    with al.label("weights"):
        first = al.empty(5000, "uint8", "cuda:1")
    second = al.empty(7000, "uint8", "cuda:1")
    al.empty(9000, "uint8", "cuda:1")
    al.memory_snapshot(tmp_path / "now.pickle")
    events = list(read(tmp_path / "now.pickle"))

    assert [(event.kind, event.size, event.label) for event in events] == [
        (EventKind.ALLOCATE, first.nbytes, "weights"),
        (EventKind.ALLOCATE, second.nbytes, None),
    ]
    assert {(event.source.device, event.source.allocator) for event in events} == {("cuda:1", "mempool")}
    assert events[0].site.frames[0].file == __file__


def test_blocks_have_their_own_addresses_and_lie_in_segments_without_gaps(tracked, snapshot_of):
    arrays = [al.empty(nbytes, "uint8", "cuda:0") for nbytes in (1000, 100, 600)]
    snapshot = snapshot_of()
    (segment,) = snapshot["segments"]
    live = [block for block in segment["blocks"] if block["state"] == "active_allocated"]

    assert sorted(block["address"] for block in live) == sorted(array.ptr for array in arrays)
    assert segment["total_size"] == sum(block["size"] for block in segment["blocks"])
    assert segment["requested_size"] == segment["active_size"] == 1700
    ends = [block["address"] + block["size"] for block in segment["blocks"]]
    assert [block["address"] for block in segment["blocks"]] == [segment["address"], *ends[:-1]]


def test_blocks_that_are_far_apart_lie_in_segments_of_their_own(tracked, snapshot_of):
    first, between, last = [al.empty(2 * MIB, "uint8", "cuda:0") for _ in range(3)]
    del between

    assert sorted(segment["address"] for segment in snapshot_of()["segments"]) == sorted([first.ptr, last.ptr])


def test_one_device_or_allocator_can_be_asked_for(tracked, snapshot_of):
    kept = al.empty(10, "uint8", "cuda:0"), al.empty(20, "uint8", "cuda:1")
    snapshot = snapshot_of(device="cuda:1")

    assert kept
    assert [len(trace) for trace in snapshot["device_traces"]] == [0, 2]
    assert [segment["device"] for segment in snapshot["segments"]] == [1]
    assert snapshot_of(device="cuda:0", allocator="mempool")["device_traces"][0][0]["size"] == 10


def test_without_live_blocks_it_is_empty(tracked, snapshot_of):
    al.empty(10, "uint8", "cuda:0")

    assert snapshot_of()["segments"] == []


def test_it_is_refused_where_no_allocator_is_tracked(tmp_path):
    with al.simulate("2xh200"):
        kept = al.empty(10, "uint8", "cuda:0")
        with pytest.raises(al.UnsupportedError, match="no allocator has the layer 'track'"):
            al.memory_snapshot(tmp_path / "now.pickle")

    assert kept
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_named(tracked, tmp_path):
    kept = al.empty(10, "uint8", "cuda:0")
    with pytest.raises(al.TraceError, match=r"none/now\.pickle: it cannot be written"):
        al.memory_snapshot(tmp_path / "none" / "now.pickle")

    assert kept
