import gzip
import pickle

import pytest

from allotment.errors import TraceError
from allotment.layers.call_site import Frame
from allotment.trace import EventKind, TraceEvent, TraceSite, TraceSource, read

A, F, H, OOM = EventKind.ALLOCATE, EventKind.FREE, EventKind.HELD, EventKind.OUT_OF_MEMORY
START = 1_700_000_000_000_000
GPU = TraceSource("cuda:0", "PyTorch")
TORCH = TraceSite((), "torch")


def entry(action, addr=0x7F0000000000, size=512, *, after=0, **more):
    place = {"device_free": addr} if action == "oom" else {"addr": addr}
    return {"action": action, **place, "size": size, "stream": 0, "time_us": START + after, **more}


def freed(addr=0x7F0000000000, size=512, after=0):
    return [entry("free_requested", addr, size, after=after), entry("free_completed", addr, size, after=after)]


def segment(*blocks, address=0x7F0000000000, device=0, stream=0):
    size = sum(block["size"] for block in blocks)
    return {"device": device, "address": address, "total_size": size, "stream": stream, "blocks": list(blocks)}


def block(size, state="active_allocated", **more):
    return {"size": size, "requested_size": size - 12, "state": state, **more}


def snapshot(*traces, segments=()):
    return {"device_traces": list(traces), "segments": list(segments), "allocator_settings": {}}


@pytest.fixture
def events_of(events_and_problems):
    def read_snapshot(document):
        events, problems = events_and_problems(pickle.dumps(document, 2), "snapshot.pickle")
        assert problems == []
        return events

    return read_snapshot


def test_an_allocation_and_its_free_become_two_events(events_of):
    events = events_of(snapshot([entry("alloc", after=5), *freed(after=9)]))

    assert events == [
        TraceEvent(A, 0, 512, 0, 0, GPU, None, TORCH),
        TraceEvent(F, 0, 512, 0, 4_000, GPU, None, TORCH),
    ]


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_every_binary_form_of_a_pickle_is_recognised(events_and_problems, protocol):
    events, problems = events_and_problems(pickle.dumps(snapshot([entry("alloc")]), protocol))

    assert (len(events), problems) == (1, [])


def test_a_compressed_snapshot_is_read(events_and_problems):
    events, _ = events_and_problems(gzip.compress(pickle.dumps(snapshot([entry("alloc")]))))

    assert len(events) == 1


def test_the_events_of_segments_and_actions_of_later_releases_are_left_out(events_of):
    actions = ["segment_alloc", "segment_map", "segment_unmap", "segment_free", "snapshot", "annotate"]

    assert events_of(snapshot([entry(action) for action in actions])) == []


def test_an_out_of_memory_event_is_a_request_that_was_not_met(events_of):
    events = events_of(snapshot([entry("oom", 12345, 1 << 40)]))

    assert events == [TraceEvent(OOM, -1, 1 << 40, 0, 0, GPU, None, TORCH)]


def test_a_block_that_is_freed_first_was_held_when_the_recording_began(events_of):
    events = events_of(snapshot([entry("alloc", 0x2000), *freed(0x1000, 64, after=3)]))

    assert [(event.kind, event.id, event.size, event.time) for event in events] == [
        (H, 0, 64, 0),
        (A, 1, 512, 0),
        (F, 0, 64, 3_000),
    ]


def test_a_block_that_is_there_at_the_end_and_was_never_allocated_was_held_too(events_of):
    frames = [{"filename": "model.py", "line": 3, "name": "load"}]
    held = segment(block(512, "inactive"), block(1024, frames=frames), block(2048, "active_pending_free"), stream=77)
    events = events_of(snapshot([], segments=[held]))

    assert events == [TraceEvent(H, 0, 1012, 1, None, GPU, None, TraceSite((Frame("model.py", 3, "load"),), "torch"))]


def test_a_block_that_was_allocated_and_is_there_at_the_end_is_one_block(events_of):
    events = events_of(snapshot([entry("alloc", 0x1000)], segments=[segment(block(512), address=0x1000)]))

    assert [event.kind for event in events] == [A]


def test_segments_without_events_are_what_is_held(events_of):
    events = events_of([segment(block(512), block(512), device=1)])

    assert [(event.kind, event.source.device) for event in events] == [(H, "cuda:1"), (H, "cuda:1")]


def test_a_completed_free_stands_for_a_free_where_requests_were_not_recorded(events_of):
    events = events_of(snapshot([entry("alloc"), entry("free_completed"), entry("alloc")]))

    assert [event.kind for event in events] == [A, F, A]


def test_the_events_of_all_devices_come_in_the_order_of_time(events_of):
    first = [entry("alloc", 0x1000, after=0), entry("alloc", 0x2000, after=20)]
    second = [entry("alloc", 0x1000, after=10)]
    events = events_of(snapshot(first, second))

    assert [(event.source.device, event.time) for event in events] == [
        ("cuda:0", 0),
        ("cuda:1", 10_000),
        ("cuda:0", 20_000),
    ]


