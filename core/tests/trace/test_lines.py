import gzip
import json

import pytest

from allotment.errors import TraceError
from allotment.layers.call_site import Frame
from allotment.trace import EventKind, TraceEvent, TraceSite, TraceSource, read

HEADER = {"format": "allotment trace", "version": 1}
SOURCE = {"define": "source", "id": 0, "device": "cuda:0", "allocator": "caching"}
SITE = {"define": "site", "id": 1, "frames": [["a.py", 3, "f"], ["b.py", 9, "g"]], "library": "cupy"}
LABEL = {"define": "label", "id": 2, "name": "step/weights"}
ALLOCATE = {"op": "a", "id": 0, "t": 5, "size": 100, "source": 0, "stream": 2, "label": 2, "site": 1}
FREE = {"op": "f", "id": 0, "t": 9}


@pytest.fixture
def lines_file(tmp_path):
    """Return what writes a trace of JSON lines: each a document, or text as it is."""

    def write(*lines, name="run.jsonl"):
        text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in (HEADER, *lines))
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return write


def problems_of(path):
    problems = []
    events = list(read(path, on_problem=problems.append))
    return events, [(problem.line, problem.problem) for problem in problems]


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz", "run"])
def test_an_event_has_all_that_was_defined(lines_file, name):
    made, freed = read(lines_file(SOURCE, SITE, LABEL, ALLOCATE, FREE, name=name))
    source, site = TraceSource("cuda:0", "caching"), TraceSite((Frame("a.py", 3, "f"), Frame("b.py", 9, "g")), "cupy")

    assert made == TraceEvent(EventKind.ALLOCATE, 0, 100, 2, 5, source, "step/weights", site)
    assert freed == TraceEvent(EventKind.FREE, 0, 100, 2, 9, source)


def test_what_is_left_out_is_not_known(lines_file):
    (event,) = read(lines_file({"op": "a", "id": 3, "size": 1}))

    assert event == TraceEvent(EventKind.ALLOCATE, 3, 1)


def test_keys_of_later_releases_are_passed_over(lines_file):
    assert len(list(read(lines_file({"op": "a", "id": 3, "size": 1, "new": [1, {"x": 2}]})))) == 1


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "truncated"),
        ("nonsense", "malformed"),
        ("[1]", "expected `object`"),
        ({"op": "a", "id": "x", "size": 1}, "Expected `int"),
        ({"op": "z", "id": 1}, "op is 'z', and can be 'a', 'f', 'h', 'o'"),
        ({"op": "a", "size": 1}, "id is None"),
        ({"op": "a", "id": 1}, "size is None"),
        ({"op": "a", "id": 1, "size": -1}, "size is -1"),
        ({"op": "a", "id": 1, "size": 2**63}, "size is 9223372036854775808"),
        ({"op": "a", "id": 1, "size": 1, "site": 7}, "site 7 is not defined before"),
        ({"op": "f", "id": 7}, "allocation 7 is freed, and is not live"),
        ({"define": "colour", "id": 1}, "define is 'colour'"),
        ({"define": "label", "name": "x"}, "id is None"),
        ({"t": 1}, "neither an event"),
        ({"format": "allotment trace", "version": 2}, "has version 2"),
        ({"format": "another"}, "format is 'another'"),
    ],
)
def test_a_wrong_line_is_reported_and_the_rest_is_read(lines_file, line, problem):
    before, after = {"op": "a", "id": 100, "size": 8}, {"op": "f", "id": 100}
    path = lines_file(before, line, after)
    events, problems = problems_of(path)

    assert [event.kind.value for event in events] == ["a", "f"]
    assert [number for number, _ in problems] == [3]
    assert problem.lower() in problems[0][1].lower()
    with pytest.raises(TraceError, match="line 3") as caught:
        list(read(path))
    assert caught.value.origin == str(path)


def test_a_block_that_is_live_twice_keeps_its_first_size(lines_file):
    events, problems = problems_of(
        lines_file({"op": "a", "id": 1, "size": 8}, {"op": "a", "id": 1, "size": 9}, {"op": "f", "id": 1})
    )

    assert [event.size for event in events] == [8, 8]
    assert problems == [(3, "allocation 1 is live already")]


@pytest.mark.parametrize("kept", [0.3, 0.6, 0.95])
def test_a_file_that_was_cut_off_is_read_to_where_it_ends(lines_file, kept):
    numbers = range(2000)
    lines = [json.dumps({"op": "a", "id": number, "size": (number * 7919) % 100_003}) for number in numbers]
    path = lines_file(*lines, name="run.jsonl.gz")
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    events, problems = problems_of(path)

    assert 0.7 * kept * 2000 < len(events) < 2000
    assert [event.id for event in events] == list(range(len(events)))
    assert any("cut off" in problem for _, problem in problems)
    with pytest.raises(TraceError):
        list(read(path))


def test_a_recording_without_an_event_is_an_empty_trace(lines_file):
    assert list(read(lines_file())) == []


def test_compressed_files_that_follow_each_other_are_one(tmp_path):
    path = tmp_path / "run.jsonl.gz"
    parts = [json.dumps(HEADER) + "\n", json.dumps({"op": "a", "id": 0, "size": 1}) + "\n"]
    path.write_bytes(b"".join(gzip.compress(part.encode()) for part in parts) + bytes(512))

    assert len(list(read(path))) == 1