def test_a_snapshot_without_times_gives_events_without_times(events_of):
    bare = {"action": "alloc", "addr": 0x1000, "size": 8}

    assert events_of(snapshot([bare])) == [TraceEvent(A, 0, 8, 0, None, GPU, None, TORCH)]


def test_streams_get_small_numbers(events_of):
    entries = [entry("alloc", addr, stream=handle) for addr, handle in [(1, 0), (2, 94128), (3, 94256), (4, 94128)]]

    assert [event.stream for event in events_of(snapshot(entries))] == [0, 1, 2, 1]


@pytest.mark.parametrize(
    ("said", "label"),
    [
        ({"user_metadata": "step", "category": "activation", "compile_context": "0/0"}, "step"),
        ({"user_metadata": "", "category": "activation"}, "activation"),
        ({"category": "unknown", "compile_context": "0/0"}, "0/0"),
        ({"compile_context": "N/A"}, None),
        ({"user_metadata": 7}, None),
    ],
)
def test_what_the_program_said_of_a_block_is_its_label(events_of, said, label):
    assert events_of(snapshot([entry("alloc", **said)]))[0].label == label


def test_the_call_site_is_that_of_python_where_frames_of_c_are_there_too(events_of):
    frames = [
        {"filename": "??", "line": 0, "name": "c10::alloc"},
        {"filename": "train.py", "line": 12, "name": "step"},
        {"filename": "<stdin>", "line": 1, "name": "<module>"},
    ]
    native = frames[:1]
    events = events_of(snapshot([entry("alloc", 0x1, frames=frames), entry("alloc", 0x2, frames=native)]))

    assert events[0].site == TraceSite((Frame("train.py", 12, "step"), Frame("<stdin>", 1, "<module>")), "torch")
    assert events[1].site == TraceSite((Frame("??", 0, "c10::alloc"),), "torch")


# ---------------------------------------------------------------------------------------------------------------------
# Bad input


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ("nonsense", "event 1 of device 0: it is 'nonsense', and must be a dictionary"),
        (entry("alloc", size=-1), "event 1 of device 0: size is -1"),
        (entry("alloc", size=1.5), "size is 1.5"),
        (entry("alloc", size=True), "size is True"),
        (entry("alloc", addr=None), "addr is None"),
        (entry("alloc", stream="main"), "stream is 'main'"),
        (entry("alloc"), "one is live there"),
        (entry("oom", size=None), "size is None"),
    ],
)
def test_a_malformed_event_is_told_with_its_place_and_the_rest_is_read(events_and_problems, wrong, problem):
    content = pickle.dumps(snapshot([entry("alloc"), wrong, *freed()]))
    events, problems = events_and_problems(content)

    assert [event.kind for event in events] == [A, F]
    assert len(problems) == 1
    assert problem in problems[0].problem


def test_a_second_free_is_left_out_and_counted(events_and_problems):
    events, problems = events_and_problems(pickle.dumps(snapshot([entry("alloc"), *freed(), *freed()])))

    assert [event.kind for event in events] == [A, F]
    assert "1 free is of a block" in problems[0].problem


def test_frames_and_segments_that_make_no_sense_are_passed_over(events_of):
    wrong = [7, {"blocks": 7}, segment() | {"blocks": [{"size": "x"}]}, {"blocks": [None], "address": "x"}, segment()]
    entries = [entry("alloc", frames=7), entry("alloc", 0x2, frames=[7, {"line": "x"}])]

    assert len(events_of({"device_traces": [entries], "segments": wrong})) == 2


@pytest.mark.parametrize("document", [{}, {"a": 1}, 7, "text", {"device_traces": 7}, {"device_traces": [7]}])
def test_another_pickle_is_no_snapshot(tmp_path, document):
    path = tmp_path / "other.pickle"
    path.write_bytes(pickle.dumps(document))

    with pytest.raises(TraceError, match=r"other\.pickle: (it is a pickle, and no memory snapshot|its 'segments')"):
        list(read(path))


class Harmful:
    def __reduce__(self):
        return print, ("harm is done",)


@pytest.mark.parametrize("harm", [Harmful(), print, range(3), set, object()])
def test_no_class_is_looked_up_and_nothing_is_called(tmp_path, capsys, harm):
    path = tmp_path / "harmful.pickle"
    path.write_bytes(pickle.dumps(snapshot([harm])))

    with pytest.raises(TraceError, match="which is not loaded from a trace"):
        list(read(path))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        lambda content: content[:-1],
        lambda content: content[:20] + b"\xff" + content[21:],
        lambda content: b"\x80\x04}b.",
        lambda content: b"\x80\x04P7\n.",
        lambda content: b"\x80\x02",
        lambda content: b"\x80\x04j\xff\xff\xff\xff.",
        lambda content: b"\x80\x04(((u.",
    ],
)
def test_a_damaged_pickle_is_refused_with_the_name_of_the_file(tmp_path, damage):
    path = tmp_path / "damaged.pickle"
    path.write_bytes(damage(pickle.dumps(snapshot([entry("alloc")]), 4)))

    with pytest.raises(TraceError, match=r"damaged\.pickle: it is no pickle of plain data: "):
        list(read(path))
